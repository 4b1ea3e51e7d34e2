"""Differences between table revisions, so that a router gets what it lacks and not the whole table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmgw.ids import ModelName, ReplicaId
from llmgw.table import TableChange
from llmgw.wire import Endpoint, TableModel

MAX_CHANGES = 64
"""Older differences are dropped; a router further behind gets the whole table."""


@dataclass(frozen=True, slots=True)
class Step:
    """What led to `revision`, from the table with digest `base`."""

    revision: int
    base: str
    change: TableChange


def append(log: Sequence[Step], step: Step) -> tuple[Step, ...]:
    return (*log, step)[-MAX_CHANGES:]


def since(log: Sequence[Step], revision: int, digest: str) -> TableChange | None:
    """What turns the table of `revision` and `digest` into the newest; None when the log does not reach back."""
    steps = [step for step in log if step.revision > revision]
    if not steps or steps[0].revision != revision + 1 or steps[0].base != digest:
        return None
    return combine(step.change for step in steps)


def combine(changes: Iterable[TableChange]) -> TableChange:
    """Several changes as one; the later wins."""
    models: dict[ModelName, TableModel | None] = {}
    endpoints: dict[ReplicaId, Endpoint | None] = {}
    for change in changes:
        models.update(dict.fromkeys(change.drop_models))
        models.update((m.name, m) for m in change.put_models)
        endpoints.update(dict.fromkeys(change.drop_endpoints))
        endpoints.update((e.id, e) for e in change.put_endpoints)
    return TableChange(
        put_models=tuple(m for _, m in sorted(models.items()) if m is not None),
        drop_models=tuple(sorted(name for name, m in models.items() if m is None)),
        put_endpoints=tuple(e for _, e in sorted(endpoints.items()) if e is not None),
        drop_endpoints=tuple(sorted(id_ for id_, e in endpoints.items() if e is None)),
    )
