"""What the plane does, told as scenes over simulated nodes and routers."""

from dataclasses import replace
from itertools import pairwise

import pytest

from llmgw import batches, stopping
from llmgw.ids import ModelName, NodeId, ReplicaId, RouterId
from llmgw.plan import Plan
from llmgw.wire import RefusalCode, Token
from llmgw.world import Outgoing, OutgoingKind, StopCause, StopIntent
from sim.fleet import SimFleet

from .fleets import catalog, fleet, ids, model, of, only, places, published, running, state, why

R1 = RouterId("r1")


def shape(fleet: SimFleet, **changed: object) -> SimFleet:
    """The same fleet under a catalog with other models."""
    models = changed.pop("models")
    assert isinstance(models, list)
    fleet.catalog(catalog(fleet, *models, **changed))
    return fleet


# --- failures ------------------------------------------------------------------------------------------------------


def test_an_engine_that_died_is_withdrawn_at_once_and_the_first_time_restarted_at_once() -> None:
    f = running(model("m"))
    first = only(f, "m")
    f.nodes[first.node].crash(first.replica)
    f.settle()
    assert published(f, "m") == set()
    assert len(ids(f, "m") - {first.replica}) == 1
    f.run(10)
    assert published(f, "m") == ids(f, "m")
    assert first.replica not in ids(f, "m")


def test_failing_starts_are_tried_again_after_10_20_40_and_80_seconds_then_given_up() -> None:
    f = fleet("a")
    f.nodes[NodeId("a")].crash_starts = True
    f.catalog(catalog(f, model("m")))
    began: list[float] = []
    node = f.nodes[NodeId("a")]
    while f.now_s < 1_600:
        if len(node.starts) > len(began):
            began.append(f.now_s)
        f.run(0.5)
    gaps = [round(b - a) for a, b in pairwise(began)]
    assert gaps == [13, 23, 43, 83], "10·2ⁿ after each failure, which comes 3 s after the start"
    assert why(f, "model/m").startswith("failed: given up: p failed 5 times in a row")
    assert state(f, "m") == "unavailable"


def test_a_profile_that_keeps_failing_makes_room_for_the_next_at_once() -> None:
    f = fleet("a")
    f.nodes[NodeId("a")].crash_starts = True
    two = [{"name": n, "engine": "stub", "args": [n], "accelerators": [{"count": 1}]} for n in ("best", "spare")]
    f.catalog(catalog(f, {"name": "m", "profiles": two}, policy={"max_attempts": 2}))
    f.run(12)
    f.run(5)
    assert only(f, "m").profile == "spare", "the second failure with `best` came at 16 s"
    f.nodes[NodeId("a")].crash_starts = False
    f.run(20)
    assert published(f, "m") == ids(f, "m")


def test_an_edit_or_a_restart_ends_the_back_off() -> None:
    for mend in ("edit", "restart", "wake"):
        f = fleet("a")
        f.nodes[NodeId("a")].crash_starts = True
        f.catalog(catalog(f, model("m")))
        f.run(150)
        f.nodes[NodeId("a")].crash_starts = False
        assert published(f, "m") == set()
        if mend == "edit":
            f.catalog(catalog(f, model("m", args=["other"])))
        else:
            f.order(mend, **{"target" if mend == "restart" else "model": "m"})
        f.run(4)
        assert published(f, "m") == ids(f, "m") != set(), mend


def test_one_crash_looping_replica_does_not_give_up_a_profile_that_serves_elsewhere() -> None:
    f = running(model("m", 2, 2), nodes="ab")
    f.nodes[NodeId("a")].crash_starts = True
    [bad] = [a for a in of(f, "m") if a.node == "a"]
    f.nodes[NodeId("a")].crash(bad.replica)
    f.run(900)
    assert "failed:" not in why(f, "model/m")
    f.nodes[NodeId("a")].crash_starts = False
    f.run(320)
    assert len(published(f, "m")) == 2


# --- refusals ------------------------------------------------------------------------------------------------------


