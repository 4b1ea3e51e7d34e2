"""What holds for deciding whatever the world looks like: worlds are taken from the midst of simulated stories."""

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw import accepted, views
from llmgw.catalog import Catalog
from llmgw.decide import decide
from llmgw.merge import accepted_catalog, merge
from llmgw.plan import Plan
from llmgw.recent import Recent
from llmgw.world import Seen, World
from sim import faults, story
from tests.effort import examples

T = TypeVar("T")
V = TypeVar("V")
SEEDS = 6


@cache
def moments(seed: int) -> list[tuple[World, float]]:
    """Worlds as they were handed to `decide` in a story, with the time; most of them leave something to decide."""
    fleet = story.fleet(seed)
    found: list[tuple[World, float]] = []
    fleet.checks.append(lambda f: found.append((f.world, f.clock_s)))
    fleet.catalog(faults.catalog(fleet, 0))
    for happening in story.story(seed):
        fleet.run(max(0.0, 1_000.0 + happening.at_s - fleet.now_s))
        faults.WHAT[happening.what](fleet, happening)
        found.append((fleet.world, fleet.clock_s))
    return found


def after(world: World, plan: Plan, now_s: float) -> World:
    """The world after a plan, with the catalog that the plan may have put in force."""
    found = accepted_catalog(plan.verdicts)
    raw = next((i.raw for i in world.inbox if found is not None and i.arrival == found.arrival), None)
    return merge(world, plan, now_s, world.catalog if raw is None else accepted.catalog_of(raw))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[World, float]:
    """A world of a story, perhaps seen later than it was made."""
    world, now_s = draw(st.sampled_from(moments(draw(st.integers(0, SEEDS - 1)))))
    return world, now_s + draw(st.sampled_from([0.0, 1.0, 12.0, 70.0, 700.0]))


def shuffled(rng: random.Random, items: Mapping[T, V]) -> dict[T, V]:
    keys = list(items)
    rng.shuffle(keys)
    return {key: items[key] for key in keys}


def permuted(world: World, rng: random.Random) -> World:
    """The same world, everything learned and written in another order."""
    catalog = world.catalog
    if catalog is not None:
        parts = {
            part: rng.sample(items := getattr(catalog, part), len(items)) for part in ("models", "nodes", "routers")
        }
        catalog = catalog.model_copy(update={part: tuple(items) for part, items in parts.items()})
        assert isinstance(catalog, Catalog)
    seen = {id_: _report(node, rng) for id_, node in shuffled(rng, world.seen).items()}
    table = replace(
        world.table, models=shuffled(rng, world.table.models), endpoints=shuffled(rng, world.table.endpoints)
    )
    return replace(
        world,
        catalog=catalog,
        seen=seen,
        table=table,
        assignments=shuffled(rng, world.assignments),
        specs=shuffled(rng, world.specs),
        sent=shuffled(rng, world.sent),
        refused=shuffled(rng, world.refused),
        known=shuffled(rng, world.known),
        silence=shuffled(rng, world.silence),
        routers=shuffled(rng, world.routers),
        waiting=shuffled(rng, world.waiting),
        outbox=shuffled(rng, world.outbox),
        calls=shuffled(rng, world.calls),
    )


def _report(seen: Seen, rng: random.Random) -> Seen:
    devices = tuple(rng.sample(seen.inventory.devices, len(seen.inventory.devices)))
    inventory = seen.inventory.model_copy(update={"devices": devices})
    return replace(seen, inventory=inventory, replicas=tuple(rng.sample(seen.replicas, len(seen.replicas))))


def shown(plan: Plan) -> dict[str, object]:
    """What a plan changes; identities list devices in the order of the report, which is nobody's decision."""
    return plan.model_dump(exclude={"known"}, exclude_defaults=True)


@settings(deadline=None, max_examples=examples(40))
@given(worlds(), st.integers(0, 2**32))
def test_the_order_in_which_things_were_learned_or_written_changes_no_decision(
    moment: tuple[World, float], seed: int
) -> None:
    world, now_s = moment
    assert shown(decide(permuted(world, random.Random(seed)), now_s)) == shown(decide(world, now_s))


@settings(deadline=None, max_examples=examples(40))
@given(worlds())
def test_deciding_changes_nothing_it_was_given_and_says_the_same_again(moment: tuple[World, float]) -> None:
    world, now_s = moment
    before = repr(world)
    assert decide(world, now_s) == decide(world, now_s)
    assert repr(world) == before


@settings(deadline=None, max_examples=examples(40))
@given(worlds())
def test_a_plan_merged_leaves_nothing_to_decide_but_to_tell(moment: tuple[World, float]) -> None:
    world, now_s = moment
    for _ in range(6):
        plan = decide(world, now_s)
        world = after(world, plan, now_s)
        if not plan.more:
            break
    again = decide(world, now_s)
    told = again.model_copy(update={"kick": (), "push": (), "wake_at_s": None, "phase": ""})
    assert shown(told) == {}, "only lanes whose turn it is may be set going once more"


@settings(deadline=None, max_examples=examples(40))
@given(worlds())
def test_the_phase_that_a_plan_names_is_that_of_the_world_after_it(moment: tuple[World, float]) -> None:
    world, now_s = moment
    plan = decide(world, now_s)
    assert plan.phase == views.phase(after(world, plan, now_s), Recent(), now_s)


@settings(deadline=None, max_examples=examples(40))
@given(worlds())
def test_a_plan_wakes_later_than_now_and_at_a_whole_second(moment: tuple[World, float]) -> None:
    wake_at_s = decide(*moment).wake_at_s
    assert wake_at_s is None or (wake_at_s > moment[1] and wake_at_s == int(wake_at_s))


@settings(deadline=None, max_examples=examples(40))
@given(worlds(), st.sampled_from([0.1, 0.5, 0.9]))
def test_nothing_changes_by_itself_before_the_plan_wakes(moment: tuple[World, float], share: float) -> None:
    world, now_s = moment
    for _ in range(6):
        plan = decide(world, now_s)
        world = after(world, plan, now_s)
        if not plan.more:
            break
    quiet = decide(world, now_s)
    until_s = quiet.wake_at_s if quiet.wake_at_s is not None else now_s + 10_000.0
    later = decide(world, now_s + share * (until_s - 1.0 - now_s)) if until_s - 1.0 > now_s else quiet
    assert shown(later.model_copy(update={"wake_at_s": None})) == shown(quiet.model_copy(update={"wake_at_s": None}))


@settings(deadline=None, max_examples=examples(30))
@given(worlds())
def test_a_plan_reads_the_same_after_its_way_through_a_history(moment: tuple[World, float]) -> None:
    plan = decide(*moment)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


TOLD = """
from sim import story
made = story.tell(5, story.story(5))
print(made.story, made.world.table.digest, sorted(made.world.assignments.items()))
"""


def test_the_hash_seed_of_the_process_changes_no_decision() -> None:
    outputs = set()
    for hash_seed in ("1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", TOLD], env=environment, capture_output=True, check=True, timeout=120
        )
        outputs.add(hashlib.sha256(done.stdout).hexdigest())
        assert len(done.stdout) > 1_000
    assert len(outputs) == 1
