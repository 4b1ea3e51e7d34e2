"""What one run hands on to the next is nearly always taken up by the same process: then the records are taken as they
are, and not made again from the bytes they have just been written to.

It changes no outcome (`tests/plane/test_handed_on.py`): they are found by the very bytes, and where those are not
known, as in another process, they are read. Holds no more than the last run of some fleets has handed on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from llmgw.catalog import Catalog
from llmgw.ids import NodeId, ReplicaId, RouterId, SpecId
from llmgw.table import Table
from llmgw.wire import LaunchSpec
from llmgw.world import Assignment, Known, Refused, RouterFacts, Unreadable, World

MOST = 4
"""Fleets."""
Key: TypeAlias = tuple[bytes, ...]
"""Every part that says something of the records: the devices of assignments are told with the nodes."""


@dataclass(frozen=True, slots=True)
class Records:
    """What makes up nearly all of a large fleet's state, in the order in which it is carried."""

    assignments: Mapping[ReplicaId, Assignment]
    unreadable: Mapping[str, Unreadable]
    specs: Mapping[SpecId, LaunchSpec]
    sent: Mapping[ReplicaId, int]
    refused: Mapping[ReplicaId, Refused]
    table: Table
    routers: Mapping[RouterId, RouterFacts]
    published_s: Mapping[ReplicaId, float]
    known: Mapping[NodeId, Known]


def of_world(world: World) -> Records | None:
    """None where a record was unreadable: whether it still is has to be tried anew each time."""
    if world.unreadable:
        return None
    return Records(
        assignments=dict(sorted(world.assignments.items())),
        unreadable={},
        specs=dict(sorted(world.specs.items())),
        sent=dict(world.sent),
        refused=dict(world.refused),
        table=world.table,
        routers={id_: carried_router(facts) for id_, facts in world.routers.items()},
        published_s=dict(world.published_s),
        known=world.known,
    )


def carried_router(facts: RouterFacts) -> RouterFacts:
    """Without what the first observation brings again; draining stays, since a stop waits for it."""
    return replace(facts, idle=frozenset(), asked=frozenset(), asked_s=None)


class CatalogRead(NamedTuple):
    """The carried part of a catalog, and what was read from it."""

    part: Mapping[str, Any]
    catalog: Catalog


T = TypeVar("T")


class HandedOn(Generic[T]):
    """What a fleet has handed on last, by the bytes that it became. Threads may share one."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._kept: dict[str, tuple[Key, T]] = {}

    def keep(self, fleet: str, key: Key, value: T) -> None:
        others = [item for item in self._kept.items() if item[0] != fleet]
        self._kept = dict([(fleet, (key, value)), *others][: self._most])

    def find(self, fleet: str, key: Key) -> T | None:
        kept = self._kept.get(fleet)
        return kept[1] if kept is not None and kept[0] == key else None