def test_a_refusal_is_a_wait_and_never_a_failed_attempt() -> None:
    f = fleet("a")
    f.nodes[NodeId("a")].refuses = RefusalCode.NO_PORT
    f.catalog(catalog(f, model("m")))
    f.run(200)
    assert not f.world.failures
    assert "a refuses" in why(f, f"replica/{only(f, 'm').replica}")
    f.nodes[NodeId("a")].refuses = None
    f.run(10)
    assert published(f, "m") == ids(f, "m")
    assert only(f, "m").attempt == 1


def test_what_was_refused_is_not_kept_for_being_taken_back() -> None:
    f = fleet("a")
    f.nodes[NodeId("a")].refuses = RefusalCode.NOT_FOUND
    f.catalog(catalog(f, model("m"), model("k", 0)))
    f.run(20)
    f.catalog(catalog(f, model("k", 0)))
    f.run(5)
    assert ids(f, "m") == set()


def test_what_no_node_takes_asks_each_once_and_then_stays_where_it_is_for_long() -> None:
    f = fleet("abc")
    for node in f.nodes.values():
        node.refuses = RefusalCode.NOT_FOUND
    f.catalog(catalog(f, model("m")))
    stays: list[NodeId] = []
    for _ in range(60):
        f.run(10)
        here = only(f, "m").node
        stays += [] if stays[-1:] == [here] else [here]
    assert sorted(stays) == ["a", "b", "c"]
    f.nodes[stays[0]].refuses = None  # what it lacked is there now
    f.run(800)
    assert only(f, "m").node == stays[0]
    assert published(f, "m") == ids(f, "m")


def test_a_start_that_is_refused_for_long_goes_to_a_node_that_takes_it() -> None:
    f = fleet("ab")
    f.nodes[NodeId("a")].refuses = RefusalCode.NO_PORT
    f.catalog(catalog(f, model("m")))
    f.run(20)
    assert places(f, "m") == ["a"]
    f.run(20)
    assert places(f, "m") == ["b"]
    assert published(f, "m") == ids(f, "m")


# --- nodes ---------------------------------------------------------------------------------------------------------


def test_a_suspect_node_loses_its_routes_and_nothing_is_moved_before_it_is_lost() -> None:
    f = running(model("m"), nodes="abc")
    first = only(f, "m")
    f.cut = {f"node/{first.node}"}
    f.run(9)
    assert published(f, "m") == {first.replica}
    f.run(3)
    assert published(f, "m") == set()
    assert ids(f, "m") == {first.replica}
    f.cut = set()
    f.run(1)
    assert published(f, "m") == {first.replica}, "the same process serves again"


def test_a_lost_nodes_replicas_are_placed_elsewhere_and_the_old_ones_stopped_when_it_is_back() -> None:
    f = running(model("m"), nodes="abc")
    first = only(f, "m")
    f.cut = {f"node/{first.node}"}
    f.run(61)
    assert len(ids(f, "m")) == 2
    f.run(10)
    [other] = published(f, "m")
    assert other != first.replica
    assert first.replica in f.nodes[first.node].engines
    f.cut = set()
    f.run(5)
    assert ids(f, "m") == {other}
    assert first.replica not in f.nodes[first.node].engines


def test_a_lost_node_keeps_its_replicas_while_there_is_no_place_elsewhere() -> None:
    f = running(model("m", 2, 2), nodes="ab")
    f.cut = {"node/a"}
    f.run(300)
    assert [a.stop for a in of(f, "m")] == [None, None]
    assert why(f, "model/m").startswith("no_place")
    f.cut = set()
    f.run(1)
    assert len(published(f, "m")) == 2


def test_one_lost_node_of_three_is_replaced_and_three_of_eight_are_braked() -> None:
    small = running(model("m"), nodes="abc")
    small.cut = {f"node/{only(small, 'm').node}"}
    small.run(62)
    assert "fleet" not in small.world.waiting
    assert len(ids(small, "m")) == 2

    f = running(model("m", 8, 1), nodes="abcdefgh")
    before = published(f, "m")
    f.cut = {"node/a", "node/b", "node/c"}
    f.run(200)
    assert why(f, "fleet").startswith("brake: 3 of 8 nodes")
    assert published(f, "m") == before == ids(f, "m")


