"""A changed model rolls: start first or stop first, back to the last good version on failure, canaries on demand."""

from dataclasses import replace

import pytest

from llmgw import views
from llmgw.ids import NodeId, RouterId
from llmgw.recent import Recent
from llmgw.world import Input, InputKind
from sim.fleet import SimFleet

from .fleets import catalog, ids, model, of, only, published, running, why

A = NodeId("a")


def edit(f: SimFleet, *args: str, **fields: object) -> None:
    """The model gets other arguments; `fields` as `model` takes them."""
    f.catalog(catalog(f, model("m", args=list(args), **fields)))  # type: ignore[arg-type]


def breaks(f: SimFleet, *args: str) -> None:
    """From now on engines with these arguments, and no others, crash while they load."""
    for node in f.nodes.values():
        node.crash_args = frozenset(args)


def versions(f: SimFleet) -> list[tuple[str, ...]]:
    """The arguments of what the routers have, sorted."""
    return sorted(
        tuple(a for a in f.nodes[x.node].engines[x.replica].start.launch.argv if a.startswith("v"))
        for x in of(f, "m")
        if x.replica in f.world.table.endpoints
    )


# --- back to the last good one -------------------------------------------------------------------------------------


def test_after_a_failed_stop_first_the_last_good_version_is_started_again() -> None:
    f = running(model("m", 1, 2, args=["v1"]), nodes="a")
    breaks(f, "v2")
    f.catalog(catalog(f, model("m", 1, 2, args=["v2"]), policy={"max_attempts": 2}))
    f.run(10)
    assert published(f, "m") == set(), "there is no room for two"
    f.run(20)
    assert versions(f) == [("v1",)]
    assert why(f, "model/m").startswith("rolled_back: the last good version runs: the new version failed 2 times")
    f.run(4000)
    assert versions(f) == [("v1",)], "it stays so until somebody acts"


def test_a_failed_start_first_leaves_the_last_good_version_as_it_is() -> None:
    f = running(model("m", args=["v1"]), nodes="ab")
    old = ids(f, "m")
    breaks(f, "v2")
    f.catalog(catalog(f, model("m", args=["v2"]), policy={"max_attempts": 2}))
    f.run(200)
    assert published(f, "m") == old == ids(f, "m"), "nothing of the new version is left"
    assert views.phase(f.world, Recent(), f.now_s) == "degraded"


@pytest.mark.parametrize("how", ["edit", "restart"])
def test_there_is_a_road_to_the_new_version_again(how: str) -> None:
    f = running(model("m", args=["v1"]), nodes="ab")
    breaks(f, "v2")
    f.catalog(catalog(f, model("m", args=["v2"]), policy={"max_attempts": 2}))
    f.run(60)
    breaks(f)
    if how == "edit":
        edit(f, "v3")
    else:
        f.order("restart", target="m")
    f.run(30)
    assert versions(f) == [("v3",) if how == "edit" else ("v2",)]
    assert f.world.good == {}
    assert why(f, "model/m") == ""


def test_the_last_good_version_is_the_one_that_served_not_the_one_before_the_last_edit() -> None:
    f = running(model("m", 1, 2, args=["v1"]), nodes="a")
    breaks(f, "v2", "v3")
    f.catalog(catalog(f, model("m", 1, 2, args=["v2"]), policy={"max_attempts": 2}))
    f.run(8)
    f.catalog(catalog(f, model("m", 1, 2, args=["v3"]), policy={"max_attempts": 2}))
    f.run(30)
    assert versions(f) == [("v1",)]


def test_the_last_good_version_survives_carrying_over() -> None:
    f = running(model("m", 1, 2, args=["v1"]), nodes="a")
    breaks(f, "v2")
    f.catalog(catalog(f, model("m", 1, 2, args=["v2"]), policy={"max_attempts": 2}))
    f.run(8)
    f.carry_over()
    f.run(30)
    assert versions(f) == [("v1",)]


def test_when_the_last_good_version_fails_too_it_is_given_up_like_any_other() -> None:
    f = running(model("m", 1, 2, args=["v1"]), nodes="a")
    breaks(f, "v1", "v2")
    f.catalog(catalog(f, model("m", 1, 2, args=["v2"]), policy={"max_attempts": 2}))
    f.run(400)
    assert len(f.nodes[A].starts) == 1 + 2 + 2
    assert why(f, "model/m").startswith("failed: given up")


def test_a_roll_of_several_stops_at_the_failure_and_keeps_all_but_one() -> None:
    f = running(model("m", 3, 1, args=["v1"]), nodes="abc", count=1)
    for node in "bc":
        f.nodes[NodeId(node)].crash_starts = True
    edit(f, "v2", replicas=3)
    for _ in range(60):
        f.run(5)
        assert len(published(f, "m")) >= 2
    assert len(ids(f, "m")) <= 3, "never more than wanted where there is no room"
    assert ("v1",) in versions(f)


# --- edits in a row ------------------------------------------------------------------------------------------------


def test_edits_within_a_second_start_only_the_last_one_and_the_first_one_again_starts_nothing() -> None:
    f = running(model("m", args=["v1"]), nodes="a")
    f.delay = lambda: 0.5
    for version in ("v2", "v3", "v4", "v1"):
        edit(f, version)
        f.run(0.2)
    f.run(60)
    assert versions(f) == [("v1",)]
    assert len(f.nodes[A].starts) <= 2, "at most the first of them had left already"
    assert len(ids(f, "m")) == 1


