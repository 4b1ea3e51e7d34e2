"""What is kept between passes changes no decision."""

import copy

from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.decide import decide
from llmgw.memo import Latest, same_as
from llmgw.plan import Plan
from llmgw.world import World
from tests.core.test_decide_properties import SEEDS, moments
from tests.effort import examples


def afresh(moment: tuple[World, float]) -> Plan:
    """The plan of an equal world none of whose values were ever seen: nothing that is kept can be used for it."""
    world, now_s = moment
    return decide(copy.deepcopy(world), now_s)


@settings(deadline=None, max_examples=examples(25))
@given(st.integers(0, SEEDS - 1), st.integers(0, 40), st.integers(2, 12))
def test_passes_one_after_the_other_decide_what_each_would_alone(seed: int, start: int, number: int) -> None:
    story = moments(seed)
    walk = story[start % len(story) :][:number]
    alone = [afresh(moment) for moment in walk]
    assert [decide(world, now_s) for world, now_s in walk] == alone


@settings(deadline=None, max_examples=examples(25))
@given(st.lists(st.tuples(st.integers(0, SEEDS - 1), st.integers(0, 10_000)), min_size=2, max_size=8))
def test_nor_do_passes_of_fleets_of_one_name_disturb_each_other(picks: list[tuple[int, int]]) -> None:
    walk = [moments(seed)[number % len(moments(seed))] for seed, number in picks]
    alone = [afresh(moment) for moment in walk]
    assert [decide(world, now_s) for world, now_s in walk] == alone


def test_an_answer_is_kept_only_for_the_very_same_values() -> None:
    memo: Latest[str, list[int]] = Latest(8)
    one, equal = [1], [1]
    first = memo.get("a", (one,), lambda: [*one])
    assert memo.get("a", (one,), lambda: [*one]) is first
    assert memo.get("a", (equal,), lambda: [*equal]) is not first
    assert memo.get("a", (equal, one), lambda: [2]) == [2], "more values are other values"
    assert memo.get("b", (equal,), lambda: [3]) == [3], "each name has its own"
    assert memo.last("a") == [2]


def test_only_so_many_names_are_kept() -> None:
    memo: Latest[int, int] = Latest(3)
    for name in range(10):
        memo.get(name, (), lambda n=name: n)  # type: ignore[misc]
    assert sum(memo.last(name) is not None for name in range(10)) <= 3


def test_a_group_without_a_change_stays_the_same_value() -> None:
    a, b = object(), object()
    before = (a, b)
    assert same_as(before, (a, b)) is before
    assert same_as(before, (b, a)) == (b, a)
    assert same_as(before, (a,)) == (a,)
    assert same_as(None, before) is before