def test_the_brake_ends_when_enough_answer_or_people_know_better() -> None:
    f = running(model("m", 8, 1), nodes="abcdefgh")
    f.cut = {"node/a", "node/b", "node/c"}
    f.run(70)
    f.order("confirm-lost", node="a")
    f.run(10)
    assert "fleet" not in f.world.waiting, "two of eight are no sign of a sick network"
    assert len(published(f, "m")) == 8
    assert not {"a", "b", "c"} & {a.node for a in of(f, "m") if a.stop is None}


def test_a_whole_zone_that_falls_silent_is_no_sick_observer() -> None:
    zones = dict(zip("abcdefgh", "xxxyyyyy", strict=True))
    f = running(model("m", 4, 1), nodes="abcdefgh", zones=zones)
    f.cut = {"node/a", "node/b", "node/c"}
    f.run(75)
    assert "fleet" not in f.world.waiting
    assert len(published(f, "m")) == 4


def test_a_silent_majority_is_the_observers_sickness() -> None:
    f = running(model("m", 8, 1), nodes="abcdefgh")
    before = published(f, "m")
    f.cut = {f"node/{n}" for n in "abcdef"}
    f.run(300)
    assert published(f, "m") == before
    assert ids(f, "m") == before


def test_a_rebooted_node_holds_nothing_and_is_given_its_share_anew() -> None:
    f = running(model("m", 2), nodes="ab")
    old = ids(f, "m")
    f.nodes[NodeId("a")].reboot()
    f.run(5)
    assert len(published(f, "m")) == 2
    assert len(ids(f, "m") & old) == 1
    assert not f.world.failures, "a reboot is not the engine's failure"


def test_another_machine_under_a_known_name_is_set_aside_until_people_decide() -> None:
    f = running(model("m"), nodes="abc")
    node = only(f, "m").node
    stranger = fleet(node, routers=()).nodes[node]
    stranger.devices = tuple(d.model_copy(update={"id": f"{d.id}-other"}) for d in stranger.devices)
    stranger.machine, stranger.boot, stranger.instance = "another", "boot-9", "agent-9"
    before, f.nodes[node] = published(f, "m"), stranger
    f.run(30)
    assert published(f, "m") == before, "its reports judge nothing"
    assert f.world.waiting[f"node/{node}"].code == "set_aside"
    assert not stranger.starts
    f.order("confirm-lost", node=node)
    f.run(10)
    assert f"node/{node}" not in f.world.waiting
    assert published(f, "m") == ids(f, "m")
    assert published(f, "m") != before


def test_one_machine_under_two_names_is_told_nothing_and_keeps_its_routes() -> None:
    f = running(model("m", 3), nodes="abc")
    f.nodes[NodeId("a")].machine = f.nodes[NodeId("b")].machine = "the same"
    before = published(f, "m")
    f.run(30)
    assert "also reported by b" in why(f, "node/a")
    assert published(f, "m") == before


def test_a_node_whose_agent_is_another_one_gets_nothing_and_can_be_taken_out() -> None:
    f = running(model("m"), nodes="a", count=1)
    stranger = fleet("b", routers=()).nodes[NodeId("b")]
    stranger.says, f.nodes[NodeId("b")] = "c", stranger
    f.order("nodes-add", id="b", url="http://b:1")
    f.run(5)
    f.catalog({**catalog(f, model("m", 2)), "nodes": [{"id": "a", "url": "http://a:1"}]})
    f.run(10)
    assert not stranger.starts
    assert f.world.waiting["node/b"].code == "set_aside"
    assert "its agent says that it is node c" in why(f, "node/b")
    assert why(f, "model/m")
    f.order("nodes-remove", node="b")
    f.run(5)
    assert "node/b" not in f.world.waiting


