"""What holds of every plan of places, whatever the fleet, the requests and the past."""

import os
import random
import subprocess
import sys
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.ids import ModelName
from llmgw.placing.best import plan
from llmgw.placing.holding import Holding
from llmgw.placing.need import Request
from llmgw.placing.placement import Placing
from tests.effort import examples

from .placings import Scene, applied, check, request, requests, scenes, site, sites, whole

MANY = settings(deadline=None, max_examples=examples(50))


def shown(placing: Placing) -> object:
    """The plan in values; names of places in the making do not count."""

    def place(h: Holding) -> tuple[object, ...]:
        return h.model, h.node, h.whole, h.shares, h.host_mib, h.way

    gone = sorted((d.holding.replica, d.by) for d in placing.displaced)
    return sorted(map(place, placing.starts)), gone, sorted(placing.lacking.items())


@MANY
@given(scenes())
def test_no_device_is_held_beyond_its_claims_and_every_limit_is_kept(scene: Scene) -> None:
    check(scene, scene.planned())


@MANY
@given(scenes(), st.integers(0, 2**32))
def test_the_order_of_nodes_models_and_replicas_changes_no_plan(scene: Scene, seed: int) -> None:
    rng = random.Random(seed)

    def mixed(items: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(rng.sample(items, len(items)))

    other = Scene(mixed(scene.sites), mixed(scene.requests), mixed(scene.held))  # type: ignore[arg-type]
    assert shown(other.planned()) == shown(scene.planned())


@MANY
@given(scenes())
def test_planning_leaves_the_field_as_it_was_and_says_the_same_again(scene: Scene) -> None:
    field = scene.field()
    before = [list(f) for f in field.yard.free], [dict(p) for p in field.yard.parts], list(field.yard.host)
    first = plan(field, scene.requests)
    assert ([list(f) for f in field.yard.free], [dict(p) for p in field.yard.parts], list(field.yard.host)) == before
    assert shown(plan(scene.field(), scene.requests)) == shown(first)


@MANY
@given(scenes())
def test_a_plan_carried_out_leaves_nothing_to_do(scene: Scene) -> None:
    after = applied(scene, scene.planned())
    again = after.planned()
    assert again.starts == ()
    assert again.displaced == ()


@MANY
@given(scenes())
def test_who_lacks_a_place_could_not_have_one_even_if_all_of_lower_rank_were_gone(scene: Scene) -> None:
    placing = scene.planned()
    after = applied(scene, placing)
    models = {r.model: r for r in scene.requests}
    for model in placing.lacking:
        asker = replace(models[model], count=1)
        left = tuple(h for h in after.held if h.rank >= asker.rank)
        alone = Scene(scene.sites, (asker, *(replace(r, count=0) for r in scene.requests if r.model != model)), left)
        free = alone.planned()
        assert free.lacking, f"{model} has a place on {[h.node for h in free.starts]}"


@MANY
@given(sites(), requests(), st.integers(0, 3))
def test_one_more_node_never_lowers_what_the_top_rank_has(here: tuple, asked: tuple, devices: int) -> None:  # type: ignore[type-arg]
    top = max(r.rank for r in asked)

    def met(scene: Scene) -> int:
        models = {r.model: r for r in scene.requests if r.rank == top}
        return sum(max(1, models[h.model].needs[0].devices) for h in scene.planned().starts if h.model in models)

    more = (*here, site("z9", 2 * devices, "a", host_mib=400))
    assert met(Scene(more, asked)) >= met(Scene(here, asked))


@MANY
@given(scenes())
def test_a_new_model_of_the_lowest_rank_moves_nobody(scene: Scene) -> None:
    settled = applied(scene, scene.planned())
    newcomer = request("zz", 3, whole(1), rank=-1)
    found = Scene(settled.sites, (*settled.requests, newcomer), settled.held).planned()
    assert found.displaced == ()
    assert {h.model for h in found.starts} <= {ModelName("zz")}


FOUND = """
from tests.core.placings import Scene, request, site, whole
sites = tuple(site(f"n{i}", 8, "abc"[i % 3], zone=str(i % 4)) for i in range(30))
asked = tuple(
    request(f"m{i}", 1 + i % 7, whole(1 << i % 4, "a", "b"), whole(1 << i % 4), rank=i % 3, spread_zones=i % 2 == 0)
    for i in range(40)
)
found = Scene(sites, asked).planned()
print([(h.model, h.node, h.whole) for h in found.starts], sorted(found.lacking.items()))
"""


def test_the_hash_seed_of_the_process_changes_no_plan() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", FOUND],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "77", "3000")
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 1_000


def test_a_request_for_nothing_plans_nothing() -> None:
    asked: tuple[Request, ...] = (request("m", 0),)
    assert Scene((site("n"),), asked).planned() == Placing()
    assert Scene((), (request("m", 2),)).planned().lacking == {"m": 2}
