"""`idle: sleep`: an idle engine sleeps where it is, keeps its place until another lacks one, and wakes when asked for.

`sim.promises` holds at every step that no router, however old its table, sends to a sleeper.
"""

import random
from dataclasses import replace
from typing import Any

import pytest

from llmgw import carry
from llmgw.carry import Seed
from llmgw.catalog import Catalog
from llmgw.fingerprint import fingerprint
from llmgw.foresight import foresee
from llmgw.ids import ModelName, NodeId, RouterId
from llmgw.recent import Recent
from llmgw.rendering import render
from llmgw.replica_state import ReplicaState
from llmgw.showing.phases import Phase
from llmgw.validation import check
from llmgw.views import explain, phase, replicas
from sim.fleet import SimFleet
from sim.node import Engine
from sim.router import SimRouter

from .fleets import START_S, catalog, fleet, ids, model, only, published, running, state, why

IDLE_S = 60.0


def sleeper(name: str = "m", **fields: Any) -> dict[str, object]:
    return model(name, **{"replicas": {"min": 0, "max": 2}, "idle_timeout_s": IDLE_S, "idle": "sleep", **fields})


def router(f: SimFleet, name: str = "r1") -> SimRouter:
    return f.routers[RouterId(name)]


def engine(f: SimFleet, name: str = "m") -> Engine:
    a = only(f, name)
    return f.nodes[a.node].engines[a.replica]


def ask(f: SimFleet, name: str = "m") -> None:
    router(f).ask(name)
    f.settle()


def answer(f: SimFleet) -> None:
    router(f).asked = frozenset()
    router(f).revision += 1
    f.settle()


def rest(f: SimFleet) -> None:
    for one in f.routers.values():
        one.rest()
    f.settle()


def awake(*models: dict[str, object], **fields: Any) -> SimFleet:
    f = running(*(models or (sleeper(),)), **fields)
    ask(f)
    f.run(START_S * 2)
    answer(f)
    assert published(f, "m") == ids(f, "m") != set()
    return f


def asleep(*models: dict[str, object], **fields: Any) -> SimFleet:
    f = awake(*models, **fields)
    rest(f)
    f.run(1)
    assert engine(f).asleep
    return f


def shown(f: SimFleet) -> list[ReplicaState]:
    return [row.state for row in replicas(f.world, f.clock_s).replicas]


def test_an_idle_model_sleeps_where_it_is_and_a_request_wakes_the_same_engine() -> None:
    f = awake()
    [replica] = ids(f, "m")
    starts = sum(len(node.starts) for node in f.nodes.values())
    for _ in range(10):
        rest(f)
        f.run(5)
        assert (state(f, "m"), ids(f, "m"), published(f, "m")) == ("asleep", {replica}, set())
        assert (engine(f).asleep, shown(f)) == (True, [ReplicaState.ASLEEP])
        ask(f)
        assert state(f, "m") == "starting"
        f.run(f.nodes[only(f, "m").node].wake_s)
        assert (state(f, "m"), published(f, "m"), engine(f).asleep) == ("ready", {replica}, False)
        answer(f)
    assert sum(len(node.starts) for node in f.nodes.values()) == starts, "nothing was started anew"


def test_a_sleeping_fleet_is_steady_tells_its_nodes_nothing_and_explains_itself() -> None:
    f = asleep()
    seq = f.world.seq
    f.run(3600)
    assert (f.world.seq, phase(f.world, Recent(), f.clock_s)) == (seq, Phase.STEADY)
    said = "\n".join(explain(f.world, f"replica/{only(f, 'm').replica}", f.clock_s).sentences)
    assert "is asleep on a" in said
    assert "its engine sleeps where it is. A request or `llmgw wake m` wakes it" in said
    told = "\n".join(explain(f.world, "model/m", f.clock_s).sentences)
    assert "asleep" in told, told
    f.delay = lambda: 1.0
    ask(f)
    [line] = [
        s for s in explain(f.world, f"replica/{only(f, 'm').replica}", f.clock_s).sentences if "wanted again" in s
    ]
    assert "published once its engine is awake" in line