def test_a_second_name_of_a_machine_is_taken_out_and_the_first_goes_on() -> None:
    f = running(model("m"), nodes="a")
    again = fleet("z", routers=()).nodes[NodeId("z")]
    again.machine, again.engines, again.token = "machine-a", f.nodes[NodeId("a")].engines, f.nodes[NodeId("a")].token
    f.nodes[NodeId("z")] = again
    f.order("nodes-add", id="z", url="http://z:1")
    f.run(10)
    assert "also reported by z" in why(f, "node/a")
    f.order("nodes-remove", node="z")
    f.run(5)
    assert not f.world.wishes.leaving
    assert "node/a" not in f.world.waiting
    assert published(f, "m") == ids(f, "m")


# --- orders --------------------------------------------------------------------------------------------------------


def test_a_drained_node_is_emptied_without_a_gap() -> None:
    f = running(model("m", 2, 1), nodes="abc")
    node = of(f, "m")[0].node
    f.order("drain", node=node)
    f.run(20)
    assert node not in places(f, "m")
    assert len(published(f, "m")) == 2


def test_a_drain_waits_for_a_place_until_its_deadline() -> None:
    f = running(model("m", 1, 2), nodes="a")
    f.order("drain", node="a", deadline_s=100.0)
    f.run(90)
    assert published(f, "m") == ids(f, "m")
    f.run(20)
    assert ids(f, "m") == set()


def test_scaling_up_and_down_keeps_what_is_ready() -> None:
    f = running(model("m", {"min": 1, "max": 4}), nodes="ab")
    first = only(f, "m").replica
    f.order("scale", model="m", replicas=4)
    f.run(10)
    assert len(published(f, "m")) == 4
    f.order("scale", model="m", replicas=None)
    f.run(10)
    assert ids(f, "m") == {first}, "the oldest of equals stays"


def test_a_scale_for_a_while_ends_by_itself() -> None:
    f = running(model("m", {"min": 1, "max": 2}))
    f.order("scale", model="m", replicas=2, for_s=60.0)
    f.run(10)
    assert len(ids(f, "m")) == 2
    f.run(60)
    assert len(ids(f, "m")) == 1
    assert not f.world.wishes.scales


def test_a_sleeping_model_wakes_when_asked_and_sleeps_when_scaled_to_zero() -> None:
    f = running(model("m", {"min": 0, "max": 1}))
    assert (state(f, "m"), ids(f, "m")) == ("asleep", set())
    f.order("wake", model="m")
    assert state(f, "m") == "starting"
    f.run(5)
    assert state(f, "m") == "ready"
    f.order("scale", model="m", replicas=0)
    f.run(5)
    assert (state(f, "m"), ids(f, "m")) == ("unavailable", set()), "the last order counts, and no request changes it"


def test_a_restart_replaces_every_replica_without_a_gap() -> None:
    f = running(model("m", 2), nodes="ab")
    old = ids(f, "m")
    f.run(10)
    f.order("restart", target="m")
    f.run(30)
    assert not ids(f, "m") & old
    assert len(published(f, "m")) == 2


# --- edits ---------------------------------------------------------------------------------------------------------


def test_a_model_that_left_is_withdrawn_at_once_and_stopped_after_the_grace() -> None:
    f = running(model("m"), model("k"))
    old = only(f, "m").replica
    shape(f, models=[model("k")])
    assert published(f, "m") == set()
    assert ModelName("m") not in f.routers[R1].table.models
    f.run(29)
    assert ids(f, "m") == {old}
    f.run(5)
    assert ids(f, "m") == set()


def test_a_model_taken_back_within_the_grace_starts_and_stops_nothing() -> None:
    f = running(model("m"), model("k"))
    starts = [list(n.starts) for n in f.nodes.values()]
    old = only(f, "m").replica
    shape(f, models=[model("k")])
    f.run(20)
    shape(f, models=[model("m"), model("k")])
    f.run(60)
    assert published(f, "m") == {old}
    assert [n.starts for n in f.nodes.values()] == starts


