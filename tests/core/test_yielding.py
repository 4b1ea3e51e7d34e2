"""An idle model yields its place to its equal: only when it is idle, above its minimum, has resided, and it helps."""

import random
from typing import Any

import pytest

from llmgw.ids import ModelName, RouterId
from sim.fleet import SimFleet

from .fleets import START_S, catalog, fleet, ids, model, published, running, state, why

A, B = ModelName("a"), ModelName("b")
RESIDENCE_S = 60.0


def sleeper(name: str, devices: int = 1, **fields: Any) -> dict[str, object]:
    return model(name, {"min": 0, "max": 1}, devices, **{"idle_timeout_s": 3600.0, **fields})


def ask(f: SimFleet, name: str) -> None:
    f.routers[RouterId("r1")].ask(name)
    f.settle()


def idle(f: SimFleet, for_s: float = RESIDENCE_S) -> None:
    """No request for so long: the router tells it of models that it watches for no longer than that."""
    router = f.routers[RouterId("r1")]
    limits = {name: row.idle_after_s for name, row in router.table.models.items()}
    free = {r: e for r, e in router.table.endpoints.items() if r not in router.in_flight}
    router.idle = frozenset(r for r, e in free.items() if (limits[ModelName(e.models[0])] or for_s + 1) <= for_s)
    router.revision += 1
    f.settle()


def full(*models: dict[str, object], count: int = 1) -> SimFleet:
    """One node, on which `a` is awake and has resided; then `b` is asked for."""
    f = running(*models, nodes="a", count=count)
    ask(f, "a")
    f.run(RESIDENCE_S + START_S * 2)
    assert published(f, "a") == ids(f, "a") != set()
    ask(f, "b")
    f.run(1)
    return f


def watched(f: SimFleet, name: ModelName = A) -> float | None:
    return f.world.table.models[name].idle_after_s


def test_an_idle_model_yields_its_place_to_one_of_its_priority_that_is_asked_for() -> None:
    f = full(sleeper("a"), sleeper("b"))
    assert why(f, "model/b").startswith("no_place: ")
    assert watched(f) == RESIDENCE_S, "routers are to tell sooner that it is idle"
    idle(f)
    f.run(START_S * 3)
    assert (state(f, "a"), published(f, "b")) == ("asleep", ids(f, "b"))
    assert watched(f, B) == 3600.0, "nobody waits for its place"


def test_a_model_in_use_yields_nothing() -> None:
    f = full(sleeper("a"), sleeper("b"))
    [replica] = published(f, "a")
    f.routers[RouterId("r1")].begin(replica)
    idle(f)
    f.run(600)
    assert published(f, "a") == {replica}


def test_what_was_just_placed_yields_nothing_until_it_has_resided() -> None:
    f = running(sleeper("a"), sleeper("b"), nodes="a", count=1)
    ask(f, "a")
    f.run(START_S * 2)
    began = f.now_s - START_S * 2
    ask(f, "b")
    idle(f)
    f.run(RESIDENCE_S - START_S * 4)
    assert state(f, "a") == "ready"
    f.run(began + RESIDENCE_S + START_S * 4 - f.now_s)
    assert (state(f, "a"), state(f, "b")) == ("asleep", "ready")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (sleeper("a", priority=1), sleeper("b")),  # of a higher priority
        (sleeper("a", idle_timeout_s=None), sleeper("b")),  # never idle
        (model("a", {"min": 1, "max": 2}, idle_timeout_s=3600.0), sleeper("b")),  # its minimum
        (sleeper("a"), sleeper("b", 2)),  # its place would not do
    ],
)
def test_what_is_idle_and_may_stay_stays(first: dict[str, object], second: dict[str, object]) -> None:
    first = {key: value for key, value in first.items() if value is not None}
    f = full(first, second)
    before = published(f, "a")
    idle(f)
    f.run(900)
    assert published(f, "a") == before != set()
    assert watched(f) in (None, 3600.0), "no router has to tell sooner"


def test_what_an_operator_scaled_yields_nothing() -> None:
    f = full(sleeper("a"), sleeper("b"))
    f.order("scale", model="a", replicas=1)
    idle(f)
    f.run(600)
    assert state(f, "a") == "ready"


def test_a_lower_priority_gives_way_at_once_idle_or_not() -> None:
    f = running(sleeper("a"), sleeper("b", priority=1), nodes="a", count=1)
    ask(f, "a")
    f.run(START_S * 2)
    ask(f, "b")
    f.run(START_S * 3)
    assert published(f, "b") == ids(f, "b") != set()


