"""Where the plane's clock is set back, everything remembered goes back with it: ages and order stay."""

import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace

from hypothesis import given, settings

from llmgw import clock
from llmgw import world as records
from llmgw.carry import Parts, Seed
from llmgw.decide import decide
from llmgw.ids import NodeId, ReplicaId
from llmgw.observation import NodeSeen, Observation
from llmgw.world import Drain, Pause, Scale, Wishes, World
from tests.core.test_decide_properties import after, worlds
from tests.core.worlds import NOW, assignment, world
from tests.effort import examples
from workflows.fleet_state import FleetState
from workflows.news import Happened, News

BACK_S = 64.0
"""A power of two, so that sums stay exact."""
OF_PEOPLE = {(Drain, "deadline_s"), (Scale, "until_s"), (Pause, "until_s")}
"""Moments that people named; the clock that they read was right or not, nobody knows."""
REPORT = NodeSeen(node=NodeId("node-a"), machine="m", boot="b", instance="i", revision=1)


def test_every_moment_that_a_world_remembers_is_known_as_one() -> None:
    found = 0
    for kind in vars(records).values():
        if not (isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == records.__name__):
            continue
        hints = typing.get_type_hints(kind)
        for field in fields(kind):
            args = typing.get_args(hints[field.name])
            by_key = typing.get_origin(hints[field.name]) is Mapping and args[1] is float
            if (field.name.endswith("_s") or by_key) and (kind, field.name) not in OF_PEOPLE:
                assert field.name in clock.MOMENTS.get(kind, ()), f"{kind.__name__}.{field.name}"
                found += 1
    assert found > 30


@settings(deadline=None, max_examples=examples(40))
@given(worlds())
def test_a_plane_whose_clock_was_set_back_goes_on_as_if_it_always_had_been(moment: tuple[World, float]) -> None:
    here, now_s = moment
    behind = clock.set_back(here, BACK_S)
    there = decide(behind, now_s - BACK_S)
    want = clock.set_back(after(here, decide(here, now_s), now_s), BACK_S)
    assert after(behind, there, now_s - BACK_S) == want


@settings(deadline=None, max_examples=examples(20))
@given(worlds())
def test_setting_a_clock_forth_again_gives_the_world_back(moment: tuple[World, float]) -> None:
    assert clock.set_back(clock.set_back(moment[0], BACK_S), -BACK_S) == moment[0]


def test_what_people_named_stays_and_what_they_did_goes_back() -> None:
    drains = {NodeId("node-a"): Drain(NOW, deadline_s=NOW + 50)}
    wishes = Wishes(drains=drains, cordoned={NodeId("node-a"): NOW}, pause=Pause(NOW, NOW + 9))
    back = clock.set_back(world("m", wishes=wishes), 100.0).wishes
    assert back.drains == {NodeId("node-a"): Drain(NOW - 100, deadline_s=NOW + 50)}
    assert back.cordoned == {NodeId("node-a"): NOW - 100}
    assert back.pause == Pause(NOW - 100, NOW + 9)


def test_an_engine_that_is_only_shown_stays_so() -> None:
    replica = ReplicaId("x-1")
    assert clock.set_back(world("m", unclaimed={replica: -NOW}), 100.0).unclaimed == {replica: 100.0 - NOW}


def test_a_world_in_which_nothing_is_remembered_stays_the_very_same() -> None:
    empty = World("f", "i", 1, 0)
    assert clock.set_back(empty, 5.0) is empty
    assert clock.newest_s(empty) == 0.0


def fleet_at(now_s: float) -> FleetState:
    state = FleetState(Seed(fleet="f", installation="i", settle=False), Parts(), now_s)
    made = assignment("m-1", "m", created_s=now_s)
    state.world = replace(state.world, assignments={made.replica: made})
    return state


def created_s(state: FleetState) -> float:
    return state.world.assignments[ReplicaId("m-1")].created_s


def test_the_workflow_sets_back_what_it_remembers_before_it_records_anything_new() -> None:
    state = fleet_at(NOW)
    news = News()
    news.add(1, Happened(lambda s: s.observed(Observation(pool="p", cursor=1, nodes=(REPORT,)), NOW)))
    state = news.preview(state, NOW - 3_600.0).state
    assert created_s(state) == NOW - 3_600.0
    assert state.world.seen[NodeId("node-a")].at_s == NOW - 3_600.0, "it happened before the clock was set back"
    state.at(NOW - 3_590.0)
    assert created_s(state) == NOW - 3_600.0, "time that passes moves nothing"
    state.at(NOW - 3_590.5)
    assert created_s(state) == NOW - 3_600.0, "nor does what is less than anything depends on"


def test_news_of_long_ago_are_no_clock_set_back() -> None:
    state = fleet_at(NOW)
    state.at(NOW + 60.0)
    state.observed(Observation(pool="p", cursor=1, nodes=(REPORT,)), NOW + 10.0)
    assert created_s(state) == NOW
    assert state.world.seen[NodeId("node-a")].at_s == NOW + 10.0


def test_a_run_that_begins_behind_what_was_carried_over_sets_it_back() -> None:
    before = fleet_at(NOW)
    seed, parts = before.carried()
    later = FleetState(seed, parts, NOW - 7_200.0)
    assert created_s(later) == NOW - 7_200.0
    assert created_s(FleetState(seed, parts, NOW + 50.0)) == NOW