def test_a_stop_that_was_commanded_is_never_taken_back() -> None:
    f = running(model("m", {"min": 1, "max": 2}))
    f.order("scale", model="m", replicas=2)
    f.run(10)
    for node in f.nodes.values():
        node.stop_s = 50.0
    f.order("scale", model="m", replicas=1)
    f.run(1)
    [stopped] = [a for a in of(f, "m") if a.stop is not None]
    f.order("scale", model="m", replicas=2)
    f.run(10)
    assert stopped.replica not in published(f, "m")
    assert len(published(f, "m")) == 2


def test_a_wish_cancels_a_stop_that_waits_for_requests_in_flight() -> None:
    f = running(model("m", {"min": 1, "max": 2}))
    f.order("scale", model="m", replicas=2)
    f.run(10)
    for replica in published(f, "m"):
        f.routers[R1].begin(replica)
    before = ids(f, "m")
    f.order("scale", model="m", replicas=1)
    f.run(30)
    assert len(published(f, "m")) == 1
    f.order("scale", model="m", replicas=2)
    f.run(1)
    assert published(f, "m") == before == ids(f, "m")


def test_requests_in_flight_hold_a_stop_until_they_end_or_the_limit() -> None:
    for ends in (True, False):
        f = running(model("m"), model("k"), policy={"removal_grace_s": 0.0, "drain_limit_s": 50.0})
        [replica] = published(f, "m")
        f.routers[R1].begin(replica)
        shape(f, models=[model("k")], policy={"removal_grace_s": 0.0, "drain_limit_s": 50.0})
        f.run(20)
        assert "in flight at r1" in why(f, f"replica/{replica}")
        if ends:
            f.routers[R1].end(replica)
        f.run(5)
        assert (ids(f, "m") == set()) is ends
        f.run(30)
        assert ids(f, "m") == set()


@pytest.mark.parametrize(
    ("cause", "waited_s", "left_s"),
    [
        (StopCause.SURPLUS, 0.0, 50.0),
        (StopCause.CHANGED, 20.0, 30.0),
        (StopCause.REMOVED, 70.0, 0.0),
        (StopCause.FAILED, 0.0, 0.0),
        (StopCause.REPLACED, 0.0, 0.0),
    ],
)
def test_an_engine_may_go_on_with_what_no_router_knows_of_for_what_is_left_of_its_limit(
    cause: StopCause, waited_s: float, left_s: float
) -> None:
    f = running(model("m"), policy={"drain_limit_s": 50.0})
    assignment = only(f, "m")
    assert stopping.drain_left_s(f.world, assignment) == 0.0, "it is not to be stopped"
    stop = StopIntent(cause, "", f.now_s, 1, commanded=True, commanded_s=f.now_s + waited_s)
    stopped = replace(assignment, stop=stop)
    assert stopping.drain_left_s(f.world, stopped) == left_s
    outgoing = (Outgoing(OutgoingKind.STOP, assignment.replica),)
    world = replace(f.world, assignments={assignment.replica: stopped}, outbox={assignment.node: outgoing})
    call = batches.for_node(world, assignment.node)
    assert call is not None
    assert [order.drain_s for order in call.stops] == [left_s]


def test_a_stop_waits_for_a_router_that_came_back_with_an_older_table() -> None:
    """What it once acknowledged says nothing of what it picks now."""
    f = running(model("m"), model("k"), policy={"removal_grace_s": 5.0})
    [replica] = published(f, "m")
    router = f.routers[R1]
    older, token = router.table, router.token
    shape(f, models=[model("k")], policy={"removal_grace_s": 5.0})
    assert replica not in router.table.endpoints, "withdrawn at once, stopped later"
    f.run(4.9)
    f.delay = lambda: 1.0
    router.table, router.token = older, token
    router.restart()
    router.begin(replica)
    f.run(0.5)
    assert "until r1 has taken it out" in why(f, f"replica/{replica}")
    f.run(30)
    assert "in flight at r1" in why(f, f"replica/{replica}")
    router.end(replica)
    f.run(5)
    assert ids(f, "m") == set()


