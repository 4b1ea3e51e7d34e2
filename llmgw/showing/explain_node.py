"""Sentences about one node, and about one router."""

from collections.abc import Iterator, Mapping

from llmgw.catalog import Router
from llmgw.nodes import NodeState, NodeView
from llmgw.sentences import counted, lasting
from llmgw.showing.devices import device_row
from llmgw.showing.explain_emptying import emptying_sentences
from llmgw.showing.explain_replica import replica_line
from llmgw.showing.explain_waiting import MENDS, waiting_sentences
from llmgw.showing.router_rows import router_row
from llmgw.showing.scene import Scene

MAX_REPLICAS = 20
MAX_DEVICES = 20


def node_sentences(scene: Scene, view: NodeView) -> Iterator[str]:
    node, world = view.node, scene.world
    zone = f", zone {node.zone}" if node.zone else ""
    note = f": {view.note}" if view.note else ""
    yield f"{node.id} is {view.state.replace('_', ' ')}{note}. {_MEANING[view.state]}"
    if view.is_silent and (silence := world.silence.get(f"node/{node.id}")) is not None:
        yield f"It has been silent for {lasting(scene.age_s(silence.since_s))}."
    if view.frozen and view.is_silent:
        yield f"But the brake is on: {scene.survey.brake.rstrip('.')}."
    yield f"Its agent is at {node.url}, pool {node.pool}{zone}{_origin(scene, view)}."
    if view.seen is not None:
        yield from (f"Its agent says: {problem.rstrip('.')}." for problem in view.seen.problems)
    yield from _closed(scene, view)
    yield from emptying_sentences(scene, view)
    yield from _devices(scene, view)
    mine = scene.by_node.get(node.id, ())
    yield from (replica_line(scene, a) for a in mine[:MAX_REPLICAS])
    if not mine:
        yield "Nothing is assigned to it."
    elif len(mine) > MAX_REPLICAS:
        yield f"And {len(mine) - MAX_REPLICAS} more replicas."
    yield from _telling(scene, view)
    waiting = scene.waiting("node", node.id)
    if waiting is not None and (mend := MENDS.get(waiting.code)) is not None:
        yield mend.format(name=node.id)


_MEANING: Mapping[NodeState, str] = {
    NodeState.UNKNOWN: "What was decided for it stays; nothing new is placed on it before it is heard.",
    NodeState.HEALTHY: "Its reports count and it is told what to do.",
    NodeState.SUSPECT: "Its endpoints are withdrawn; nothing is moved yet.",
    NodeState.LOST: "Its replicas are placed elsewhere where there is room; it is settled when it returns.",
    NodeState.SET_ASIDE: "It gets no command and its reports judge nothing until only one node claims that identity.",
    NodeState.FOREIGN: "It gets no command.",
}


def _origin(scene: Scene, view: NodeView) -> str:
    if view.leaving:
        return "; it was removed and leaves"
    if view.node.id in scene.world.wishes.added_nodes:
        return "; added by an order"
    return "; declared in the catalog"


def _closed(scene: Scene, view: NodeView) -> Iterator[str]:
    """Why nothing new is placed on it."""
    cordoned_s = scene.world.wishes.cordoned.get(view.node.id)
    if cordoned_s is not None:
        age = lasting(scene.age_s(cordoned_s))
        yield f"It has been cordoned for {age}: nothing new is placed on it until `llmgw uncordon {view.node.id}`."
    if view.drain is not None:
        left_s = scene.left_s(view.drain.deadline_s)
        if not scene.by_node.get(view.node.id):
            end = ""
        elif view.drain.deadline_s is None:
            end = "; what finds no place elsewhere stays"
        elif left_s is None:
            end = "; its deadline is over, so the rest is stopped"
        else:
            end = f"; what finds no place elsewhere is stopped in {lasting(left_s)}"
        yield f"It has been drained for {lasting(scene.age_s(view.drain.since_s))}{end}."


def _devices(scene: Scene, view: NodeView) -> Iterator[str]:
    if view.seen is None:
        return
    inventory = view.seen.inventory
    if not inventory.complete:
        problem = inventory.problem or "its devices are still coming up"
        yield f"Its inventory is not complete ({problem}): nothing that needs devices is placed on it."
    rows = [device_row(scene, view, device) for device in inventory.devices]
    free = sum(1 for row in rows if row.free)
    unused = sum(1 for row in rows if not (row.free or row.holders or row.problem))
    idle = f", {unused} unused" if unused else ""
    yield f"It reports {counted(len(rows), 'device')}, {free} free{idle}." if rows else "It reports no devices."
    for row in rows[:MAX_DEVICES]:
        if row.problem:
            yield f"Device {row.index} ({row.kind}) is out of use: {row.problem}."
        elif row.holders:
            yield f"Device {row.index} ({row.kind}) is held by {', '.join(row.holders)}."


def _telling(scene: Scene, view: NodeView) -> Iterator[str]:
    world, id_ = scene.world, view.node.id
    outgoing = world.outbox.get(id_, ())
    if outgoing:
        said = ", ".join(f"{item.kind.replace('_', ' ')} {item.subject}" for item in outgoing[:MAX_REPLICAS])
        yield f"It still has to be told: {said}."
    call = world.calls.get(id_)
    if call is not None and call.failures:
        yield f"The last {counted(call.failures, 'call')} to it failed: {call.problem}."
    if (trouble := world.troubles.get(f"node/{id_}")) is not None and trouble != view.note:
        yield f"Its stream: {trouble}."


def router_sentences(scene: Scene, router: Router) -> Iterator[str]:
    row, world = router_row(scene, router), scene.world
    heard = {True: "heard", False: "silent", None: "not heard yet"}[row.heard]
    yield f"{router.id} ({router.kind}, {router.url}) is {heard}."
    if row.current:
        yield f"It holds the newest table, revision {world.table_revision}."
    elif row.confirmed_revision < 0:
        yield f"It has confirmed no table yet; the newest is revision {world.table_revision}."
    else:
        yield f"It confirmed revision {row.confirmed_revision}; the newest is {world.table_revision}."
    if row.confirmed_age_s is not None:
        yield f"Its last confirmation was {lasting(row.confirmed_age_s)} ago."
    facts = world.routers.get(router.id)
    if facts is not None and facts.draining:
        yield f"Requests are still in flight at {', '.join(sorted(facts.draining)[:MAX_REPLICAS])}, already withdrawn."
    if facts is not None and facts.failures:
        yield f"Telling it the table failed {counted(facts.failures, 'time')} in a row: {row.problem}."
    elif row.problem:
        yield f"Its stream: {row.problem}."
    if (waiting := scene.waiting("router", router.id)) is not None:
        yield from waiting_sentences(scene, waiting, router.id)
