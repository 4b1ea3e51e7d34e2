"""What must hold in every simulated fleet at every moment, and what must be reached once faults stop. Each function
raises AssertionError with what it saw."""

from collections import Counter
from collections.abc import Iterable, Mapping

from llmgw import rolling
from llmgw.demand import desired, slack, why_moves
from llmgw.draft import Draft
from llmgw.fencing import Fence, compare
from llmgw.ids import DeviceId, ReplicaId
from llmgw.nodes import NodeState, survey
from llmgw.salvage import NAMELESS
from llmgw.stopping import UNACKNOWLEDGED_LIMIT_S, drain_limit_s
from llmgw.wire import DeviceClaim, EngineState
from llmgw.world import Assignment, SilenceLevel, StopCause
from sim.fleet import SimFleet


def no_device_is_used_twice(fleet: SimFleet) -> None:
    """No two engines that may be alive hold one device, but for shares of it, within what it has."""
    for node in fleet.nodes.values():
        held = [(claim, replica) for replica, engine in node.engines.items() for claim in engine.start.claims]
        _within_devices(held, {d.id: d.memory_mib for d in node.devices})


def _within_devices(held: Iterable[tuple[DeviceClaim, ReplicaId]], memory: Mapping[DeviceId, int | None]) -> None:
    by_device: dict[DeviceId, list[tuple[DeviceClaim, ReplicaId]]] = {}
    for claim, replica in held:
        by_device.setdefault(claim.device, []).append((claim, replica))
    for device, claims in by_device.items():
        shares = [claim.memory_mib for claim, _ in claims if claim.memory_mib is not None]
        who = sorted(replica for _, replica in claims)
        assert len(claims) == 1 or len(shares) == len(claims), f"{device} is claimed whole and again: {who}"
        if shares and (has := memory.get(device)) is not None:
            assert sum(shares) <= has, f"{device} of {has} MiB is claimed by {who} with {shares}"


def no_device_is_promised_twice(fleet: SimFleet) -> None:
    """Two assignments have a device only while the one is being released and the other waits, or each has a share."""
    held: list[tuple[DeviceClaim, ReplicaId]] = []
    for assignment in fleet.world.assignments.values():
        stop = assignment.stop
        if stop is None or not (stop.commanded or stop.by in fleet.world.assignments):
            held += [(claim, assignment.replica) for claim in assignment.claims]
    _within_devices(held, {d.id: d.memory_mib for node in fleet.nodes.values() for d in node.devices})


def nothing_gives_way_to_its_equal(fleet: SimFleet) -> None:
    """What is displaced was of a strictly lower priority when it was decided."""
    models = {} if fleet.world.catalog is None else {m.name: m for m in fleet.world.catalog.models}
    for replica, assignment in fleet.world.assignments.items():
        stop = assignment.stop
        if stop is None or stop.by is None or replica in fleet.seen.displaced:
            continue
        fleet.seen.displaced.add(replica)
        claimant = fleet.world.assignments.get(stop.by)
        low, high = models.get(assignment.model), models.get(claimant.model) if claimant is not None else None
        if low is not None and high is not None:
            assert low.priority < high.priority, f"{replica} gives way to {stop.by}, which is no better"


def only_ready_replicas_are_published(fleet: SimFleet) -> None:
    """Every route leads to a replica that is not wished away and that its node, where it is heard, calls ready."""
    seen = survey(fleet.world)
    for replica in fleet.world.table.endpoints:
        assignment = fleet.world.assignments.get(replica)
        if assignment is None and any(name not in fleet.world.assignments for name in fleet.world.unreadable):
            continue  # its record cannot be read, and its node has not said yet that it has it
        assert assignment is not None, f"{replica} is published and nobody decided it"
        assert assignment.stop is None, f"{replica} is published and to be stopped"
        view = seen.of(assignment.node)
        if view is not None and view.state is NodeState.HEALTHY:
            row = view.rows.get(replica)
            assert row is not None, f"{replica} is published and {assignment.node} does not have it"


def no_port_leads_to_another_replica(fleet: SimFleet) -> None:
    """Whatever table a router serves, be it an old one of a router that is cut off: nobody else listens there."""
    listening = {
        f"http://{id_}:{engine.port}": replica
        for id_, node in fleet.nodes.items()
        for replica, engine in node.engines.items()
    }
    for id_, router in fleet.routers.items():
        for replica, endpoint in router.table.endpoints.items():
            other = listening.get(endpoint.url, replica)
            assert other == replica, f"{id_} sends what is for {replica} to {other} at {endpoint.url}"