def test_what_means_nothing_to_a_running_engine_restarts_nothing() -> None:
    f = running(model("m", profile={"weight": 10}))
    starts = [list(n.starts) for n in f.nodes.values()]
    edited = model("m", aliases=["chat"], priority=7, profile={"weight": 99, "stop_limit_s": 5.0})
    shape(f, models=[edited])
    f.run(30)
    assert [n.starts for n in f.nodes.values()] == starts
    [endpoint] = f.routers[R1].table.endpoints.values()
    assert (endpoint.models, endpoint.weight) == (("m", "chat"), 99)


def test_a_changed_model_starts_first_where_there_is_a_place() -> None:
    f = running(model("m", 2), nodes="ab")
    old = ids(f, "m")
    shape(f, models=[model("m", 2, args=["v2"])])
    f.run(1)
    assert published(f, "m") == old
    assert len(ids(f, "m")) == 3, "one at a time"
    f.run(20)
    assert len(published(f, "m")) == 2
    assert not published(f, "m") & old


def test_a_changed_model_stops_first_where_there_is_none_one_at_a_time() -> None:
    f = running(model("m", 2, 2), nodes="ab")
    shape(f, models=[model("m", 2, 2, args=["v2"])])
    least = 2
    for _ in range(30):
        f.run(0.5)
        least = min(least, len(published(f, "m")))
    assert least == 1
    assert len(published(f, "m")) == 2
    assert {a.attempt for a in of(f, "m")} == {1}


def test_an_edit_that_fits_nowhere_does_not_stop_what_runs() -> None:
    f = running(model("m", 1, 2), nodes="a")
    old = ids(f, "m")
    shape(f, models=[model("m", 1, 2, profile={"accelerators": [{"count": 3}]})])
    f.run(300)
    assert published(f, "m") == old == ids(f, "m")
    assert why(f, "model/m").startswith("no_place: p needs 3 × any device")


def test_a_new_version_that_fails_keeps_the_old_one_serving() -> None:
    f = running(model("m"), nodes="ab")
    old = ids(f, "m")
    for node in f.nodes.values():
        node.crash_starts = True
    shape(f, models=[model("m", args=["v2"])])
    f.run(600)
    assert published(f, "m") == old
    assert why(f, "model/m").startswith("rolled_back: the last good version runs: the new version failed 5 times")


def test_an_alias_moves_only_when_its_new_owner_is_ready_and_in_one_table() -> None:
    f = running(model("old", aliases=["chat"]), nodes="ab")
    shape(f, models=[model("old"), model("new", aliases=["chat"])])
    f.run(1)
    assert published(f, "chat") == ids(f, "old")
    f.run(5)
    assert published(f, "chat") == ids(f, "new")
    assert f.routers[R1].table.models[ModelName("old")].aliases == ()


def test_many_long_names_on_many_endpoints_come_in_plans_that_fit_into_a_payload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f = running(model("m", 16), nodes="abcdefgh")
    sizes: list[int] = []
    merge = SimFleet._merge

    def measured(fleet: SimFleet, plan: Plan) -> None:
        sizes.append(len(plan.model_dump_json()))
        merge(fleet, plan)

    monkeypatch.setattr(SimFleet, "_merge", measured)
    large = [f"{i:03}" + "x" * 120 for i in range(500)]
    shape(f, models=[model("m", 16, aliases=large)])
    f.settle()
    assert published(f, "m") == ids(f, "m")
    assert all(len(e.models) == 501 for e in f.world.table.endpoints.values())
    assert max(sizes) < 256 * 1024


def test_a_better_profile_that_becomes_possible_moves_nothing() -> None:
    two = [
        {"name": "fast", "engine": "stub", "args": ["f"], "accelerators": [{"count": 1}]},
        {"name": "slow", "engine": "stub", "args": ["s"]},
    ]
    f = running(model("k", 1, 2), {"name": "m", "profiles": two}, nodes="a")
    assert only(f, "m").profile == "slow"
    shape(f, models=[{"name": "m", "profiles": two}])
    f.run(60)
    assert only(f, "m").profile == "slow"


