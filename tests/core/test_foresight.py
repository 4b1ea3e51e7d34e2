"""What is foreseen of a catalog is what happens: the plan against the same core in the simulated fleet."""

import base64
from collections.abc import Mapping
from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw.carry import Seed, pack
from llmgw.foresight import Foresight, StepKind, foresee
from llmgw.ids import ReplicaId
from llmgw.plan import Judgement, Verdict
from llmgw.showing.reports import ReportRow, reports
from llmgw.snapshot import snapshot
from llmgw.stamp import plan_hash
from llmgw.wire import WeightsReport
from llmgw.world import InputKind, World
from sim.fleet import SimFleet
from tests.core.fleets import catalog, model, running
from tests.effort import examples

Places = dict[ReplicaId, tuple[str, str, tuple[str, ...]]]
LONG_S = 600.0


def places(world: World) -> Places:
    return {a.replica: (a.model, a.node, tuple(c.device for c in a.claims)) for a in world.assignments.values()}


def after(before: Places, found: Foresight) -> Places:
    """The places once every step of the plan is done."""
    end = dict(before)
    for outlook in found.models:
        for step in outlook.steps:
            gone = step.replaces if step.replaces is not None else step.replica
            end.pop(gone, None)
            if step.kind in (StepKind.START, StepKind.MOVE, StepKind.REPLACE):
                end[step.replica] = (step.model, step.node, tuple(step.devices))
    return end


def look(fleet: SimFleet, *models: dict[str, object], **fields: object) -> tuple[Mapping[str, object], Foresight]:
    raw = catalog(fleet, *models, **fields)
    return raw, foresee(fleet.world, raw, fleet.now_s)


def send(fleet: SimFleet, raw: Mapping[str, object], plan: str) -> Verdict:
    return fleet.send(InputKind.CATALOG, "apply-catalog", dict(raw), {"plan": plan})


EDITS = {
    "nothing": [model("a", 2), model("b")],
    "one more model": [model("a", 2), model("b"), model("c", 2)],
    "one leaves": [model("a", 2)],
    "a roll": [model("a", 2, args=["--new"]), model("b")],
    "a roll and one more": [model("a", 2, args=["--new"]), model("b", args=["--x"]), model("c")],
    "fewer replicas": [model("a", 1), model("b")],
    "more than fits": [model("a", 9), model("b")],
    "too large": [model("a", 2), model("b"), model("huge", devices=5)],
    "another in its place": [model("z", 2, devices=2)],
}


@pytest.mark.parametrize("models", EDITS.values(), ids=EDITS)
def test_what_is_foreseen_is_what_happens(models: list[dict[str, object]]) -> None:
    fleet = running(model("a", 2), model("b"), nodes="abc")
    before = places(fleet.world)
    raw, found = look(fleet, *models)
    fleet.catalog(raw)
    fleet.run(LONG_S)
    assert after(before, found) == places(fleet.world)


MODELS = st.lists(
    st.builds(
        lambda name, replicas, devices, args: model(name, replicas, devices, args=args),
        st.sampled_from("abcd"),
        st.integers(1, 3),
        st.integers(1, 2),
        st.sampled_from([[], ["--new"]]),
    ),
    max_size=4,
    unique_by=lambda m: m["name"],
)


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(old=MODELS, new=MODELS)
def test_any_edit_ends_with_as_many_endpoints_as_foreseen(
    old: list[dict[str, object]], new: list[dict[str, object]]
) -> None:
    fleet = running(*old, nodes="abc", count=2)
    fleet.run(LONG_S)
    raw, found = look(fleet, *new)
    fleet.catalog(raw)
    fleet.run(LONG_S)
    ready = [e.models[0] for e in fleet.world.table.endpoints.values()]
    told = {o.model: o.endpoints_after for o in found.models}
    assert {name: ready.count(name) for name in told} == told
    assert found.unforeseen == ()


def test_nothing_is_done_for_a_catalog_that_is_in_force() -> None:
    fleet = running(model("a", 2))
    _, found = look(fleet, model("a", 2))
    assert (found.judgement, found.is_empty, found.models) == (Judgement.UNCHANGED, True, ())


def test_a_roll_without_room_is_down_and_one_with_room_is_not() -> None:
    full = running(model("a", devices=2), nodes="a")
    _, found = look(full, model("a", devices=2, args=["--new"]))
    [told] = found.models
    assert (told.least, told.down_starts, [s.kind for s in told.steps]) == (0, 1, [StepKind.REPLACE])
    roomy = running(model("a", devices=2), nodes="ab")
    _, found = look(roomy, model("a", devices=2, args=["--new"]))
    [told] = found.models
    assert (told.least, told.down_starts, [s.kind for s in told.steps]) == (1, 0, [StepKind.MOVE])


