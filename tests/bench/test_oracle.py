"""The planner beside the best plan there is, on small fleets of fixed seeds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import exact
from bench.fleet.small import SORTS, Instance, instances
from bench.oracle import compare
from llmgw.ids import DeviceId, ModelName, NodeId
from llmgw.placing.holding import Holding
from llmgw.placing.need import Ask, Need, Request, Site, Slot
from tests.effort import examples

NEARLY_ALL, MOST = 95.0, 65.0
"""Percent of so few instances; `python -m bench.oracle` says how many it is of many."""


@pytest.mark.parametrize("name", SORTS)
def test_nearly_every_plan_for_a_small_fleet_is_the_best_there_is(name: str) -> None:
    found = compare(SORTS[name], 20, 5)
    assert found.optimal_percent >= (MOST if SORTS[name].past else NEARLY_ALL), found


@settings(deadline=None, max_examples=examples(10))
@given(st.sampled_from(sorted(SORTS)), st.integers(0, 2**16))
def test_no_plan_is_worth_more_than_the_best_one(name: str, seed: int) -> None:
    for instance in instances(SORTS[name], 1, seed):
        assert exact.met(instance, instance.planned()) <= exact.best(instance)


def test_the_best_plan_puts_ranks_first_and_may_move_what_runs() -> None:
    slots = {name: tuple(Slot(DeviceId(f"{name}-{d}"), "a") for d in range(2)) for name in ("n0", "n1")}
    sites = tuple(Site(NodeId(name), slots[name]) for name in slots)
    small = Request(ModelName("small"), (Need((Ask(1, ("a",)),)),), 0, 0, desired=2)
    large = Request(ModelName("large"), (Need((Ask(2, ("a",)),)),), 1, 0, desired=1)
    held = tuple(Holding(f"r{n}", small.model, 0, n, (1,), units=1.0) for n in range(2))
    equals = Instance(sites, (small, large), held)
    assert exact.best(equals) == [4]
    assert exact.met(equals, equals.planned()) == [2], "what runs is never moved for its equal"
    above = Instance(sites, (small, Request(large.model, large.needs, 1, 1, desired=1)), held)
    assert exact.best(above) == [2, 2]
    assert exact.met(above, above.planned()) == [2, 2], "what is lower makes room and finds a place elsewhere"