def test_an_operator_wakes_it_too_and_a_scale_to_zero_stops_it() -> None:
    f = asleep()
    f.order("wake", model="m")
    f.run(2)
    assert state(f, "m") == "ready"
    rest(f)
    f.run(1)
    f.order("scale", model="m", replicas=0)
    f.run(10)
    assert ids(f, "m") == set()


def test_no_engine_falls_asleep_while_a_router_has_requests_there_or_an_old_table() -> None:
    f = fleet(routers=("r1", "r2"))
    f.catalog(catalog(f, sleeper()))
    ask(f)
    f.run(START_S * 2)
    answer(f)
    [replica] = published(f, "m")
    f.cut.add("router/r2")
    f.run(120)  # silent: no longer asked whether it is in use
    router(f).begin(replica)
    rest_of_r1 = frozenset({replica})
    router(f).end(replica)
    router(f).idle = rest_of_r1
    router(f).revision += 1
    f.settle()
    f.run(600)
    assert (published(f, "m"), engine(f).asleep) == (set(), False)
    assert "before it sleeps: waits until r2" in why(f, f"replica/{replica}")
    said = "\n".join(explain(f.world, f"replica/{replica}", f.clock_s).sentences)
    assert "It was idle and is to sleep for" in said
    assert shown(f) == [ReplicaState.DRAINING]
    f.cut.clear()
    f.run(60)
    assert engine(f).asleep


def test_a_request_while_it_is_being_withdrawn_takes_it_back_and_its_node_hears_nothing() -> None:
    f = awake()
    [replica] = ids(f, "m")
    f.delay = lambda: 1.0
    rest(f)
    assert state(f, "m") == "asleep"
    router(f).asked = frozenset({ModelName("m")})
    f.settle()
    f.run(30)
    assert (published(f, "m"), engine(f).rests) == ({replica}, False)


@pytest.mark.parametrize("late_s", [0.5, 1.0, 2.0, 4.0, 6.0])
def test_a_wake_that_crosses_the_word_to_sleep_never_publishes_a_sleeper(late_s: float) -> None:
    f = awake()
    [replica] = ids(f, "m")
    f.delay = lambda: late_s
    rest(f)
    f.run(late_s * 2)
    ask(f)
    f.run(60)
    assert (published(f, "m"), engine(f).asleep) == ({replica}, False)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_lost_or_late_what_is_asked_for_serves_and_what_is_idle_sleeps(seed: int) -> None:
    """The promises are checked at every step."""
    chance = random.Random(seed)
    f = awake(sleeper(), sleeper("n"))
    for _ in range(15):
        f.delay = lambda: chance.choice((0.0, 0.1, 1.0, 3.0))
        f.lose_replies = {f"node/{n}" for n in f.nodes if chance.random() < 0.3}
        f.double = {f"node/{n}" for n in f.nodes if chance.random() < 0.3}
        match chance.randrange(4):
            case 0:
                ask(f, chance.choice("mn"))
            case 1:
                answer(f)
                rest(f)
            case 2:
                f.nodes[NodeId(chance.choice("ab"))].restart_agent()
            case _:
                pass
        f.run(chance.choice((1, 5, 20)))
    f.delay, f.lose_replies, f.double = (lambda: 0.0), set(), set()
    ask(f, "m")
    ask(f, "n")
    f.run(120)
    assert (state(f, "m"), state(f, "n")) == ("ready", "ready")
    answer(f)
    rest(f)
    f.run(60)
    assert (state(f, "m"), state(f, "n")) == ("asleep", "asleep")
    assert engine(f).asleep
    assert engine(f, "n").asleep


@pytest.mark.parametrize("priority", [-1, 0, 1])
def test_a_sleeper_gives_its_place_to_whoever_lacks_one_at_once_and_is_started_anew_later(priority: int) -> None:
    other = model("b", 0, priority=priority)
    f = asleep(sleeper(), other, nodes="a", count=1)
    f.catalog(catalog(f, sleeper(), model("b", 1, priority=priority)))
    f.run(START_S * 3)
    assert (ids(f, "m"), state(f, "b"), state(f, "m")) == (set(), "ready", "asleep")
    f.catalog(catalog(f, sleeper()))
    f.run(60)
    ask(f)
    f.run(START_S * 3)
    assert state(f, "m") == "ready"


