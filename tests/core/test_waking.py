"""Sleep and waking: clients wake what sleeps, what nobody uses goes back to sleep, and nothing else does either."""

import random
from typing import Any

import pytest

from llmgw.ids import ModelName, NodeId, RouterId
from llmgw.waking import REST_S
from llmgw.wire import ModelState
from sim import faults, story
from sim.fleet import SimFleet
from sim.router import SimRouter

from .fleets import START_S, catalog, fleet, ids, model, published, running, state, why

M = ModelName("m")


def sleeper(name: str = "m", **fields: Any) -> dict[str, object]:
    return model(name, {"min": 0, "max": 1}, idle_timeout_s=60.0, **fields)


def router(f: SimFleet, name: str = "r1") -> SimRouter:
    return f.routers[RouterId(name)]


def two_routers(*models: dict[str, object]) -> SimFleet:
    f = fleet(routers=("r1", "r2"))
    f.catalog(catalog(f, *models))
    f.run(START_S * 2)
    return f


def asked(f: SimFleet, *names: str) -> None:
    router(f).ask(*names)
    f.settle()


def idle(f: SimFleet, name: str = "r1") -> None:
    router(f, name).rest()
    f.settle()


def test_a_sleeping_model_is_listed_and_runs_nowhere() -> None:
    f = running(sleeper())
    assert (state(f, "m"), ids(f, "m")) == ("asleep", set())


def test_a_request_wakes_its_model_once_however_long_it_waits() -> None:
    f = running(sleeper())
    asked(f, "m")
    assert state(f, "m") == "starting"
    [replica] = ids(f, "m")
    asked(f, "m")
    f.run(1)
    assert ids(f, "m") == {replica}
    f.run(START_S)
    assert (state(f, "m"), published(f, "m")) == ("ready", {replica})


def test_an_idle_model_goes_back_to_sleep_and_the_next_request_wakes_it_again() -> None:
    f = running(sleeper())
    seen = set()
    for _ in range(20):
        asked(f, "m")
        f.run(START_S * 2)
        [replica] = published(f, "m")
        seen.add(replica)
        idle(f)
        f.run(10)
        assert (state(f, "m"), ids(f, "m")) == ("asleep", set())
    assert len(seen) == 20, "one start for each wake"


@pytest.mark.parametrize("how", ["stop", "sleep"])
@pytest.mark.parametrize("slow_s", [0.0, 1.0])
def test_b33_every_request_of_twenty_cycles_is_served_at_whatever_phase_of_going_to_sleep_it_comes(
    how: str, slow_s: float
) -> None:
    """Asked for after 0, 0.5, 1 … seconds: asleep, being withdrawn, draining, stopping, stopped."""
    f = running(sleeper(idle=how), nodes="a")
    f.delay = lambda: slow_s
    asked(f, "m")
    f.run(START_S * 2 + 10 * slow_s)
    for turn in range(20):
        assert (state(f, "m"), len(published(f, "m"))) == ("ready", 1), f"cycle {turn}"
        router(f).asked = frozenset()
        idle(f)
        f.run(turn * 0.5)
        before = f.world.next_replica
        for replica in router(f).table.endpoints:  # not told yet: it serves this one, and the next one has to wait
            router(f).begin(replica)
            f.run(5)
            router(f).end(replica)
            f.run(5 + 4 * slow_s)
        asked(f, "m")
        f.run(START_S + f.nodes[NodeId("a")].stop_s + f.nodes[NodeId("a")].wake_s + 12 * slow_s)
        assert f.world.next_replica - before <= 1, "one start at most for each wake"
        assert sum(1 for a in f.world.assignments.values() if a.stop is None) == 1


def test_a_request_that_comes_while_the_model_is_withdrawn_takes_it_back() -> None:
    f = running(sleeper())
    asked(f, "m")
    f.run(START_S * 2)
    [replica] = published(f, "m")
    router(f).begin(replica)
    router(f).rest()
    f.settle()
    assert published(f, "m") == {replica}, "a request is in flight: it is not idle"
    router(f).end(replica)
    f.delay = lambda: 1.0  # the withdrawal is under way
    idle(f)
    assert state(f, "m") == "asleep"
    router(f).asked = frozenset({M})
    f.settle()
    f.run(START_S * 3)
    assert published(f, "m") == {replica}


