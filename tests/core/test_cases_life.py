"""Public incidents about the life of a replica, as scenes: states that lie or never end, stops, late packets."""

from dataclasses import replace

import pytest

from llmgw import views
from llmgw.ids import NodeId
from llmgw.recent import Recent
from llmgw.replica_state import ReplicaState
from llmgw.showing.scene import Scene
from llmgw.stopping import UNACKNOWLEDGED_LIMIT_S
from sim.fleet import SimFleet

from .fleets import catalog, fleet, ids, model, of, only, published, running, state, why

A, B = NodeId("a"), NodeId("b")


def shown(f: SimFleet, name: str) -> list[ReplicaState]:
    """The states that a person is shown of a model's replicas."""
    scene = Scene.of(f.world, f.now_s)
    return [scene.state(a) for a in of(f, name)]


def starts(f: SimFleet) -> int:
    return sum(len(node.starts) for node in f.nodes.values())


# --- B11: the state that is shown is the real one ------------------------------------------------------------------


def test_b11_an_engine_that_crashes_each_time_is_failed_with_its_exit_code_and_the_next_profile_is_tried() -> None:
    f = fleet("a")
    f.nodes[A].crash_args = frozenset({"bad"})
    two = [{"name": n, "engine": "stub", "args": [n], "accelerators": [{"count": 1}]} for n in ("bad", "good")]
    f.catalog(catalog(f, {"name": "m", "profiles": two}, policy={"max_attempts": 3}))
    f.run(60)
    assert starts(f) == 4, "three attempts, then the next profile"
    assert only(f, "m").profile == "good"
    one = fleet("a")
    one.nodes[A].crash_starts = True
    one.catalog(catalog(one, model("m"), policy={"max_attempts": 3}))
    one.run(4000)
    assert starts(one) == 3, "no endless restart"
    assert state(one, "m") == "unavailable"
    assert "failed 3 times in a row, last: the process ended, exit code 1" in why(one, "model/m")


def test_b11_a_lost_report_of_readiness_is_made_good_by_the_next_one() -> None:
    f = fleet("a")
    f.catalog(catalog(f, model("m")))
    f.cut = {"node/a"}
    f.run(4)
    assert published(f, "m") == set()
    f.cut = set()
    f.run(0.1)
    assert published(f, "m") == ids(f, "m") != set()
    assert starts(f) == 1


def test_b11_an_engine_removed_by_hand_is_withdrawn_and_started_once_more() -> None:
    f = running(model("m"), nodes="a")
    first = only(f, "m").replica
    del f.nodes[A].engines[first]
    f.nodes[A].revision += 1
    f.settle()
    assert first not in published(f, "m")
    f.run(20)
    assert (starts(f), published(f, "m")) == (2, ids(f, "m"))


# --- B15: limits, and failed is not for ever -----------------------------------------------------------------------


@pytest.mark.parametrize("mend", ["wake", "restart", "edit"])
def test_b15_what_was_given_up_is_tried_again_by_a_request_an_edit_or_an_order(mend: str) -> None:
    f = fleet("a")
    f.nodes[A].crash_starts = True
    f.catalog(catalog(f, model("m"), policy={"max_attempts": 2}))
    f.run(100)
    assert why(f, "model/m").startswith("failed")
    f.nodes[A].crash_starts = False
    if mend == "edit":
        f.catalog(catalog(f, model("m", args=["more"]), policy={"max_attempts": 2}))
    else:
        f.order(mend, **{"target" if mend == "restart" else "model": "m"})
    f.run(10)
    assert published(f, "m") == ids(f, "m") != set()


def test_b15_the_failed_process_is_gone_before_the_next_attempt() -> None:
    f = fleet("a", 1)
    f.nodes[A].crash_starts = True
    f.catalog(catalog(f, model("m")))
    for _ in range(400):
        f.run(0.25)
        assert len(f.nodes[A].engines) <= 1
    assert starts(f) > 2


# --- B16: waiting is quiet -----------------------------------------------------------------------------------------


def test_b16_a_week_of_waiting_for_a_place_costs_no_pass_and_its_reason_never_changes() -> None:
    f = running(*(model(f"m{i}", 1, 4) for i in range(10)), nodes="ab", count=2)
    f.run(60)
    passes, texts = f.passes, {k: w for k, w in f.world.waiting.items() if k.startswith("model/")}
    f.run(7 * 86_400)
    assert f.passes - passes <= 2
    assert {k: w for k, w in f.world.waiting.items() if k.startswith("model/")} == texts, "text and age stay"
    f.nodes[A].devices = fleet("a", 4).nodes[A].devices
    f.nodes[A].revision += 1
    f.run(10)
    assert len(f.world.table.endpoints) == 1, "it starts as soon as there is a place"


