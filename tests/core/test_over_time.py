"""What holds over time and not only of one plan: no priority is passed over while stops take minutes, and whatever
stops has a reason that holds."""

import random
from dataclasses import replace

import pytest

from llmgw.demand import desired
from llmgw.world import StopCause, StopIntent
from sim import promises, reasons
from sim.fleet import SimFleet
from sim.node import SimNode
from tests.effort import examples

from .fleets import catalog, fleet, model, of, running

MODELS = "abcdef"


class Queue:
    """Since when each model of one device has lacked a place, and who came past it meanwhile."""

    def __init__(self) -> None:
        self.since: dict[str, int] = {}
        self.known: set[str] = set()
        self.passes = 0

    def look(self, f: SimFleet) -> None:
        world = f.world
        assert world.catalog is not None
        self.passes += 1
        rank = {m.name: m.priority for m in world.catalog.models}
        there = {m.name: sum(1 for a in of(f, m.name) if a.stop is None) for m in world.catalog.models}
        lacking = {m.name for m in world.catalog.models if there[m.name] < desired(world, m, f.clock_s)}
        waiting = [name for name in lacking if self.since.get(name, self.passes) < self.passes - 1]
        for assignment in world.assignments.values():
            if assignment.replica not in self.known and assignment.model in rank:
                passed = [name for name in waiting if rank[name] > rank[assignment.model]]
                assert not passed, f"{assignment.replica} gets a place while {passed} lack one"
        self.known |= set(world.assignments)
        self.since = {name: self.since.get(name, self.passes) for name in lacking}


def edit(f: SimFleet, rng: random.Random) -> None:
    """Other numbers for the same models: each has its priority for good, and all together want more than there is."""
    counts = {name: rng.choice((0, 1, 1, 2, 3)) for name in MODELS}
    models = [model(name, counts[name], priority=MODELS.index(name) // 2) for name in MODELS]
    f.catalog(catalog(f, *models, policy={"removal_grace_s": 0.0}))


def slow_stops(node: SimNode, rng: random.Random) -> None:
    node.stop_s = rng.choice((1.0, 60.0, 240.0))


@pytest.mark.parametrize("seed", range(examples(25)))
def test_nobody_of_a_lower_priority_gets_a_place_while_a_higher_one_waits_however_long_stops_take(seed: int) -> None:
    rng, queue = random.Random(seed), Queue()
    f = fleet("abc", 2)
    f.checks = [*promises.ALL, queue.look]
    for _ in range(12):
        for node in f.nodes.values():
            slow_stops(node, rng)
        edit(f, rng)
        f.run(rng.choice((2.0, 10.0, 45.0, 130.0)))
    for node in f.nodes.values():
        node.stop_s = 1.0
    f.run(700)
    assert f.world.catalog is not None
    left = 6
    for wanted in sorted(f.world.catalog.models, key=lambda m: -m.priority):
        have = len(of(f, wanted.name))
        better = sum(1 for m in f.world.catalog.models if m.priority >= wanted.priority for _ in of(f, m.name))
        assert have == wanted.replicas.min or better == left, f"{wanted.name} has {have}, and {better} are not below it"


@pytest.mark.parametrize("cause", StopCause)
def test_a_stop_without_a_reason_that_holds_is_found_out(cause: StopCause) -> None:
    f = running(model("m", 2))
    reasons.every_stop_has_a_reason_that_holds(f)
    [first, _] = of(f, "m")
    stopped = replace(first, stop=StopIntent(cause, "for no reason", f.now_s, -1))
    f.world = replace(f.world, assignments={**f.world.assignments, first.replica: stopped})
    with pytest.raises(AssertionError, match="which is not so"):
        reasons.every_stop_has_a_reason_that_holds(f)