def test_what_is_awake_stays_where_a_sleeper_makes_room() -> None:
    f = asleep(sleeper(), model("c", 1), nodes="a")
    f.catalog(catalog(f, sleeper(), model("c", 1), model("b", 1)))
    f.run(START_S * 3)
    assert (ids(f, "m"), state(f, "b"), state(f, "c")) == (set(), "ready", "ready")


def test_an_idle_model_that_yields_its_place_stops_instead_of_sleeping_in_it() -> None:
    f = awake(sleeper(idle_timeout_s=3600.0), model("b", 0), nodes="a", count=1)
    f.run(70)
    f.catalog(catalog(f, sleeper(idle_timeout_s=3600.0), model("b", 1)))
    f.settle()
    rest(f)
    f.run(START_S * 3)
    assert (ids(f, "m"), state(f, "b")) == (set(), "ready")


@pytest.mark.parametrize("change", [{"idle": "stop"}, {"args": ["--x"]}])
def test_an_edited_sleeper_stops_and_starts_as_it_is_now(change: dict[str, Any]) -> None:
    f = asleep()
    f.catalog(catalog(f, sleeper(**change)))
    f.run(30)
    assert (ids(f, "m"), state(f, "m")) == (set(), "asleep")
    ask(f)
    f.run(START_S * 3)
    assert state(f, "m") == "ready"


def test_a_drained_node_and_a_crash_end_a_sleeper_and_nothing_is_started_for_it() -> None:
    f = asleep()
    f.order("drain", node=only(f, "m").node)
    f.run(30)
    assert ids(f, "m") == set()
    f = asleep()
    a = only(f, "m")
    f.nodes[a.node].crash(a.replica)
    f.run(60)
    assert (ids(f, "m"), state(f, "m")) == (set(), "asleep")
    ask(f)
    f.run(START_S * 4)
    assert state(f, "m") == "ready"


def test_an_engine_that_does_not_wake_and_dies_is_replaced() -> None:
    f = asleep()
    a = only(f, "m")
    f.nodes[a.node].wake_s = 1e9
    ask(f)
    f.run(20)
    assert state(f, "m") == "starting"
    f.nodes[a.node].crash(a.replica)
    f.run(60)
    assert state(f, "m") == "ready"
    assert only(f, "m").replica != a.replica


LONG_S = 600.0


def test_what_nobody_asks_for_in_its_time_asleep_is_stopped_at_that_moment_and_started_anew_later() -> None:
    f = asleep(sleeper(asleep_timeout_s=LONG_S))
    [replica] = ids(f, "m")
    f.run(LONG_S - 5)
    assert (ids(f, "m"), engine(f).asleep) == ({replica}, True)
    f.run(30)
    assert (ids(f, "m"), state(f, "m")) == (set(), "asleep")
    ask(f)
    f.run(START_S * 2)
    assert (state(f, "m"), replica in ids(f, "m")) == ("ready", False)


def test_each_wake_begins_its_time_asleep_anew_also_one_that_was_not_proven_yet() -> None:
    f = asleep(sleeper(asleep_timeout_s=LONG_S))
    [replica] = ids(f, "m")
    for _ in range(4):
        f.run(LONG_S * 0.8)
        ask(f)
        f.run(10)
        answer(f)
        rest(f)
        f.run(1)
        assert (ids(f, "m"), engine(f).asleep) == ({replica}, True)
    a = only(f, "m")
    assert a.sleep is not None
    begun_anew = replace(a, sleep=replace(a.sleep, since_s=f.clock_s - LONG_S * 2, ends=True))
    f.world = replace(f.world, assignments={replica: begun_anew})
    f.run(30)
    assert ids(f, "m") == {replica}, "it was wanted a moment ago"


def test_why_it_was_stopped_in_its_sleep_is_told() -> None:
    f = asleep(sleeper(asleep_timeout_s=LONG_S))
    f.run(LONG_S + 60)
    assert any("nobody asked for m in the 600 s that it slept" in line for line in f.story), f.story[-6:]