def test_of_what_is_held_is_shown_what_it_leads_to_once_it_is_confirmed() -> None:
    fleet = running(*(model(n) for n in "abcd"))
    raw = {**catalog(fleet, model("a")), "allow_removals": False}
    held = foresee(fleet.world, raw, fleet.now_s)
    assert (held.judgement, held.counts) == (Judgement.HELD, {StepKind.STOP: 3})
    assert held.text.startswith("held: it removes 3 of the 4 models")
    assert held.hash == foresee(fleet.world, {**raw, "allow_removals": True}, fleet.now_s).hash


def test_what_is_refused_begins_nothing() -> None:
    fleet = running(*(model(n) for n in "abcd"))
    refused = foresee(fleet.world, {"models": [{"name": "a", "profiles": []}]}, fleet.now_s)
    assert refused.judgement is Judgement.REFUSED
    assert refused.problems
    assert refused.counts == {}


def test_weights_that_a_node_has_are_not_fetched_again() -> None:
    fleet = running(model("a"), nodes="a")
    source = "hf://org/repo"
    _, found = look(fleet, model("a"), model("b", weights=source))
    assert [(f.node, f.source, f.models) for f in found.fetches] == [("a", source, ("b",))]
    seen = fleet.world.seen
    [(id_, node)] = seen.items()
    here = replace(node, weights=(WeightsReport(source=source, path="/w", bytes=1, complete=True),))
    world = replace(fleet.world, seen={id_: here})
    raw = catalog(fleet, model("a"), model("b", weights=source))
    assert foresee(world, raw, fleet.now_s).fetches == ()


def test_what_is_under_way_is_told_apart() -> None:
    fleet = running(model("a"))
    fleet.catalog(catalog(fleet, model("a"), model("b")))
    _, found = look(fleet, model("a"), model("b"), model("c"))
    assert [text.split(" ")[0] for text in found.under_way] == ["b-1"]
    assert [s.model for o in found.models for s in o.steps] == ["c"]


def test_a_node_that_was_not_heard_is_named() -> None:
    fleet = running(model("a"))
    raw = catalog(fleet, model("a"))
    nodes = [*raw["nodes"], {"id": "new", "url": "http://new:1"}]  # type: ignore[misc]
    found = foresee(fleet.world, {**raw, "nodes": nodes}, fleet.now_s)
    assert found.unforeseen == ("not heard yet, so nothing is placed there: new",)


def test_the_hash_names_the_world_and_the_catalog_and_no_moment() -> None:
    fleet = running(model("a"), model("b"))
    raw, found = look(fleet, model("a"), model("b"), model("c"))
    assert foresee(fleet.world, raw, fleet.now_s + 5).hash == found.hash
    assert look(fleet, model("a"), model("b"), model("d"))[1].hash != found.hash
    fleet.order("cordon", node="a")
    assert foresee(fleet.world, raw, fleet.now_s).hash != found.hash


def test_a_catalog_with_the_hash_of_its_plan_is_taken_only_in_the_world_it_was_made_for() -> None:
    fleet = running(model("a"), model("b"))
    raw, found = look(fleet, model("a"), model("b"), model("c"))
    wrong = send(fleet, raw, "0" * 16)
    assert wrong.judgement is Judgement.REFUSED
    assert "look at it again with `llmgw plan`" in wrong.problems[0]
    assert send(fleet, raw, found.hash).judgement is Judgement.ACCEPTED
    again = send(fleet, raw, found.hash)
    assert again.judgement is Judgement.REFUSED


def test_a_copy_made_of_what_the_fleet_answers_has_the_same_hash_and_plan() -> None:
    fleet = running(model("a", 2), model("b"), nodes="abc")
    fleet.order("scale", model="b", replicas=1)
    raw, found = look(fleet, model("a", 2, args=["--new"]), model("c"))
    copy = copied(fleet)
    assert plan_hash(copy, found.digest) == found.hash
    assert foresee(copy, raw, fleet.now_s) == found


def copied(fleet: SimFleet) -> World:
    """The world as whoever asks the fleet puts it together."""
    world = fleet.world
    names = Seed.model_fields.keys() & {f.name for f in fields(World)}
    seed = Seed.model_validate({name: getattr(world, name) for name in names})
    parts = pack(world, fleet.catalog_raw, {})
    packed = {f.name: base64.b64encode(getattr(parts, f.name)).decode() for f in fields(parts)}
    carried = {"seed": seed.model_dump(mode="json"), "parts": packed}
    rows: list[ReportRow] = []
    page: int | None = 0
    while page is not None:
        answer = reports(world, "m", page, 2)
        rows += [ReportRow.model_validate_json(r.model_dump_json()) for r in answer.reports]
        page = answer.next_page
    found = snapshot(carried, rows)
    assert found.unreadable == {}
    return found.world
