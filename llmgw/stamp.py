"""One short word for what a plan depends on, so that "the world moved since" can be told from "it did not".

Made alike by whoever foresees a catalog on a copy of the world and by the judging that puts it in force. Ages, notes
and figures that change without consequence are left out. Never decides.
"""

from collections.abc import Iterator

from llmgw.canonical import digest
from llmgw.nodes import NodeView, survey
from llmgw.world import Assignment, World

SIZE = 8
"""Bytes of a hash: 16 hex digits, short enough to be copied by hand."""


def plan_hash(world: World, catalog_digest: str) -> str:
    """Names what follows from putting the catalog with this digest in force in `world`."""
    return digest(["plan", catalog_digest, _facts(world)], size=SIZE)


def _facts(world: World) -> list[object]:
    wishes = world.wishes
    return [
        [world.fleet, world.installation, world.epoch, world.generation, world.digest, world.ending],
        [world.fenced_by is not None, world.overtaken_by is not None],
        [_assignment(a) for _, a in sorted(world.assignments.items())],
        [list(_node(view)) for view in survey(world).nodes.values()],
        sorted(world.table.endpoints),
        {name: len(failures) for name, failures in sorted(world.failures.items())},
        {name: scale.replicas for name, scale in sorted(wishes.scales.items())},
        [sorted(wishes.wakes), sorted(wishes.restarts), sorted(wishes.added_nodes), sorted(wishes.added_routers)],
    ]


def _assignment(assignment: Assignment) -> list[object]:
    parts = [[part.node, sorted(claim.device for claim in part.claims)] for part in assignment.parts]
    stop = None if assignment.stop is None else [assignment.stop.cause, assignment.stop.commanded]
    return [assignment.replica, assignment.model, assignment.profile, assignment.fingerprint, parts, stop]


def _node(view: NodeView) -> Iterator[object]:
    yield from (view.node.id, view.state, view.cordoned, view.drain is not None, view.leaving)
    if view.seen is not None:
        yield sorted([d.id, d.health] for d in view.seen.inventory.devices)
        yield sorted(view.seen.quarantined)
        yield sorted([w.source, w.complete] for w in view.seen.weights)