def beside(f: SimFleet, *others: dict[str, object]) -> None:
    """One node of two devices: `low` serves, `a` of priority 1 is awake and has resided."""
    f.catalog(catalog(f, model("low"), sleeper("a", priority=1), *others))
    ask(f, "a")
    f.run(RESIDENCE_S + START_S * 2)
    assert published(f, "low") == ids(f, "low") != set()
    assert published(f, "a") == ids(f, "a") != set()


def test_what_serves_at_a_lower_priority_stays_where_an_idle_one_yields() -> None:
    f = fleet("a", 2)
    others = (sleeper("watcher", priority=1), sleeper("b", priority=2))
    beside(f, *others)
    before = published(f, "low")
    for replica in before:
        f.order("scale", model="low", replicas=1)
        f.routers[RouterId("r1")].begin(replica)
    f.catalog(catalog(f, model("low", priority=1), sleeper("a", priority=1), *others))
    ask(f, "watcher")
    assert watched(f) == RESIDENCE_S, "a may yield"
    f.routers[RouterId("r1")].ask("b")
    idle(f)
    f.run(START_S * 3)
    assert published(f, "b") == ids(f, "b") != set()
    assert (published(f, "low"), ids(f, "a")) == (before, set())


def test_what_serves_at_a_lower_priority_gives_way_where_the_equal_is_busy() -> None:
    f = fleet("a", 2)
    beside(f, sleeper("b", priority=1))
    ask(f, "b")
    f.run(START_S * 3)
    assert published(f, "b") == ids(f, "b") != set()
    assert (published(f, "a"), ids(f, "low")) == (ids(f, "a"), set())


def test_what_is_about_to_stop_anyway_makes_room_before_what_serves() -> None:
    f = fleet("a", 3)
    f.catalog(catalog(f, model("low"), model("c", 2, priority=1)))
    f.run(START_S * 3)
    before = published(f, "low")
    router = f.routers[RouterId("r1")]
    for replica in sorted(published(f, "c")):
        router.begin(replica)
    f.catalog(catalog(f, model("low"), model("c", 1, priority=1), model("b", priority=2)))
    f.run(5)
    [b] = ids(f, "b")
    assert "still being released by c-" in why(f, f"replica/{b}"), "its requests are waited for"
    assert published(f, "low") == before
    for replica in list(router.in_flight):
        router.end(replica)
    f.run(START_S * 3)
    assert published(f, "b") == ids(f, "b") != set()
    assert published(f, "low") == before


def test_only_as_many_yield_as_have_to_and_they_on_one_node() -> None:
    names = ("a", "c", "d")
    f = running(*(sleeper(n) for n in names), sleeper("b", 2), nodes="a", count=3)
    for name in names:
        ask(f, name)
        f.run(START_S * 2)
    f.run(RESIDENCE_S)
    ask(f, "b")
    f.run(1)
    idle(f)
    f.run(START_S * 3)
    assert state(f, "b") == "ready"
    assert [n for n in names if state(f, n) == "ready"] == ["d"], "who came last stays"


def test_a_minimum_that_has_no_place_is_yielded_to_as_well() -> None:
    f = running(sleeper("a"), nodes="a", count=1)
    ask(f, "a")
    f.run(RESIDENCE_S + START_S * 2)
    f.catalog(catalog(f, sleeper("a"), model("b")))
    f.run(1)
    idle(f)
    f.run(START_S * 3)
    assert published(f, "b") == ids(f, "b") != set()


def test_being_called_idle_sooner_puts_nobody_to_sleep_who_does_not_yield() -> None:
    f = running(sleeper("a"), sleeper("b", 2), sleeper("c"), nodes="a", count=2)
    for name in ("a", "c"):
        ask(f, name)
        f.run(START_S * 2)
    [busy] = published(f, "c")
    f.routers[RouterId("r1")].begin(busy)
    f.run(RESIDENCE_S)
    ask(f, "b")
    f.run(1)
    assert watched(f) == RESIDENCE_S
    idle(f)
    f.run(300)
    assert state(f, "a") == "ready", "its place alone would not do, and its idle time is not over"


def test_equals_that_are_asked_for_in_turns_each_stay_for_their_residence() -> None:
    rng = random.Random(3)
    f = fleet("a", 1)
    f.catalog(catalog(f, sleeper("a"), sleeper("b"), policy={"min_residence_s": 30}))
    f.run(START_S)
    last, stayed_since = "", f.now_s
    for _ in range(40):
        ask(f, rng.choice("ab"))
        f.run(START_S)
        idle(f)
        up = next((n for n in "ab" if published(f, n)), last)
        if up != last:
            assert not last or f.now_s - stayed_since >= 30 - START_S, (
                f"{last} was there for {f.now_s - stayed_since} s"
            )
            last, stayed_since = up, f.now_s
    assert last