def test_a_model_in_use_at_one_router_does_not_sleep() -> None:
    f = two_routers(sleeper())
    asked(f, "m")
    f.run(START_S * 2)
    idle(f, "r1")
    f.run(300)
    assert state(f, "m") == "ready"
    idle(f, "r2")
    f.run(10)
    assert state(f, "m") == "asleep"


def test_a_silent_router_neither_wakes_nor_keeps_awake() -> None:
    f = two_routers(sleeper("m"), sleeper("other"))
    asked(f, "m")
    f.run(START_S * 2)
    router(f, "r2").ask("other")
    f.cut.add("router/r2")
    f.run(30)
    assert state(f, "other") == "asleep", "it was cut off before it said so"
    idle(f, "r1")
    f.run(10)
    assert state(f, "m") == "asleep"


def test_without_any_live_router_everything_counts_as_in_use() -> None:
    f = running(sleeper())
    asked(f, "m")
    f.run(START_S * 2)
    f.cut.add("router/r1")
    f.run(30)
    router(f).rest()
    f.run(600)
    assert len(ids(f, "m")) == 1


def test_an_edit_that_lets_a_model_sleep_stops_it_only_once_it_was_idle_for_its_time() -> None:
    f = running(model("m", 1))
    [replica] = published(f, "m")
    f.catalog(catalog(f, sleeper()))
    f.run(START_S * 5)
    assert (state(f, "m"), published(f, "m")) == ("ready", {replica})
    assert router(f).table.models[M].idle_after_s == 60.0, "its routers watch for it from now on"
    idle(f)
    f.run(10)
    assert (state(f, "m"), ids(f, "m")) == ("asleep", set())
    asked(f, "m")
    f.run(START_S * 2)
    assert published(f, "m")


def test_such_an_edit_of_several_replicas_keeps_one_until_then() -> None:
    f = running(model("m", 3), nodes="abc")
    f.catalog(catalog(f, model("m", {"min": 0, "max": 3}, idle_timeout_s=60.0)))
    f.run(START_S * 5)
    assert len(published(f, "m")) == 1
    idle(f)
    f.run(10)
    assert ids(f, "m") == set()


def test_an_edit_to_zero_stops_at_once_where_no_idle_time_or_no_room_to_wake_is_left() -> None:
    for edited in (model("m", {"min": 0, "max": 1}), model("m", 0, idle_timeout_s=60.0)):
        f = running(model("m", 1))
        f.catalog(catalog(f, edited))
        f.run(START_S)
        assert published(f, "m") == set()


def test_an_edit_to_zero_keeps_what_an_operator_scaled_down() -> None:
    f = running(model("m", {"min": 1, "max": 2}))
    f.order("scale", model="m", replicas=1)
    f.catalog(catalog(f, sleeper()))
    f.run(START_S)
    assert f.world.wishes.wakes == {}
    assert len(published(f, "m")) == 1, "the order says one"


def test_only_what_was_woken_above_the_minimum_sleeps() -> None:
    f = running(model("m", {"min": 1, "max": 2}, idle_timeout_s=60.0))
    before = ids(f, "m")
    idle(f)
    f.run(600)
    assert ids(f, "m") == before
    assert f.world.table.models[M].idle_after_s is None, "no router has to watch for it"


def test_routers_are_told_what_to_watch_for_while_it_matters() -> None:
    f = running(sleeper())
    assert f.world.table.models[M].idle_after_s is None
    asked(f, "m")
    f.run(START_S * 2)
    assert f.world.table.models[M].idle_after_s == 60.0


def test_a_model_without_an_idle_time_stays_awake() -> None:
    f = running(model("m", {"min": 0, "max": 1}))
    asked(f, "m")
    f.run(START_S * 2)
    idle(f)
    f.run(600)
    assert state(f, "m") == "ready"


def test_no_request_changes_what_an_operator_scaled() -> None:
    f = running(sleeper())
    f.order("scale", model="m", replicas=0, for_s=120.0)
    asked(f, "m")
    f.run(60)
    assert (state(f, "m"), ids(f, "m")) == ("unavailable", set())
    f.run(61)
    assert state(f, "m") in ("starting", "ready"), "the order is over, and it is still asked for"