def every_start_happens_once(fleet: SimFleet) -> None:
    """In one boot of its node. What ran before is void, and a repeat that was under way meanwhile begins it anew."""
    for node in fleet.nodes.values():
        twice = [replica for replica, n in Counter(node.starts[node.starts_before :]).items() if n > 1]
        assert not twice, f"started twice on {node.id}: {twice}"


def nothing_stops_before_traffic_has_left(fleet: SimFleet) -> None:
    """When a stop is commanded, no router that is heard picks the replica, and none has it in flight before the
    limit."""
    for replica, assignment in fleet.world.assignments.items():
        stop = assignment.stop
        if stop is None or not stop.commanded or replica in fleet.seen.commanded:
            continue
        fleet.seen.commanded.add(replica)
        if stop.cause in (StopCause.FAILED, StopCause.REPLACED) or _is_silent(fleet, f"node/{assignment.node}"):
            continue
        limit_s = drain_limit_s(fleet.world, assignment)
        waited_s = fleet.clock_s - stop.since_s
        for id_, router in fleet.routers.items():
            if _is_silent(fleet, f"router/{id_}") or waited_s >= limit_s + UNACKNOWLEDGED_LIMIT_S:
                continue
            assert replica not in router.table.endpoints, f"{replica} is told to stop while {id_} picks it"
            busy = router.in_flight.get(replica, 0)
            assert not busy or waited_s >= limit_s, f"{replica} is told to stop with {busy} in flight at {id_}"


def no_router_sends_to_a_sleeper(fleet: SimFleet) -> None:
    """Whatever table a router serves, be it an old one of a router that is cut off: its engines are awake."""
    asleep = {replica for node in fleet.nodes.values() for replica, engine in node.engines.items() if engine.asleep}
    for id_, router in fleet.routers.items():
        picked = asleep & (router.table.endpoints.keys() | {r for r, busy in router.in_flight.items() if busy})
        assert not picked, f"{id_} sends to {sorted(picked)}, asleep"


def what_cannot_be_read_is_left_as_it_is(fleet: SimFleet) -> None:
    """Nobody but an operator ends a replica whose record could not be read."""
    for replica, assignment in fleet.world.assignments.items():
        by_people = (StopCause.RESTART, StopCause.REMOVED, StopCause.FLEET_ENDS)
        if assignment.unreadable and assignment.stop is not None and replica not in fleet.seen.commanded:
            assert assignment.stop.cause in by_people, f"{replica} is stopped ({assignment.stop.cause})"


def what_is_called_gone_is_gone(fleet: SimFleet) -> None:
    """No engine lives that was proven gone, and none comes later."""
    known = fleet.seen.assigned
    known.update((replica, a.boot) for replica, a in fleet.world.assignments.items())
    lost = {name for name in fleet.world.unreadable if name not in fleet.world.assignments}
    if any(name.startswith(NAMELESS) for name in lost):
        return  # it may be any of them: nobody has called it gone before its node was heard
    for id_, node in fleet.nodes.items():
        ghosts = {r for r in node.engines if r in known and r not in {*fleet.world.assignments, *lost}}
        assert not ghosts, f"{ghosts} live on {id_} and were called gone"


def what_serves_is_not_given_up_by_choice(fleet: SimFleet) -> None:
    """A replica that is withdrawn for a better one leaves enough behind: all that is wanted where its node is
    emptied, all but a tenth or one where it is replaced. What its node's silence takes away was nobody's choice, though
    another be kept instead."""
    world, before = fleet.world, fleet.seen
    wished = frozenset(r for r, a in world.assignments.items() if a.stop is not None)
    for replica in sorted((wished - before.wished) & before.published):
        assignment = world.assignments[replica]
        model = None if world.catalog is None else world.catalog.model(assignment.model)
        cause = None if assignment.stop is None else assignment.stop.cause
        if (
            model is None
            or _is_overdue(fleet, assignment)
            or _is_called_silent(fleet, f"node/{assignment.node}")
            or cause not in (StopCause.CHANGED, StopCause.RESTART, StopCause.DRAINED, StopCause.SURPLUS)
        ):
            continue
        unread = sum(1 for a in world.assignments.values() if a.unreadable and a.model == model.name)
        wanted = desired(world, model, fleet.clock_s) - unread
        least = wanted - (slack(wanted) if cause in (StopCause.CHANGED, StopCause.RESTART) else 0)
        left = sum(1 for r in world.table.endpoints if world.assignments[r].model == model.name)
        assert left >= least, f"{replica} is withdrawn ({cause}) and leaves {left} of {wanted}"
    before.wished, before.published = wished, frozenset(world.table.endpoints)


