"""Who is really displaced for whom, once a plan has moved its own places about."""

from llmgw.ids import ModelName
from llmgw.placing import succession
from llmgw.placing.holding import Holding
from llmgw.placing.need import Request
from llmgw.placing.planner import Planner
from llmgw.placing.seeker import Hit

from .placings import Scene, request, site, whole

LOW, MID, EQUAL, HIGH = ModelName("low"), ModelName("mid"), ModelName("equal"), ModelName("high")


def planner(*asked: Request, sites: int = 2, devices: int = 2) -> tuple[Planner, Holding]:
    """`low` runs on the whole of node 0; another plan is in the making."""
    held = Holding("low/0", LOW, 0, 0, whole=((1 << devices) - 1,), units=float(devices))
    nodes = tuple(site(f"n{n}", devices) for n in range(sites))
    made = Planner(Scene(nodes, (request("low", 0, whole(devices)), *asked), (held,)).field(), asked)
    [running] = made.yard.holdings[0].values()
    return made, running


def start(made: Planner, model: ModelName, node: int) -> Holding:
    asker = made.requests[model]
    place = made.field.seeker(asker.needs[0]).place_on(node)
    assert place is not None
    found = made.start(asker, Hit(node, 0, *place, 0.0))
    assert found is not None
    return found


def test_what_gave_way_to_one_that_has_its_place_is_left_as_it_is() -> None:
    made, low = planner(request("high", 1, rank=5))
    made.drop(low, HIGH)
    start(made, HIGH, 0)
    assert succession.settle(made) == {}
    assert made.displaced["low/0"].by == HIGH


def test_what_gave_way_to_one_that_went_elsewhere_stays() -> None:
    made, low = planner(request("high", 1, rank=5))
    made.drop(low, HIGH)
    start(made, HIGH, 1)
    assert succession.settle(made) == {LOW: -1}, "it is not missed any more"
    assert made.displaced == {}
    assert list(made.yard.holdings[0]) == ["low/0"]


def test_whoever_else_of_a_higher_rank_has_its_place_is_named_instead() -> None:
    made, low = planner(request("high", 1, rank=5), request("mid", 1, rank=3))
    made.drop(low, HIGH)
    start(made, HIGH, 1)
    start(made, MID, 0)
    assert succession.settle(made) == {}
    assert made.displaced["low/0"].by == MID


def test_of_several_heirs_the_one_on_its_devices_is_named() -> None:
    made, low = planner(request("high", 1, rank=5), request("mid", 1, rank=3), request("aside", 1, rank=9), devices=3)
    made.yard.give(low)
    low.whole = (0b011,)
    made.yard.take(low)
    start(made, ModelName("aside"), 0)
    made.drop(low, HIGH)
    start(made, HIGH, 1)
    start(made, MID, 0)
    succession.settle(made)
    assert made.displaced["low/0"].by == MID, "aside has a device that was free"


def test_an_equal_that_came_into_the_gap_goes_again_and_is_missed() -> None:
    made, low = planner(request("high", 1, rank=5), request("equal", 1))
    made.drop(low, HIGH)
    start(made, HIGH, 1)
    into_the_gap = start(made, EQUAL, 0)
    assert succession.settle(made) == {EQUAL: 1, LOW: -1}
    assert into_the_gap.replica not in made.new
    assert list(made.yard.holdings[0]) == ["low/0"]


def test_its_own_successor_elsewhere_is_not_needed_where_it_stays() -> None:
    made, low = planner(request("high", 1, rank=5), request("low", 1), sites=3)
    made.drop(low, HIGH)
    start(made, HIGH, 1)
    start(made, LOW, 2)
    assert succession.settle(made) == {LOW: 0}
    assert [h.model for h in made.new.values()] == [HIGH]


def test_a_place_is_shared_where_one_device_is() -> None:
    one, other = Holding("a", LOW, 0, 0, whole=(0b01, 0)), Holding("b", HIGH, 1, 0, whole=(0b10, 0))
    share = Holding("c", MID, 1, 0, shares=((0, 0, 5),))
    elsewhere = Holding("d", MID, 1, 1, whole=(0b11, 0))
    assert succession.share_a_place(one, share)
    assert not succession.share_a_place(one, other)
    assert not succession.share_a_place(other, share)
    assert not succession.share_a_place(one, elsewhere), "it is another node"