def test_several_edits_before_one_pass_are_one_edit() -> None:
    f = running(model("m", args=["v1"]), nodes="ab")
    before = ids(f, "m")
    for version in ("v2", "v3", "v1"):
        raw = catalog(f, model("m", args=[version]))
        f.arrivals += 1
        given = Input(f.arrivals, InputKind.CATALOG, "replace-catalog", [raw], f.now_s)
        f.world = replace(f.world, inbox=(*f.world.inbox, given))
    f.run(60)
    assert ids(f, "m") == before
    assert f.world.good == {}


# --- canaries ------------------------------------------------------------------------------------------------------

CANARY = {"canary": {"replicas": 1}}


def test_a_canary_waits_for_a_person_and_the_others_keep_the_last_good_version() -> None:
    f = running(model("m", 3, 1, args=["v1"], **CANARY), nodes="ab", count=2)
    edit(f, "v2", replicas=3, **CANARY)
    f.run(300)
    assert versions(f) == [("v1",), ("v1",), ("v2",)]
    assert why(f, "model/m").startswith("canary: 1 of 3 replicas try the new version")
    assert views.phase(f.world, Recent(), f.now_s) == "degraded"
    f.order("promote", model="m")
    f.run(60)
    assert versions(f) == [("v2",)] * 3
    assert why(f, "model/m") == ""
    assert (f.world.good, f.world.wishes.promoted == {}) == ({}, False)


def test_a_canary_that_served_long_enough_goes_on_by_itself() -> None:
    held = {"canary": {"replicas": 1, "hold_s": 100.0}}
    f = running(model("m", 3, 1, args=["v1"], **held), nodes="ab", count=2)
    edit(f, "v2", replicas=3, **held)
    f.run(95)
    assert versions(f) == [("v1",), ("v1",), ("v2",)]
    f.run(60)
    assert versions(f) == [("v2",)] * 3


def test_a_reverted_canary_gives_its_place_back_until_the_next_edit() -> None:
    f = running(model("m", 3, 1, args=["v1"], **CANARY), nodes="ab", count=2)
    edit(f, "v2", replicas=3, **CANARY)
    f.run(30)
    f.order("revert", model="m")
    f.run(60)
    assert versions(f) == [("v1",)] * 3
    assert why(f, "model/m") == "rolled_back: the last good version runs: an operator went back to it"
    f.carry_over()
    f.run(200)
    assert versions(f) == [("v1",)] * 3
    edit(f, "v3", replicas=3, **CANARY)
    f.run(30)
    assert versions(f) == [("v1",), ("v1",), ("v3",)]


def test_the_last_of_promote_and_revert_counts() -> None:
    f = running(model("m", 3, 1, args=["v1"], **CANARY), nodes="ab", count=2)
    edit(f, "v2", replicas=3, **CANARY)
    f.run(30)
    f.order("revert", model="m")
    f.run(5)
    f.order("promote", model="m")
    f.run(60)
    assert versions(f) == [("v2",)] * 3


def test_a_canary_that_fails_is_taken_back() -> None:
    f = running(model("m", 3, 1, args=["v1"], **CANARY), nodes="ab", count=2)
    before = ids(f, "m")
    breaks(f, "v2")
    f.catalog(catalog(f, model("m", 3, 1, args=["v2"], **CANARY), policy={"max_attempts": 2}))
    f.run(200)
    assert published(f, "m") == before
    assert why(f, "model/m").startswith("rolled_back")


def test_while_a_canary_is_held_a_dead_replica_of_the_others_comes_back_as_it_was() -> None:
    f = running(model("m", 3, 1, args=["v1"], **CANARY), nodes="ab", count=2)
    edit(f, "v2", replicas=3, **CANARY)
    f.run(30)
    old = next(a for a in of(f, "m") if "v1" in f.nodes[a.node].engines[a.replica].start.launch.argv)
    f.nodes[old.node].crash(old.replica)
    f.run(30)
    assert versions(f) == [("v1",), ("v1",), ("v2",)]


def test_a_canary_without_room_takes_the_place_of_one_replica() -> None:
    f = running(model("m", 3, 1, args=["v1"], **CANARY), nodes="a", count=3)
    edit(f, "v2", replicas=3, **CANARY)
    f.run(60)
    assert versions(f) == [("v1",), ("v1",), ("v2",)]


def test_a_first_version_has_no_canary() -> None:
    f = running(model("m", 3, 1, args=["v1"], **CANARY), nodes="ab", count=2)
    assert versions(f) == [("v1",)] * 3


@pytest.mark.parametrize("order", ["promote", "revert"])
def test_there_is_nothing_to_promote_or_revert_where_nothing_rolls(order: str) -> None:
    f = running(model("m"))
    verdict = f.order(order, model="m")
    assert verdict.judgement == "refused"
    assert "is not being rolled out" in verdict.problems[0]
    assert only(f, "m").stop is None


def test_what_is_displaced_beside_a_canary_comes_back_elsewhere_at_once_as_it_was() -> None:
    f = running(model("m", 4, 1, args=["v1"], **CANARY), nodes="abc", count=2)
    edit(f, "v2", replicas=4, **CANARY)
    f.run(60)
    for replica in published(f, "m"):
        f.routers[RouterId("r1")].begin(replica)  # so that none stops at once
    high = model("high", 1, 2, priority=5)
    f.catalog(catalog(f, model("m", 4, 1, args=["v2"], **CANARY), high))
    assert len([a for a in of(f, "m") if a.stop is None]) == 4