def _is_overdue(fleet: SimFleet, assignment: Assignment) -> bool:
    drain = fleet.world.wishes.drains.get(assignment.node)
    return drain is not None and drain.deadline_s is not None and fleet.clock_s >= drain.deadline_s


def _is_silent(fleet: SimFleet, target: str) -> bool:
    return target in fleet.cut or _is_called_silent(fleet, target)


def _is_called_silent(fleet: SimFleet, target: str) -> bool:
    """Whether the plane was told so, as it is not of what was only just cut off."""
    return fleet.eyes.levels.get(target, SilenceLevel.HEARD) is not SilenceLevel.HEARD


def whatever_is_not_done_has_a_reason(fleet: SimFleet) -> None:
    """Every replica that is wanted and does not run, or is not even decided, says why."""
    world = fleet.world
    if world.catalog is None or world.ending:
        return
    views = survey(world)
    alive: Counter[str] = Counter()
    for assignment in world.assignments.values():
        view = views.of(assignment.node)
        alive[assignment.model] += assignment.stop is None
        shown = view is None or view.state is not NodeState.HEALTHY or assignment.replica in view.rows
        if assignment.stop is None and not shown and not views_hold(fleet):
            assert f"replica/{assignment.replica}" in world.waiting, f"{assignment.replica} waits without a reason"
    for model in world.catalog.models:
        lacking = desired(world, model, fleet.clock_s) - alive[model.name]
        if lacking > 0 and f"model/{model.name}" not in world.waiting:
            raise AssertionError(f"{model.name} lacks {lacking} without a reason")


def views_hold(fleet: SimFleet) -> bool:
    return "fleet" in fleet.world.waiting


ALL = (
    no_device_is_used_twice,
    no_device_is_promised_twice,
    nothing_gives_way_to_its_equal,
    only_ready_replicas_are_published,
    no_port_leads_to_another_replica,
    every_start_happens_once,
    what_cannot_be_read_is_left_as_it_is,
    nothing_stops_before_traffic_has_left,
    no_router_sends_to_a_sleeper,
    what_is_called_gone_is_gone,
    what_serves_is_not_given_up_by_choice,
)
"""At every moment."""

AT_REST = (whatever_is_not_done_has_a_reason,)
"""Whenever nothing is left to do before something happens."""


# --- once faults have stopped ---


def all_is_well(fleet: SimFleet) -> None:
    """What is wanted runs, as the catalog has it, is published at every router, and nothing else is left."""
    _the_right_replicas_run(fleet)
    _routers_hold_the_table(fleet)
    _nodes_run_nothing_else(fleet)
    left = {node: items for node, items in fleet.world.outbox.items() if items}
    assert not left, f"still to be told: {left}"


def _the_right_replicas_run(fleet: SimFleet) -> None:
    world = fleet.world
    assert world.catalog is not None, "a fleet with a catalog"
    draft = Draft.over(world, fleet.clock_s, survey(world), "")
    for model in world.catalog.models:
        mine = [a for a in world.assignments.values() if a.model == model.name]
        wanted = desired(world, model, fleet.clock_s)
        why = world.waiting.get(f"model/{model.name}")
        assert len(mine) == wanted, f"{model.name} has {_ids(mine)}, wants {wanted}: {why and why.text}"
        unpublished = [a for a in mine if a.replica not in world.table.endpoints]
        assert not unpublished, f"{_ids(unpublished)} is not published"
        for assignment in mine:
            why_not = why_moves(draft, assignment, rolling.version(draft, model).prints)
            assert why_not is None, f"{assignment.replica} should not be there: {why_not}"
    strangers = [a for a in world.assignments.values() if world.catalog.model(a.model) is None]
    assert not strangers, f"{_ids(strangers)} is left of models that left"


def _ids(assignments: list[Assignment]) -> str:
    return ", ".join(f"{a.replica} ({'stopping' if a.stop else 'kept'})" for a in assignments) or "none"


def _routers_hold_the_table(fleet: SimFleet) -> None:
    for id_, router in fleet.routers.items():
        assert router.table.digest == fleet.world.table.digest, f"{id_} holds another table"


def _nodes_run_nothing_else(fleet: SimFleet) -> None:
    for id_, node in fleet.nodes.items():
        for replica, engine in node.engines.items():
            assert replica in fleet.world.assignments, f"{replica} is left over on {id_}"
            assert engine.state is EngineState.READY, f"{replica} is {engine.state} on {id_}"
        if node.token is not None:
            fence = compare(node.token, fleet.now_token)
            assert fence in (Fence.SAME, Fence.STALE), f"{id_} holds a token that was never given"