def test_a_model_scaled_up_by_order_does_not_sleep() -> None:
    f = running(sleeper())
    f.order("scale", model="m", replicas=1)
    f.run(START_S * 2)
    idle(f)
    f.run(600)
    assert state(f, "m") == "ready"


def test_b38_twenty_models_that_wake_at_once_share_two_devices_and_lose_no_wish() -> None:
    names = [f"m{i:02}" for i in range(20)]
    f = running(*(sleeper(n) for n in names), nodes="a", count=2)
    asked(f, *names)
    served: set[str] = set()
    for _ in range(20):
        f.run(START_S * 3)
        up = {n for n in names if state(f, n) == "ready"}
        assert len(up) <= 2
        served |= up
        idle(f)
    assert served == set(names)


def test_b36_a_model_that_cannot_start_is_tried_so_often_then_rests_until_it_is_asked_for_anew() -> None:
    f = running(sleeper(), nodes="a", policy={"max_attempts": 3})
    node = f.nodes[next(iter(f.nodes))]
    node.crash_starts = True
    asked(f, "m")
    router(f).asked = frozenset()  # the client goes away at once
    f.run(REST_S)
    assert len(f.world.failures[M]) == 3
    assert (state(f, "m"), ids(f, "m")) == ("unavailable", set())
    assert "given up" in why(f, "model/m")
    f.run(REST_S + 60)
    assert state(f, "m") == "asleep"
    assert len(f.world.failures[M]) == 3, "nobody asks, nothing is tried"
    node.crash_starts = False
    asked(f, "m")
    f.run(START_S * 2)
    assert state(f, "m") == "ready"


def test_requests_during_the_rest_start_nothing_and_those_that_outlast_it_do() -> None:
    f = running(sleeper(), nodes="a", policy={"max_attempts": 1})
    f.nodes[next(iter(f.nodes))].crash_starts = True
    asked(f, "m")
    f.run(60)
    assert state(f, "m") == "unavailable"
    f.run(REST_S - 100)
    assert len(f.world.failures[M]) == 1
    f.run(200)
    assert len(f.world.failures[M]) == 2


def test_a_model_that_is_gone_is_not_woken() -> None:
    f = running(sleeper())
    router(f).asked = frozenset({ModelName("nobody")})
    f.settle()
    assert not f.world.wishes.wakes


def test_an_idle_time_alone_changes_no_digest_of_a_table_row() -> None:
    f = running(model("m", 1))
    assert "idle_after_s" not in f.world.table.models[M].model_dump(exclude_defaults=True)
    assert f.world.table.models[M].state is ModelState.READY


NOT_TOLD = ("catalog", "bad version", "good version", "promote", "revert", "spoil record", "end spoilt")
"""Happenings that would take the sleeper out of the catalog, or that its operator has to end."""


@pytest.mark.parametrize("seed", range(10))
def test_whatever_goes_wrong_a_sleeper_wakes_when_it_is_asked_for_and_sleeps_again(seed: int) -> None:
    """Clients ask and stop asking all through a story of faults; no promise is broken, and afterwards it works."""
    rng, made = random.Random(seed), story.fleet(seed)
    start_s = made.now_s
    raw = faults.catalog(made, 0)
    nap = {"name": "nap", "engine": "stub", "args": ["nap"]}
    models = [*raw["models"], model("nap", {"min": 0, "max": 1}, devices=0, idle_timeout_s=30.0, profile=nap)]  # type: ignore[misc]
    made.catalog({**raw, "models": models})
    for happening in story.story(seed):
        if happening.what in NOT_TOLD:
            continue
        made.run(max(0.0, start_s + happening.at_s - made.now_s))
        faults.WHAT[happening.what](made, happening)
        for one in made.routers.values():
            if rng.random() < 0.4:
                one.ask("nap")
            elif rng.random() < 0.5:
                one.rest()
        made.settle()
    made.run(max(0.0, start_s + faults.TROUBLE_S - made.now_s))
    made.go_on()
    made.run(story.CALM_S)
    for one in made.routers.values():
        one.ask("nap")
    made.run(REST_S + story.CALM_S)
    assert state(made, "nap") == "ready"
    for one in made.routers.values():
        one.rest()
    made.run(60)
    assert (state(made, "nap"), ids(made, "nap")) == ("asleep", set())