# --- devices -------------------------------------------------------------------------------------------------------


def test_a_claim_on_devices_being_released_waits_for_proof() -> None:
    f = running(model("m", 1, 2), nodes="a")
    f.nodes[NodeId("a")].stop_s = 20.0
    shape(f, models=[model("k", 1, 2)], policy={"removal_grace_s": 0.0})
    f.run(10)
    assert "still being released by m-0" in why(f, f"replica/{only(f, 'k').replica}")
    assert f.nodes[NodeId("a")].starts == ["m-0"]
    f.run(20)
    assert published(f, "k") == ids(f, "k")


def test_the_higher_priority_takes_the_last_place_and_the_other_says_what_it_lacks() -> None:
    f = fleet("a", 2)
    f.catalog(catalog(f, model("low", 1, 2), model("high", 1, 2, priority=9)))
    f.run(10)
    assert published(f, "high") == ids(f, "high") != set()
    assert why(f, "model/low") == "no_place: p needs 2 × any device in pool default: 1 node with 0 free"


def test_no_more_replicas_load_on_a_node_than_it_may() -> None:
    f = fleet("a", 4)
    f.catalog(catalog(f, model("m", 4), policy={"max_loading_per_node": 2}))
    assert len(f.nodes[NodeId("a")].engines) == 2
    f.run(2)
    assert len(f.nodes[NodeId("a")].engines) == 2
    f.run(2)
    assert len(f.nodes[NodeId("a")].engines) == 4


def test_an_engine_that_nobody_claims_keeps_its_device_to_itself() -> None:
    f = running(model("m", 1, 2), nodes="a")
    f.restore(replace(fleet("a").world, epoch=6))
    f.catalog(catalog(f, model("k", 1, 1)))
    f.run(70)
    assert why(f, "model/k").endswith("1 node with 0 free, 2 held by engines that no assignment claims")
    assert list(f.nodes[NodeId("a")].engines) == ["m-0"], "shown, never stopped"


# --- memory --------------------------------------------------------------------------------------------------------


def test_while_it_settles_nothing_starts_before_every_node_was_heard() -> None:
    f = fleet("ab")
    f.cut = {"node/b"}
    f.catalog(catalog(f, model("m")))
    assert why(f, "fleet") == "hold: settling: waiting to hear every node first"
    f.run(30)
    assert not f.world.assignments
    f.cut = set()
    f.run(1)
    assert f.world.assignments


def test_a_fleet_without_memory_adopts_what_runs_as_the_catalog_says() -> None:
    f = running(model("m", 2), nodes="ab")
    running_now = ids(f, "m")
    f.restore(replace(fleet("ab").world, epoch=6))
    f.catalog(catalog(f, model("m", 2)))
    f.run(70)
    assert ids(f, "m") == running_now == published(f, "m")
    assert [len(n.starts) for n in f.nodes.values()] == [1, 1]


def test_what_was_decided_away_is_stopped_after_a_grace() -> None:
    f = running(model("m"), nodes="a")
    f.restore(replace(f.world, assignments={}, sent={}, table=fleet().world.table, seen={}, silence={}, outbox={}))
    f.catalog(catalog(f, model("k", 1, 0)))
    f.run(5)
    assert "m-0" in f.nodes[NodeId("a")].engines
    f.run(10)
    assert "m-0" not in f.nodes[NodeId("a")].engines


def test_after_a_restored_backup_nothing_newer_is_stopped_and_numbers_go_on_past_it() -> None:
    f = running(model("m"), nodes="ab")
    backup = f.world
    f.order("scale", model="m", replicas=None)
    shape(f, models=[model("m"), model("new")])
    f.run(10)
    [new] = ids(f, "new")
    f.restore(replace(backup, seen={}, silence={}, outbox={}, calls={}))
    shape(f, models=[model("m"), model("k")])
    f.run(30)
    assert new in {r for n in f.nodes.values() for r in n.engines}, "newer than our memory: shown"
    assert f.world.seq > 1_000
    assert published(f, "k") == ids(f, "k") != set()


