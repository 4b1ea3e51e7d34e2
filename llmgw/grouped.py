"""Assignments in the orders in which passes ask for them: worked out once for a map of assignments, which never changes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from llmgw.ids import ModelName, NodeId, ReplicaId
from llmgw.memo import Latest
from llmgw.world import Assignment, World


@dataclass(frozen=True, slots=True)
class Grouped:
    """Everything in order of the replica's id. A replica of several parts is on each of their nodes."""

    by_model: Mapping[ModelName, tuple[Assignment, ...]]
    by_node: Mapping[NodeId, tuple[Assignment, ...]]


_KEPT: Latest[str, Grouped] = Latest(64)


def grouped(world: World) -> Grouped:
    return _KEPT.get(world.fleet, (world.assignments,), lambda: _grouped(world.assignments))


def _grouped(assignments: Mapping[ReplicaId, Assignment]) -> Grouped:
    ordered = [assignments[replica] for replica in sorted(assignments)]
    models = {model: tuple(mine) for model, mine in by_model(ordered).items()}
    nodes = {node: tuple(mine) for node, mine in by_node(ordered).items()}
    return Grouped(models, nodes)


def by_model(assignments: Iterable[Assignment]) -> dict[ModelName, list[Assignment]]:
    found: dict[ModelName, list[Assignment]] = {}
    for assignment in assignments:
        found.setdefault(assignment.model, []).append(assignment)
    return found


def by_node(assignments: Iterable[Assignment]) -> dict[NodeId, list[Assignment]]:
    found: dict[NodeId, list[Assignment]] = {}
    for assignment in assignments:
        for part in assignment.parts:
            found.setdefault(part.node, []).append(assignment)
    return found
