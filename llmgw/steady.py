"""Replicas about which a pass has nothing to decide: they run as was decided, are published so, and nobody wants
anything of their node. Of thousands these are nearly all, so every step looks only at the others (`Draft.in_question`).

Says nothing of what the catalog wants now: how many, of which version, under which names, is asked per model.
"""

from llmgw.grouped import Grouped
from llmgw.ids import NodeId, ReplicaId
from llmgw.memo import Latest
from llmgw.nodes import NodeView, Survey
from llmgw.wire import Endpoint, EngineState
from llmgw.world import Assignment, World

_KEPT: Latest[tuple[str, NodeId], frozenset[ReplicaId]] = Latest(20_000)


def steady(world: World, seen: Survey, groups: Grouped) -> set[ReplicaId]:
    """Replicas that this pass may leave as they are."""
    found: set[ReplicaId] = set()
    endpoints = world.table.endpoints
    for id_, mine in groups.by_node.items():
        view = seen.nodes.get(id_)
        if view is not None and view.is_ordinary:
            held = [endpoints.get(a.replica) for a in mine]
            made_of = (view, *mine, *held)
            found |= _KEPT.get((world.fleet, id_), made_of, lambda v=view, m=mine, h=held: _of_node(v, m, h))  # type: ignore[misc]
    return found


def _of_node(view: NodeView, mine: tuple[Assignment, ...], held: list[Endpoint | None]) -> frozenset[ReplicaId]:
    return frozenset(a.replica for a, e in zip(mine, held, strict=True) if e is not None and _is_steady(view, a, e))


def _is_steady(view: NodeView, assignment: Assignment, held: Endpoint) -> bool:
    if assignment.stop is not None or assignment.unreadable or len(assignment.parts) != 1 or view.seen is None:
        return False
    if assignment.boot and assignment.boot != view.seen.boot:
        return False
    row = view.rows.get(assignment.replica)
    if row is None or row.state is not EngineState.READY or row.url is None:
        return False
    return row.url.rstrip("/") == held.url and view.node.pool == held.pool
