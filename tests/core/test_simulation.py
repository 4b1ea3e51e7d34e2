"""The real core over model nodes and routers, under stories of faults made from seeds (`sim`).

`make stories` tells thousands. A story that ends badly is told again with as few happenings as it needs.
"""

import pytest

from llmgw.ids import NodeId
from sim import promises, story
from sim.faults import Happening
from sim.fleet import SimFleet
from tests.effort import examples

SEEDS = examples(1_000)
AT_ONCE = 20


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_whatever_goes_wrong_no_promise_is_broken_and_all_is_well_afterwards(first: int) -> None:
    for seed in range(first, min(first + AT_ONCE, SEEDS)):
        if told := story.ending(seed):
            pytest.fail(f"seed {seed}, these happenings are enough:\n{told}", pytrace=False)


ENDED_BADLY = {
    51: "a late start was taken by a new boot",
    74: "a node that was drained fell silent",
    94: "requests in flight were forgotten when the state was carried over",
    119: "requests in flight were forgotten when the state was carried over",
    996: "a repeat of a start, newer than the one that was taken, reached the next boot",
    1079: "a repeat of a start that was taken reached the next boot",
    1287: "the node of what became surplus had just fallen silent",
    1802: "an unreadable replica was gone while another node was silent, and its route stayed",
    3048: "one was displaced for another that the same plan moved elsewhere, and a third got its device",
    3156: "what was displaced beside a canary was not missed",
    3184: "a router was wiped before its answer came",
    3918: "a repeat of a start that was refused came when it was refused no more",
    5285: "starts failed on three nodes, but it had been ready between them",
    4972: "a replica beside a canary was started and stopped over and over",
    5070: "the same, with more of the new version than the canary allows",
    5141: "a replica beside a canary was started and stopped over and over",
    6111: "what was about to stop counted beside a canary, and a replica was missed only later",
    3966: "the record of a replica that made room was spoilt, and another went on waiting for its place",
    7769: "one was displaced for the other of two replicas of a model, whose record was lost then",
}


GATHERED = 4565
"""From this seed on stories were told with news gathered; before, everything was seen, and decided, at once."""


@pytest.mark.parametrize("seed", ENDED_BADLY)
def test_stories_that_once_ended_badly_end_well(seed: int) -> None:
    story.tell(seed, story.story(seed), eager=seed < GATHERED)


def test_a_story_is_cut_down_to_what_breaks_the_same_promise_with_all_that_mends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = [
        Happening(10.0, "scale", "small", 2),
        Happening(20.0, "cut", "node/b"),
        Happening(30.0, "reboot", "a"),
        Happening(40.0, "heal", "node/b"),
        Happening(50.0, "carry over"),
    ]

    def nobody_reboots(fleet: SimFleet) -> None:
        assert fleet.nodes[NodeId("a")].boot == "boot-1", "a was booted"

    def nobody_is_cut(fleet: SimFleet) -> None:
        assert not any("cut" in line for line in fleet.story), "b was cut"

    monkeypatch.setattr(promises, "all_is_well", nobody_is_cut)
    assert story.shortest(3, told)[0] == [told[1], told[3]]
    monkeypatch.setattr(promises, "ALL", (*promises.ALL, nobody_reboots))
    fewest, end = story.shortest(3, told)
    assert fewest == [told[2]]
    assert "a was booted" in end
    assert story.shortest(3, told[:1]) == (told[:1], "")


def test_the_same_seed_tells_the_same_story() -> None:
    first, again = (story.tell(3, story.story(3)) for _ in range(2))
    assert first.story == again.story
    assert first.world == again.world