# --- B20: stopping what failed, or whose node is gone --------------------------------------------------------------


def test_b20_a_failed_replica_is_stopped_too_and_ends_only_with_proof() -> None:
    f = running(model("m"), nodes="a", count=1)
    first = only(f, "m")
    f.nodes[A].unkillable = True
    f.nodes[A].crash(first.replica)
    f.run(60)
    assert first.replica in ids(f, "m"), "its devices are not free while it may live"
    assert starts(f) == 1
    f.nodes[A].unkillable = False
    f.nodes[A].engines[first.replica].gone_at_s = f.now_s + 1
    f.run(20)
    assert first.replica not in ids(f, "m")
    assert published(f, "m") == ids(f, "m")


def test_b20_a_node_that_holds_something_leaves_only_when_it_is_empty() -> None:
    f = running(model("m"), nodes="ab")
    f.order("nodes-add", id="c", url="http://c:1")
    f.nodes[NodeId("c")] = fleet("c").nodes[NodeId("c")]
    f.catalog(catalog(f, model("m", 5, 1), nodes=[{"id": n, "url": f"http://{n}:1"} for n in "ab"]))
    f.run(20)
    assert any(a.node == "c" for a in of(f, "m"))
    f.order("nodes-remove", node="c")
    f.run(1)
    assert NodeId("c") in f.world.wishes.leaving
    f.catalog(catalog(f, model("m", 4, 1), nodes=[{"id": n, "url": f"http://{n}:1"} for n in "ab"]))
    f.run(30)
    assert NodeId("c") not in f.world.wishes.leaving
    assert not f.nodes[NodeId("c")].engines


def test_b20_a_node_forced_out_while_it_is_away_is_abandoned_and_settled_when_it_returns() -> None:
    f = running(model("k", 1, 1), nodes="ab", count=1)
    away = only(f, "k").node
    f.order("nodes-add", id="c", url="http://c:1")
    f.nodes[NodeId("c")] = fleet("c", 1).nodes[NodeId("c")]
    both = [{"id": n, "url": f"http://{n}:1"} for n in "ab"]
    f.catalog(catalog(f, model("k", 3, 1), nodes=both))
    f.run(20)
    old = next(a for a in of(f, "k") if a.node == "c")
    f.cut = {"node/c"}
    f.run(15)
    f.order("nodes-remove", node="c", force=True)
    f.catalog(catalog(f, model("k", 2, 1), nodes=both))
    f.run(100)
    assert len(published(f, "k")) == 2
    assert old.replica in f.nodes[NodeId("c")].engines, "nobody could tell it"
    assert NodeId("c") in f.world.wishes.leaving, "it is remembered"
    f.cut = set()
    f.run(40)
    assert not f.nodes[NodeId("c")].engines
    assert NodeId("c") not in f.world.wishes.leaving
    assert away in f.nodes


# --- B23: a stop that is ignored -----------------------------------------------------------------------------------


def test_b23_a_stop_goes_on_through_a_restart_and_past_its_limits_is_repeated_with_force_and_shown() -> None:
    f = running(model("m"), nodes="a", count=1)
    first = only(f, "m").replica
    f.nodes[A].stop_s = 1e6
    f.run(1)
    f.order("restart", target="m")
    f.run(20)
    commanded = f.world.assignments[first].stop
    f.carry_over()
    f.run(20)
    assert f.world.assignments[first].stop == commanded, "it goes on from where it was"
    f.run(400)
    assert first not in f.nodes[A].engines, "force ends it"
    f = running(model("m"), nodes="a", count=1)
    f.nodes[A].unkillable = True
    f.run(1)
    f.order("restart", target="m")
    f.run(500)
    [stuck] = [a for a in of(f, "m") if a.stop is not None]
    assert why(f, f"replica/{stuck.replica}").startswith("stuck: does not end")
    assert starts(f) == 1, "the device is never given away meanwhile"


# --- B27, B31: traffic leaves before the engine does ---------------------------------------------------------------


