"""Wakes of one priority get places in the order in which they came, and one that is overdue is an alarm."""

import pytest

from llmgw.recent import Recent
from llmgw.showing.explain import explain
from llmgw.showing.phases import Phase
from llmgw.showing.status import status
from sim.fleet import SimFleet

from .fleets import START_S, catalog, fleet, ids, model, of, published, why

LIMIT_S = 2 * (600.0 + 30.0)


def sleeper(name: str, devices: int = 1, **fields: object) -> dict[str, object]:
    return model(name, {"min": 0, "max": 1}, devices, idle_timeout_s=3600.0, **fields)


def full(*models: dict[str, object], count: int = 1) -> SimFleet:
    """One node whose devices are all taken by what does not yield."""
    f = fleet("a", count)
    f.catalog(catalog(f, busy(count)))
    f.order("scale", model="busy", replicas=1)
    f.run(START_S * 2)
    f.catalog(catalog(f, busy(count), *models))
    return f


def busy(devices: int) -> dict[str, object]:
    return model("busy", {"min": 0, "max": 1}, devices)


def wake(f: SimFleet, *names: str) -> None:
    """One after the other."""
    for name in names:
        f.order("wake", model=name)
        f.run(1)


def make_room(f: SimFleet) -> None:
    f.order("scale", model="busy", replicas=0)
    f.run(START_S * 3)


def told(f: SimFleet) -> list[str]:
    return [line for line in f.story if "is not ready after" in line]


@pytest.mark.parametrize("first", "zb")
def test_of_equal_wakes_the_first_gets_the_place_whatever_its_name(first: str) -> None:
    f = full(sleeper("z"), sleeper("b"))
    second = ({"z", "b"} - {first}).pop()
    wake(f, first, second)
    make_room(f)
    assert published(f, first) == ids(f, first) != set()
    assert ids(f, second) == set()


@pytest.mark.parametrize("order", [("large", "small"), ("small", "large")])
def test_of_equal_wakes_the_first_gets_the_place_whatever_its_size(order: tuple[str, str]) -> None:
    f = full(sleeper("large", 2), sleeper("small"), count=2)
    wake(f, *order)
    make_room(f)
    assert published(f, order[0]) != set()
    assert ids(f, order[1]) == set()


def test_a_later_wake_of_a_higher_priority_comes_first() -> None:
    f = full(sleeper("low"), sleeper("high", priority=1))
    wake(f, "low", "high")
    make_room(f)
    assert (published(f, "high"), ids(f, "low")) == (ids(f, "high"), set())


def test_one_that_fits_nowhere_holds_up_none_that_came_later() -> None:
    f = full(sleeper("huge", 8), sleeper("small"), count=2)
    wake(f, "huge", "small")
    make_room(f)
    assert published(f, "small") != set()


def test_a_minimum_comes_before_wakes_of_its_priority() -> None:
    f = full(sleeper("a"), model("min"))
    wake(f, "a")
    make_room(f)
    assert (published(f, "min"), ids(f, "a")) == (ids(f, "min"), set())


def test_of_equal_wakes_the_first_is_yielded_to() -> None:
    f = fleet("a", 1)
    f.catalog(catalog(f, sleeper("held"), sleeper("z"), sleeper("b")))
    wake(f, "held")
    f.run(120)
    wake(f, "z", "b")
    router = next(iter(f.routers.values()))
    router.rest()
    f.settle()
    f.run(START_S * 3)
    assert published(f, "z") == ids(f, "z") != set()
    assert ids(f, "b") == ids(f, "held") == set()


def test_a_wake_that_is_not_met_in_time_is_an_alarm_until_it_is() -> None:
    f = full(sleeper("m"))
    wake(f, "m")
    f.run(LIMIT_S - 10)
    assert why(f, "wake/m") == ""
    f.run(20)
    assert (
        why(f, "wake/m") == "wake_overdue: was asked for and is not ready after 21 min, twice its start and stop limits"
    )
    assert why(f, "model/m").startswith("no_place: "), "what it waits for is still told"
    f.run(600)
    assert len(told(f)) == 1, "it is told once"
    make_room(f)
    assert published(f, "m") != set()
    assert why(f, "wake/m") == ""


def test_the_alarm_is_shown_to_people() -> None:
    f = full(sleeper("m"))
    wake(f, "m")
    f.run(LIMIT_S + 10)
    found = status(f.world, Recent(), f.now_s)
    assert found.phase == Phase.DEGRADED, "nothing moves by itself"
    assert "asked for and still not ready: m" in found.warnings
    assert found.waiting_by["wake_overdue"] == 1
    for subject in ("m", "model/m", "wake/m"):
        assert any("not ready after 21 min" in line for line in explain(f.world, subject, f.now_s).sentences), subject


def test_the_limits_of_the_slowest_profile_count() -> None:
    f = full(sleeper("m", profile={"start_limit_s": 60.0, "stop_limit_s": 5.0}))
    wake(f, "m")
    f.run(125)
    assert why(f, "wake/m") == ""
    f.run(10)
    assert why(f, "wake/m") != ""


def test_what_was_ready_and_crashed_is_not_overdue_at_once() -> None:
    f = fleet("a", 1)
    f.catalog(catalog(f, sleeper("m")))
    wake(f, "m")
    f.run(LIMIT_S * 2)
    node = next(iter(f.nodes.values()))
    node.crash_starts = True
    [replica] = of(f, "m")
    node.crash(replica.replica)
    f.settle()
    f.run(START_S * 3)
    assert (published(f, "m"), why(f, "wake/m")) == (set(), "")


def test_a_minimum_without_a_place_is_no_overdue_wake() -> None:
    f = full(model("min"))
    f.run(LIMIT_S * 2)
    assert why(f, "model/min").startswith("no_place: ")
    assert why(f, "wake/min") == ""
