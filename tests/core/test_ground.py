"""Places that a plan reserves and that are then not taken: nobody else loses anything by them."""

from dataclasses import replace

from llmgw import accepted
from llmgw.catalog import Catalog
from llmgw.draft import Draft
from llmgw.ground import Ground, Spot
from llmgw.ids import ModelName
from llmgw.nodes import survey
from llmgw.wire import DeviceClaim
from llmgw.world import Assignment, Part
from sim.fleet import SimFleet

from .fleets import catalog, model, only, running


def ground(f: SimFleet, *models: dict[str, object]) -> tuple[Draft, Ground, Catalog]:
    """A pass over the fleet with another catalog, nothing decided yet."""
    wanted = accepted.catalog_of(catalog(f, *models))
    assert wanted is not None
    world = replace(f.world, catalog=wanted)
    draft = Draft.over(world, f.now_s, survey(world), "")
    return draft, Ground.of(draft, wanted), wanted


def find(made: Ground, wanted: Catalog, name: str) -> Spot | tuple[str, ...]:
    found = wanted.model(ModelName(name))
    assert found is not None
    return made.find(found, found.profiles, avoid=frozenset(), never=frozenset())


def claims(spot: Spot | tuple[str, ...]) -> tuple[DeviceClaim, ...]:
    assert isinstance(spot, Spot), spot
    return spot.claims


def test_what_was_to_give_way_for_a_place_that_nobody_took_keeps_its_own() -> None:
    f = running(model("low"), nodes="a", count=1)
    draft, made, wanted = ground(f, model("low"), model("high", priority=5), model("other"))
    assert claims(find(made, wanted, "high")) == only(f, "low").claims
    made.turn_over(ModelName("high"))
    assert not isinstance(find(made, wanted, "other"), Spot), "the device is still held"
    assert draft.assignments[only(f, "low").replica].stop is None


def test_it_gives_way_to_whoever_else_was_to_have_its_place() -> None:
    f = running(model("low", 1, 2), nodes="a", count=2)
    draft, made, wanted = ground(f, model("low", 1, 2), model("high", priority=5), model("next", priority=4))
    claims(find(made, wanted, "high"))
    made.turn_over(ModelName("high"))
    spot = find(made, wanted, "next")
    assert isinstance(spot, Spot)
    taken = replace(only(f, "low"), model=ModelName("next"), parts=(Part(spot.view.node.id, spot.claims),))
    new: Assignment = replace(taken, replica=type(taken.replica)("next-1"))
    draft.place(new)
    made.take(new)
    stop = draft.assignments[only(f, "low").replica].stop
    assert stop is not None
    assert stop.by == new.replica


def test_what_was_planned_beyond_what_is_taken_is_free_for_those_that_follow() -> None:
    f = running(model("low"), nodes="a", count=3)
    _, made, wanted = ground(f, model("low"), model("high", 2, priority=5), model("other", 1, 2))
    claims(find(made, wanted, "high"))
    made.turn_over(ModelName("high"))
    assert len(claims(find(made, wanted, "other"))) == 2
