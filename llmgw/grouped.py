"""Assignments in the orders in which passes ask for them, worked out once per map of assignments: maps never change."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from llmgw.ids import ModelName, NodeId, ReplicaId
from llmgw.memo import Latest, same_as
from llmgw.world import Assignment, World

K = TypeVar("K", bound=str)
Group = tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class Grouped:
    """Everything in order of the replica's id. A replica of several parts is on each of their nodes."""

    by_model: Mapping[ModelName, Group]
    by_node: Mapping[NodeId, Group]


NOTHING = Grouped({}, {})
_KEPT: Latest[str, Grouped] = Latest(64)


def grouped(world: World) -> Grouped:
    """The groups of a world; those in which nothing changed are the very same as in the fleet's world before."""
    before = _KEPT.last(world.fleet) or NOTHING
    return _KEPT.get(world.fleet, (world.assignments,), lambda: _grouped(world.assignments, before))


def _grouped(assignments: Mapping[ReplicaId, Assignment], before: Grouped) -> Grouped:
    ordered = [assignments[replica] for replica in sorted(assignments)]
    return Grouped(_as_before(before.by_model, _by_model(ordered)), _as_before(before.by_node, _by_node(ordered)))


def _as_before(before: Mapping[K, Group], groups: Mapping[K, Sequence[Assignment]]) -> dict[K, Group]:
    return {key: same_as(before.get(key), tuple(mine)) for key, mine in groups.items()}


def _by_model(assignments: Iterable[Assignment]) -> dict[ModelName, list[Assignment]]:
    found: dict[ModelName, list[Assignment]] = {}
    for assignment in assignments:
        found.setdefault(assignment.model, []).append(assignment)
    return found


def _by_node(assignments: Iterable[Assignment]) -> dict[NodeId, list[Assignment]]:
    found: dict[NodeId, list[Assignment]] = {}
    for assignment in assignments:
        for part in assignment.parts:
            found.setdefault(part.node, []).append(assignment)
    return found
