"""A plan is large enough that a cold fleet takes few of them, and never too large for a history."""

import json
import random
import uuid

import pytest
from pydantic import ValidationError
from temporalio.contrib.pydantic import pydantic_data_converter

from llmgw import packing, plan_size
from llmgw.catalog import Catalog
from llmgw.decide import decide
from llmgw.ids import DeviceId, NodeId
from llmgw.merge import merge
from llmgw.plan import Plan
from llmgw.wire import Device, Inventory, Owner, Token
from llmgw.world import Seen, World

NOW_S = 1_000_000.0


def hexes(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128)))


def cold(nodes: int, devices: int, models: list[dict[str, object]]) -> World:
    """A fleet of which everything is known and nothing started, with ids as random as real ones."""
    rng = random.Random(7)
    seen = {NodeId(f"n{i:04d}"): _seen(rng, f"n{i:04d}", devices) for i in range(nodes)}
    raw = {"nodes": [{"id": id_, "url": f"http://{id_}:1"} for id_ in seen], "models": models}
    return World("f", "i", 1, 0, catalog=Catalog.model_validate(raw), seen=seen)


def _seen(rng: random.Random, node: str, number: int) -> Seen:
    ids = [DeviceId(f"GPU-{hexes(rng)}") for _ in range(number)]
    found = tuple(Device(id=id_, index=n, kind="h100", vendor="nvidia", memory_mib=81_559) for n, id_ in enumerate(ids))
    return Seen(
        node=NodeId(node),
        machine=hexes(rng),
        boot=hexes(rng),
        instance=hexes(rng),
        revision=1,
        token=Token(installation="i", fleet="f", epoch=1, seq=1),
        owner=Owner(installation="i", fleet="f"),
        inventory=Inventory(devices=found, host_memory_mib=1 << 20),
        replicas=(),
        quarantined={},
    )


def plans(world: World) -> list[Plan]:
    """The passes until nothing is left to decide."""
    made: list[Plan] = []
    while not made or made[-1].more:
        made.append(decide(world, NOW_S))
        world = merge(world, made[-1], NOW_S, world.catalog)
        assert len(made) < 500, "it never ends"
    return made


def model(name: str, replicas: int, devices: int) -> dict[str, object]:
    profile = {"name": "p", "engine": "stub", "accelerators": [{"count": devices}] if devices else []}
    return {"name": name, "replicas": replicas, "profiles": [profile]}


def random_names(number: int, chars: int) -> list[str]:
    rng = random.Random(3)
    letters = [chr(c) for c in range(0x4E00, 0x4E00 + 5_000)]
    return ["".join(rng.choices(letters, k=chars)) for _ in range(number)]


FLEETS = {
    "many small ones": (100, 8, [model(f"m{n}", 40, 1) for n in range(20)]),
    "whole nodes": (150, 8, [model(f"m{n}", 15, 8) for n in range(10)]),
    "without devices": (20, 0, [model(f"m{n}", 100, 0) for n in range(20)]),
    "names that cannot be packed": (60, 8, [model(name, 1, 1) for name in random_names(400, 60)]),
    "many devices": (60, 128, [model("m", 60, 128)]),
}


@pytest.mark.parametrize("fleet", FLEETS)
def test_no_plan_of_a_cold_fleet_is_larger_than_a_payload_may_be(fleet: str) -> None:
    nodes, devices, models = FLEETS[fleet]
    made = plans(cold(nodes, devices, models))
    wanted = sum(int(str(m["replicas"])) for m in models)
    assert len({a.replica for plan in made for a in plan.assign}) == wanted
    for plan in made:
        told = plan.model_dump_json()
        assert len(told.encode()) <= packing.MAX_BYTES
        assert Plan.model_validate_json(told) == plan


def test_a_fleet_of_a_hundred_nodes_is_filled_in_few_passes() -> None:
    nodes, devices, models = FLEETS["many small ones"]
    assert len(plans(cold(nodes, devices, models))) <= 3


def test_the_parts_of_the_largest_plan_fit_together() -> None:
    assert plan_size.MAX_START_BYTES + plan_size.MAX_KNOWN_BYTES + 28 * plan_size.MAX_WAITING < packing.MAX_BYTES


def test_a_small_plan_is_readable_in_a_history_and_a_large_one_packed() -> None:
    small = Plan(wake_at_s=7.0)
    assert json.loads(small.model_dump_json())["wake_at_s"] == 7.0
    large = plans(cold(20, 8, [model("m", 160, 1)]))[0]
    assert isinstance(json.loads(large.model_dump_json()), str), "an earlier version must not take it for an empty plan"
    assert isinstance(large.model_dump(), dict)


async def test_a_large_plan_goes_through_the_converter_of_the_plane() -> None:
    large = plans(cold(20, 8, [model("m", 160, 1)]))[0]
    payloads = await pydantic_data_converter.encode([large])
    assert len(payloads[0].data) < 32 * 1024
    assert await pydantic_data_converter.decode(payloads, [Plan]) == [large]


@pytest.mark.parametrize("text", ["", "zlib:", "zlib:!!", "zlib:AAAA", "plan", "zlib:eJwDAAAAAAE="])
def test_what_is_no_packed_plan_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        Plan.model_validate_json(json.dumps(text))