def test_a_fenced_plane_only_watches_until_it_is_told_to_take_over() -> None:
    f = running(model("m"), nodes="ab")
    other = Token(installation="i", fleet="f", epoch=9, seq=3)
    for node in f.nodes.values():
        node.token = other
    f.routers[R1].token = other
    shape(f, models=[model("m"), model("k")])
    f.run(10)
    assert f.world.fenced_by == other
    assert why(f, "fleet").startswith("hold: another plane commands this fleet (installation i, epoch 9)")
    before = [list(n.starts) for n in f.nodes.values()]
    f.run(100)
    assert [n.starts for n in f.nodes.values()] == before
    f.order("takeover")
    f.run(10)
    assert f.world.epoch == 10
    assert published(f, "k") == ids(f, "k") != set()


def test_carrying_over_changes_nothing() -> None:
    f = running(model("m", 2), model("k"))
    starts, table = [list(n.starts) for n in f.nodes.values()], f.world.table.digest
    f.carry_over()
    f.run(100)
    assert [n.starts for n in f.nodes.values()] == starts
    assert f.world.table.digest == table


def test_carrying_over_does_not_forget_requests_in_flight() -> None:
    """The first plan of a run comes before its first observation: what a stop waits for has to be carried."""
    f = running(model("m"), model("k"), policy={"removal_grace_s": 0.0, "drain_limit_s": 50.0})
    [replica] = published(f, "m")
    f.routers[R1].begin(replica)
    shape(f, models=[model("k")], policy={"removal_grace_s": 0.0, "drain_limit_s": 50.0})
    f.run(5)
    f.carry_over()
    f.run(20)
    assert "in flight at r1" in why(f, f"replica/{replica}")
    assert ids(f, "m") == {replica}
    f.routers[R1].end(replica)
    f.run(5)
    assert ids(f, "m") == set(), "what was carried gives way to what is seen"


def test_a_node_not_heard_since_carrying_over_keeps_its_published_routes() -> None:
    f = running(model("m", 3), nodes="abc")
    before = published(f, "m")
    f.cut = {"node/a"}
    f.carry_over()
    f.run(5)
    assert published(f, "m") == before


# --- the end -------------------------------------------------------------------------------------------------------


def test_an_ending_fleet_withdraws_drains_and_stops_everything_once() -> None:
    f = running(model("m", 2), model("k"))
    [busy] = published(f, "k")
    f.routers[R1].begin(busy)
    f.world = replace(f.world, ending=True)
    f.run(10)
    assert not f.routers[R1].table.models
    assert not f.routers[R1].table.endpoints
    assert set(f.world.assignments) == {busy}
    f.routers[R1].end(busy)
    f.run(5)
    assert not f.world.assignments
    assert not any(n.engines for n in f.nodes.values())
    assert f.ended


def test_an_ending_fleet_without_replicas_still_tells_its_routers() -> None:
    f = running(model("m", {"min": 0, "max": 1}))
    assert f.routers[R1].table.models
    f.cut = {"router/r1"}
    f.world = replace(f.world, ending=True)
    f.settle()
    still_there = f.ended
    assert not still_there
    f.cut = set()
    f.run(5)
    assert f.ended
    assert not f.routers[R1].table.models


def test_a_replica_that_nobody_was_told_of_is_dropped_without_a_stop() -> None:
    f = fleet("a", 4)
    f.catalog(catalog(f, model("m", {"min": 1, "max": 4}), policy={"max_loading_per_node": 1}))
    f.order("scale", model="m", replicas=4)
    assert len(ids(f, "m")) == 4
    f.order("scale", model="m", replicas=1)
    assert len(ids(f, "m")) == 1
    assert f.nodes[NodeId("a")].starts == [ReplicaId("m-0")]
