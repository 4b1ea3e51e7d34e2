"""The world put together again from what a fleet answers: its carried state, and the reports of nodes.

The copy decides as the original would; nothing of it ever goes back.
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from llmgw import carry
from llmgw.carry import Parts, Seed
from llmgw.misfit import misfits
from llmgw.showing.reports import KINDS, ReportRow
from llmgw.world import World


@dataclass(frozen=True, slots=True)
class Snapshot:
    world: World
    unreadable: Mapping[str, str]
    """Records that could not be understood, with the reason: the copy lacks them."""


def snapshot(carried: Mapping[str, Any], reports: Iterable[ReportRow]) -> Snapshot:
    """`carried`: the answer to the query of that name. A record that cannot be read is left out and named."""
    parts = {name: base64.b64decode(text) for name, text in carried["parts"].items() if name in Parts.__annotations__}
    opened = carry.unpack(Seed.model_validate(carried["seed"]), Parts(**parts))
    found: dict[str, Any] = {}
    unreadable = dict(opened.unreadable)
    for row in reports:
        if (adapter := KINDS.get(row.kind)) is None:
            continue  # of a newer version
        try:
            found.setdefault(row.kind, {})[row.key] = adapter.validate_python(row.value)
        except ValidationError as error:
            unreadable[f"{row.kind} {row.key}"] = misfits(error, document="it")
    return Snapshot(replace(opened.world, **found), unreadable)
