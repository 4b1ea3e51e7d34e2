"""What one run hands on to the next is nearly always taken up by the same process: then the records are taken as they
are, and not made again from the bytes they have just been written to.

It changes no outcome (`tests/plane/test_handed_on.py`): they are found by the very bytes, and where those are not
known, as in another process, they are read. Holds no more than the runs of some fleets hand on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from llmgw.ids import ReplicaId, RouterId, SpecId
from llmgw.table import Table
from llmgw.wire import LaunchSpec
from llmgw.world import Assignment, Refused, RouterFacts, Unreadable, World

MOST = 4
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
    )


def carried_router(facts: RouterFacts) -> RouterFacts:
    """Without what the first observation brings again; draining stays, since a stop waits for it."""
    return replace(facts, idle=frozenset(), asked=frozenset(), asked_s=None)


class HandedOn:
    """The records that were written last, by what they became. Threads may share one."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._kept: dict[Key, Records] = {}

    def keep(self, key: Key, records: Records) -> None:
        others = [item for item in self._kept.items() if item[0] != key]
        self._kept = dict([(key, records), *others][: self._most])

    def find(self, key: Key) -> Records | None:
        return self._kept.get(key)
