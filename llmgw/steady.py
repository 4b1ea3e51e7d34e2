"""Replicas about which a pass has nothing to decide: they run as was decided, are published so, and nobody wants
anything of their node. Of thousands these are nearly all, so every step looks only at the others (`Draft.in_question`).

Says nothing of what the catalog wants now: how many, of which version, under which names, is asked per model.
"""

from collections.abc import Mapping
from functools import partial

from llmgw.grouped import Grouped
from llmgw.ids import NodeId, ReplicaId
from llmgw.memo import Latest, same_as
from llmgw.nodes import NodeView, Survey
from llmgw.wire import Endpoint, EngineState
from llmgw.world import Assignment, World

_KEPT: Latest[tuple[str, NodeId], frozenset[ReplicaId]] = Latest(20_000)


def steady(world: World, seen: Survey, groups: Grouped) -> set[ReplicaId]:
    """Replicas that this pass may leave as they are."""
    found: set[ReplicaId] = set()
    held = _held(world, groups)
    for id_, mine in groups.by_node.items():
        view = seen.nodes.get(id_)
        if view is not None and view.is_ordinary:
            there = held[id_]
            of_node = partial(_of_node, view, mine, there)
            found |= _KEPT.get((world.fleet, id_), (view, mine, there), of_node)
    return found


Held = tuple[Endpoint | None, ...]
_HELD: Latest[str, Mapping[NodeId, Held]] = Latest(64)


def _held(world: World, groups: Grouped) -> Mapping[NodeId, Held]:
    """By node the endpoints of what is assigned there; where they are as before, the very same value."""
    before = _HELD.last(world.fleet) or {}
    return _HELD.get(world.fleet, (groups, world.table.endpoints), lambda: _held_now(world, groups, before))


def _held_now(world: World, groups: Grouped, before: Mapping[NodeId, Held]) -> Mapping[NodeId, Held]:
    endpoints = world.table.endpoints
    found = ((id_, tuple([endpoints.get(a.replica) for a in mine])) for id_, mine in groups.by_node.items())
    return {id_: same_as(before.get(id_), there) for id_, there in found}


def _of_node(view: NodeView, mine: tuple[Assignment, ...], held: Held) -> frozenset[ReplicaId]:
    return frozenset(a.replica for a, e in zip(mine, held, strict=True) if e is not None and _is_steady(view, a, e))


def _is_steady(view: NodeView, assignment: Assignment, held: Endpoint) -> bool:
    if assignment.stop is not None or assignment.sleep is not None or assignment.unreadable:
        return False
    if len(assignment.parts) != 1 or view.seen is None:
        return False
    if assignment.boot and assignment.boot != view.seen.boot:
        return False
    row = view.rows.get(assignment.replica)
    if row is None or row.state is not EngineState.READY or row.url is None:
        return False
    return row.url.rstrip("/") == held.url and view.node.pool == held.pool