def test_sleep_settings_are_for_models_that_sleep() -> None:
    raw = {"models": [{**sleeper(idle="stop"), "sleep_level": 2}, {**sleeper("b", asleep_timeout_s=5), "idle": "stop"}]}
    told = [f"{p.path}: {p.what}" for p in check(raw).problems]
    assert len(told) == 2, told
    assert all("sleep_level and asleep_timeout_s are for models with idle: sleep" in line for line in told)


def test_the_level_is_an_input_of_the_launch_and_the_time_asleep_is_not() -> None:
    one, same, two, later = (
        accepted(**fields) for fields in ({}, {"sleep_level": 1}, {"sleep_level": 2}, {"asleep_timeout_s": 5.0})
    )
    prints = [fingerprint(c.models[0], c.models[0].profiles[0], c) for c in (one, same, two, later)]
    assert prints[0] == prints[1] == prints[3] != prints[2]
    profile = {"engine": "vllm"}
    launches = []
    for level in (1, 2):
        found = accepted(weights="hf://a/b", profile=profile, sleep_level=level)
        launches.append(render(found.models[0], found.models[0].profiles[0], found, "nvidia").sleep)
    assert launches[0] is not None
    assert launches[1] is not None
    assert (launches[0].sleep, launches[0].wake, launches[0].then) == ("/sleep?level=1", "/wake_up", ())
    assert launches[1].sleep == "/sleep?level=2"
    assert [launches[1].wake, *(step.path for step in launches[1].then)] == [
        "/wake_up?tags=weights",
        "/collective_rpc",
        "/wake_up?tags=kv_cache",
    ]


def test_it_sleeps_on_when_the_plane_is_carried_over_and_wakes_where_the_plane_forgot_that_it_slept() -> None:
    f = asleep()
    parts = carry.pack(f.world, f.catalog_raw, {})
    after = carry.unpack(Seed(fleet="f", installation="i", epoch=5), parts, f.clock_s).world
    assert after.assignments == f.world.assignments
    a = only(f, "m")
    f.world = replace(f.world, assignments={a.replica: replace(a, sleep=None)})
    f.order("wake", model="m")
    f.run(5)
    assert published(f, "m") == {a.replica}


def test_a_plan_on_a_sleeping_fleet_finds_nothing_under_way() -> None:
    f = asleep()
    seen = foresee(f.world, catalog(f, sleeper()), f.clock_s)
    assert (seen.models, seen.under_way, seen.fetches) == ((), (), ())
    woken = foresee(f.world, catalog(f, sleeper(replicas={"min": 1, "max": 2}, idle="stop")), f.clock_s)
    assert [(m.model, m.endpoints_after) for m in woken.models] == [("m", 1)]


def test_only_what_can_sleep_may_and_every_mistake_is_named() -> None:
    raw = {
        "models": [
            sleeper(profile={"engine": "sglang"}, weights="hf://a/b"),
            sleeper("b", idle_timeout_s=None, replicas=1),
        ]
    }
    told = [f"{p.path}: {p.what}" for p in check(raw).problems]
    assert len(told) == 2, told
    assert "engine sglang cannot be put to sleep" in told[0]
    assert "idle: sleep is for models with an idle_timeout_s" in told[1]


def accepted(**fields: Any) -> Catalog:
    raw = {"models": [{k: v for k, v in sleeper(**fields).items() if v is not None}]}
    checked = check(raw)
    assert checked.catalog is not None, checked.problems
    return checked.catalog


def test_sleep_is_an_input_of_the_launch_and_stop_changes_no_fingerprint() -> None:
    made = [accepted(idle=idle) for idle in (None, "stop", "sleep")]
    prints = [fingerprint(c.models[0], c.models[0].profiles[0], c) for c in made]
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize("args", [(), ("--enable-sleep-mode",)])
def test_an_engine_is_made_able_to_sleep_only_where_it_is_to(args: tuple[str, ...]) -> None:
    profile = {"engine": "vllm", "args": [*args, "--max-model-len", "8192"]}
    for idle, able in (("sleep", True), ("stop", False)):
        found = accepted(idle=idle, weights="hf://a/b", profile=profile)
        launch = render(found.models[0], found.models[0].profiles[0], found, "nvidia")
        assert launch.argv.count("--enable-sleep-mode") == max(able, len(args))
        assert ("VLLM_SERVER_DEV_MODE" in launch.env, launch.sleep is not None) == (able, able)
