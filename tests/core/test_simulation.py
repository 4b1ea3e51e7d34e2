"""The real core over model nodes and routers, under stories of faults made from seeds (`sim`).

More stories: `SIM_SEEDS=500 python -m pytest tests/core/test_simulation.py`. A story that ends badly is told again
with as few happenings as it needs.
"""

import os

import pytest

from sim import story

SEEDS = int(os.environ.get("SIM_SEEDS", "48"))
GROUPS = 8


@pytest.mark.parametrize("group", range(GROUPS))
def test_whatever_goes_wrong_no_promise_is_broken_and_all_is_well_afterwards(group: int) -> None:
    for seed in range(group, SEEDS, GROUPS):
        happenings = story.story(seed)
        try:
            story.tell(seed, happenings)
        except AssertionError:
            fewest, end = story.shortest(seed, happenings)
            told = "\n".join(map(str, fewest))
            pytest.fail(f"seed {seed}, these happenings are enough:\n{told}\n\n{end}", pytrace=False)


@pytest.mark.parametrize("seed", [51, 74, 94, 119, 996, 1079, 1287, 1859, 3184])
def test_stories_that_once_ended_badly_end_well(seed: int) -> None:
    """A late start taken by a new boot; a drain of a node that falls silent; requests in flight that were forgotten
    when the state was carried over (twice); a repeat of a start that reached the next boot, newer than what had been
    taken and the same; surplus whose node falls silent (twice); a router wiped before its answer came."""
    story.tell(seed, story.story(seed))


def test_the_same_seed_tells_the_same_story() -> None:
    first, again = (story.tell(3, story.story(3)) for _ in range(2))
    assert first.story == again.story
    assert first.world == again.world
