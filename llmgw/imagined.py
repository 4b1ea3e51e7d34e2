"""A fleet that does what it is told: how agents and routers would answer a plan, as pure steps from world to world.

Engines take `START_S` to become ready and `STOP_S` to end; nobody fails and no request is in flight. For foreseeing
what a change leads to, never for deciding.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from llmgw import batches, record
from llmgw.calls import CallOutcome, DispatchAnswer, DispatchCall, PublishAnswer, StartOrder
from llmgw.ids import NodeId, ReplicaId, RouterId
from llmgw.wire import EngineState, Mark, ReplicaReport
from llmgw.world import Assignment, Seen, SilenceLevel, World

START_S = 30.0
STOP_S = 2.0

Due = Mapping[ReplicaId, float]
"""When an engine becomes ready, or has ended."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The world, and what its engines are about to do."""

    world: World
    due: Due = field(default_factory=dict)

    @property
    def next_s(self) -> float | None:
        return min(self.due.values(), default=None)


def begin(world: World, now_s: float) -> Scene:
    """`world` with every call answered, its engines about to finish what they are in."""
    calls = {id_: replace(call, asked_s=None) for id_, call in world.calls.items()}
    due: dict[ReplicaId, float] = {}
    for seen in world.seen.values():
        for row in seen.replicas:
            if (took_s := _TAKES_S.get(row.state)) is not None and not row.asleep:
                due[row.replica] = now_s + took_s
    return Scene(replace(world, calls=calls), due)


_TAKES_S = {EngineState.STARTING: START_S, EngineState.LOADING: START_S, EngineState.STOPPING: STOP_S}


def told(scene: Scene, nodes: Iterable[NodeId], routers: Iterable[RouterId], now_s: float) -> Scene:
    """Every node and router that can be reached has taken what the plan has for it."""
    world, due = scene.world, dict(scene.due)
    for router in routers:
        if not _is_silent(world, f"router/{router}"):
            world = _published(world, router, now_s)
    for node in nodes:
        call = None if _is_silent(world, f"node/{node}") else batches.for_node(world, node)
        if call is None or node not in world.seen:
            continue
        world = record.sending(world, call, now_s)
        world = record.answered(world, call, DispatchAnswer(outcome=CallOutcome.ANSWERED), now_s)
        world = replace(world, seen={**world.seen, node: _after(world, world.seen[node], call)})
        due |= {start.replica: now_s + START_S for start in call.starts}
        due |= {stop.replica: now_s + STOP_S for stop in call.stops}
    return Scene(world, due)


def advanced(scene: Scene, now_s: float) -> Scene:
    """Engines whose moment has come are ready, or gone."""
    ripe = {replica for replica, at_s in scene.due.items() if at_s <= now_s}
    if not ripe:
        return scene
    seen = {id_: _ripened(node, ripe) for id_, node in scene.world.seen.items()}
    due = {replica: at_s for replica, at_s in scene.due.items() if replica not in ripe}
    return Scene(replace(scene.world, seen=seen), due)


def _is_silent(world: World, target: str) -> bool:
    silence = world.silence.get(target)
    return silence is not None and silence.level is not SilenceLevel.HEARD


def _published(world: World, router: RouterId, now_s: float) -> World:
    call = batches.for_router(world, (), router)
    if call is None:
        return world
    answer = PublishAnswer(outcome=CallOutcome.ANSWERED, revision=call.revision, digest=world.table.digest)
    return record.published(record.pushing(world, call, now_s), call, answer, now_s)


def _after(world: World, seen: Seen, call: DispatchCall) -> Seen:
    """What the node reports once it has taken the call."""
    stopped = {stop.replica for stop in call.stops}
    rows = [r.model_copy(update={"state": EngineState.STOPPING}) if r.replica in stopped else r for r in seen.replicas]
    rows = [_resting(row, call.asleep[row.replica]) if row.replica in call.asleep else row for row in rows]
    known = {row.replica for row in rows}
    rows += [_row(world, start, call) for start in call.starts if start.replica not in known]
    return replace(seen, token=call.token, revision=seen.revision + 1, replicas=tuple(rows))


def _resting(row: ReplicaReport, asleep: bool) -> ReplicaReport:
    """Engines fall asleep and wake up at once."""
    state = EngineState.LOADING if asleep else EngineState.READY
    return row.model_copy(update={"state": state, "rests": asleep, "asleep": asleep})


def _row(world: World, start: StartOrder, call: DispatchCall) -> ReplicaReport:
    token, assignment = call.token, world.assignments[start.replica]
    mark = Mark(
        installation=token.installation, fleet=token.fleet, replica=start.replica, epoch=token.epoch, seq=token.seq
    )
    return ReplicaReport(
        replica=start.replica,
        model=start.model,
        mark=mark,
        fingerprint=start.fingerprint,
        attempt=start.attempt,
        state=EngineState.STARTING,
        claims=start.claims,
        served_name=_served_name(world, assignment),
        url=f"http://{call.node}.invalid/{start.replica}",
    )


def _served_name(world: World, assignment: Assignment) -> str:
    spec = world.specs.get(assignment.spec)
    return assignment.model if spec is None else spec.served_name


def _ripened(seen: Seen, ripe: set[ReplicaId]) -> Seen:
    if not any(row.replica in ripe for row in seen.replicas):
        return seen
    rows = (
        row.model_copy(update={"state": EngineState.READY, "was_ready": True})
        if row.replica in ripe and row.state is not EngineState.STOPPING
        else row
        for row in seen.replicas
        if not (row.replica in ripe and row.state is EngineState.STOPPING)
    )
    return replace(seen, replicas=tuple(rows), revision=seen.revision + 1)
