"""Waking through routers that cannot hold a request: for a model that sleeps or starts they are told the address of one
of our own routers (`activator`), which holds the request, makes the wake and passes it on. Pure.
"""

import hashlib

from llmgw.ids import ReplicaId
from llmgw.router_kinds import ACTIVATOR
from llmgw.table import Table
from llmgw.wire import Endpoint, ModelState

SETTING = ACTIVATOR
_WAKING = (ModelState.ASLEEP, ModelState.STARTING)


def stand_ins(table: Table, activator: str, *, apart: bool = False) -> dict[ReplicaId, Endpoint]:
    """An endpoint for each model that sleeps or starts and has none: `activator`'s, under the model's own names.
    `apart`: each at an address of its own, the activator's side door (`/for/…`)."""
    base = activator.rstrip("/")
    served = {endpoint.models[0] for endpoint in table.endpoints.values()}
    found: dict[ReplicaId, Endpoint] = {}
    for name, model in sorted(table.models.items()):
        if model.state in _WAKING and name not in served:
            id_ = ReplicaId(f"activator-{hashlib.blake2b(name.encode(), digest_size=6).hexdigest()}")
            found[id_] = Endpoint(
                id=id_,
                url=f"{base}/for/{id_}" if apart else base,
                models=(name, *model.aliases),
                served_name=name,
                engine="activator",
            )
    return found