def test_b27_a_router_that_is_down_holds_a_stop_only_for_a_while_and_gets_the_whole_table_when_it_is_back() -> None:
    f = fleet("ab", routers=("r1", "r2"))
    limits = {"drain_limit_s": 10.0}
    f.catalog(catalog(f, model("m", {"min": 1, "max": 2}), policy=limits))
    f.order("scale", model="m", replicas=2)
    f.run(20)
    f.lose_replies = {"router/r2"}
    before = len(f.nodes[A].engines) + len(f.nodes[B].engines)
    f.order("scale", model="m", replicas=1)
    f.run(9)
    assert len(f.nodes[A].engines) + len(f.nodes[B].engines) == before, "r2 has not acknowledged the withdrawal"
    f.run(10 + UNACKNOWLEDGED_LIMIT_S)
    assert len(f.nodes[A].engines) + len(f.nodes[B].engines) == before - 1
    f.lose_replies = set()
    f.run(40)
    assert {r.table.digest for r in f.routers.values()} == {f.world.table.digest}


def test_b27_the_one_that_still_starts_is_given_up_before_the_one_that_serves() -> None:
    f = running(model("m", {"min": 1, "max": 2}), nodes="ab", count=1)
    serving = only(f, "m").replica
    f.order("scale", model="m", replicas=2)
    f.run(1)
    f.order("scale", model="m", replicas=1)
    f.run(20)
    assert published(f, "m") == {serving} == ids(f, "m")


def test_b31_the_last_model_that_leaves_leaves_an_empty_table_at_every_router() -> None:
    f = fleet("a", routers=("r1", "r2", "r3"))
    f.catalog(catalog(f, model("m")))
    f.run(10)
    f.cut = {"router/r3"}
    f.catalog(catalog(f))
    f.run(20)
    rows = {r.id: r.current for r in views.status(f.world, Recent(), f.now_s).routers}
    assert rows == {"r1": True, "r2": True, "r3": False}, "who has not confirmed is named"
    f.cut = set()
    f.run(40)
    assert all(not r.table.models and not r.table.endpoints for r in f.routers.values())


# --- B32: known and not ready is not unknown -----------------------------------------------------------------------


def test_b32_a_model_stays_known_with_its_aliases_whatever_became_of_it() -> None:
    for trouble in ("asleep", "starting", "no place", "lost", "failed"):
        f = fleet("abc", 1)
        bounds = {"min": 0, "max": 1} if trouble == "asleep" else 1
        f.nodes[A].crash_starts = f.nodes[B].crash_starts = f.nodes[NodeId("c")].crash_starts = trouble == "failed"
        f.catalog(catalog(f, model("m", bounds, 9 if trouble == "no place" else 1, aliases=["chat"])))
        if trouble == "lost":
            f.run(10)
            f.cut = {f"node/{only(f, 'm').node}"}
        f.run({"starting": 1, "lost": 15}.get(trouble, 100))
        row = next(iter(f.routers.values())).table.models["m"]  # type: ignore[index]  # a plain name
        assert row.aliases == ("chat",), trouble
        assert row.state != "ready", trouble


def test_b32_while_one_version_replaces_another_there_is_always_one_that_serves() -> None:
    f = running(model("m", args=["v1"]), nodes="ab", count=1)
    f.catalog(catalog(f, model("m", args=["v2"])))
    for _ in range(80):
        f.run(0.25)
        assert published(f, "m")


# --- B59: the call timed out and is still under way ----------------------------------------------------------------


def test_b59_a_start_whose_answer_is_lost_and_that_comes_again_late_makes_one_engine() -> None:
    f = fleet("ab", 1)
    f.catalog(catalog(f))
    f.delay = lambda: 45.0
    f.catalog(catalog(f, model("m")))
    f.run(30)
    f.delay = lambda: 0.0
    f.run(120)
    assert len(f.nodes[A].engines) + len(f.nodes[B].engines) == 1
    assert published(f, "m") == ids(f, "m")
    assert not f.world.failures, "what is not known is not a failure"


# --- B60: memory is lost, the fleet is not -------------------------------------------------------------------------


def test_b60_with_all_memory_lost_what_runs_is_adopted_and_nothing_is_doubled() -> None:
    f = running(model("m", 2), model("k"), nodes="ab")
    engines = {r for n in f.nodes.values() for r in n.engines}
    raw = f.catalog_raw
    blank = replace(fleet().world, epoch=9, settling_since_s=f.now_s)
    f.restore(blank)
    f.catalog(raw)  # type: ignore[arg-type]
    f.run(60)
    assert {r for n in f.nodes.values() for r in n.engines} == engines == set(f.world.assignments)
    assert starts(f) == len(engines)
