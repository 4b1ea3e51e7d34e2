"""Refusals of a place: each names the right reason, counts every node once, and the nearest miss."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.ids import DeviceId, NodeId, PoolName
from llmgw.placing.need import Ask, Need, Request, Site, Slot
from llmgw.placing.planner import Planner
from llmgw.placing.refusals import refusal
from sim.node import SimNode, devices, with_inventory
from tests.effort import examples

from .fleets import catalog, fleet, model, of, why
from .placings import Scene, applied, request, scenes, site, whole

# --- the sentence --------------------------------------------------------------------------------------------------


def told(scene: Scene, asker: Request) -> str:
    """Why the first way of a request has no place now."""
    field = scene.field()
    return refusal(field, Planner(field, scene.requests).books, asker, asker.needs[0])


def after(scene: Scene) -> Scene:
    return applied(scene, scene.planned())


def told_of(sites: tuple[Site, ...], asker: Request, *others: Request) -> str:
    scene = after(Scene(sites, (asker, *others)))
    assert any(r.model == asker.model and r.count for r in scene.requests), "it has found its places"
    return told(scene, asker).partition(": ")[2]


def slot(name: str, **fields: object) -> Slot:
    return replace(Slot(DeviceId(name), "a", 100, 100), **fields)  # type: ignore[arg-type]


TWO = request("m", 1, whole(2, "a"))


@pytest.mark.parametrize(
    ("sites", "asker", "words"),
    [
        (
            (site("n0", closed="cordoned"), site("n1", closed="cordoned")),
            TWO,
            "2 nodes cordoned (nearest: n0 cordoned)",
        ),
        (
            (site("n0", closed="silent"), site("n1", 1)),
            TWO,
            "1 node silent; 1 node with 1 such device (nearest: n0 silent)",
        ),
        ((site("n0", kind="b"),), TWO, "1 node with 0 such devices"),
        ((site("n0", pool=PoolName("q")),), TWO, "1 node in other pools (nearest: n0 in other pools)"),
        (
            (site("n0", labels={"rack": "1"}), site("n1", 1)),
            request("m", 1, whole(2, labels=frozenset({("rack", "2")}))),
            "2 nodes without the label rack=2 (nearest: n0 without the label rack=2)",
        ),
        (
            (site("n0"), site("n1")),
            request("m", 1, whole(2, nodes=frozenset({NodeId("n7")}))),
            "2 nodes not on its list of nodes (nearest: n0 not on its list of nodes)",
        ),
        (
            (site("n0", host_mib=100), site("n1", 0, host_mib=900), site("n2")),
            request("m", 1, whole(2, host_mib=500)),
            "1 node short of 500 MiB of main memory; 1 node with 0 such devices; 1 node with unknown main memory"
            " (nearest: n0 short of 500 MiB of main memory, 100 MiB of it left)",
        ),
        (
            (site("n0", 0, host_mib=100), site("n1", 0, host_mib=300)),
            request("m", 1, Need(host_mib=500)),
            "2 nodes short of 500 MiB of main memory (nearest: n1 short of 500 MiB of main memory, 300 MiB of it left)",
        ),
        (
            (site("n0", blind="without a complete inventory (nvidia-smi failed)"),),
            TWO,
            "1 node without a complete inventory (nvidia-smi failed)"
            " (nearest: n0 without a complete inventory (nvidia-smi failed))",
        ),
        (
            (Site(NodeId("n0"), (slot("x", left_mib=0, trouble="out of order or quarantined"), slot("y"))),),
            TWO,
            "1 node with 1 free, 1 out of order or quarantined"
            " (nearest: n0 with 1 free, 1 out of order or quarantined: x)",
        ),
        (
            (
                Site(
                    NodeId("n0"), tuple(slot(f"x{i}", left_mib=0, trouble="out of order or quarantined") for i in "12")
                ),
            ),
            TWO,
            "1 node with 0 free, 2 out of order or quarantined",
        ),
        (
            (site("n0"), site("n1")),
            request("m", 3, whole(1), max_per_node=1),
            "2 nodes with as many of its replicas as one may have (1)"
            " (nearest: n1 with as many of its replicas as one may have (1))",
        ),
    ],
)
def test_an_odd_situation_is_told_as_what_it_is(sites: tuple[Site, ...], asker: Request, words: str) -> None:
    found = told_of(sites, asker)
    assert sorted(_nodes_of(found)) == sorted(_nodes_of(words))
    assert found.partition("nearest")[2].replace("n1", "n0") == words.partition("nearest")[2].replace("n1", "n0")


def _nodes_of(text: str) -> list[str]:
    return text.partition(" (nearest")[0].split("; ")


def test_an_empty_fleet_says_so() -> None:
    assert told(Scene((), (TWO,)), TWO).endswith("the fleet has no nodes")


def test_a_model_of_its_group_keeps_another_out() -> None:
    first, second = request("a", 2, whole(8), rank=1, group="g"), request("b", 1, whole(1), group="g")
    found = told_of((site("n0"), site("n1")), second, first)
    assert found.startswith("2 nodes with another model of group g")


def test_of_several_asks_the_one_that_lacks_is_told() -> None:
    both = Site(
        NodeId("n0"), (slot("x"), slot("y", kind="b"), slot("z", kind="b", left_mib=0, trouble="used by python3"))
    )
    asker = request("m", 1, Need((Ask(1, ("a",)), Ask(2, ("b",)))))
    assert told_of((both,), asker).startswith("1 node with 1 free, 1 used by python3")


@settings(deadline=None, max_examples=examples(100))
@given(scenes(), st.data())
def test_the_counts_of_every_refusal_add_up_to_the_number_of_nodes(scene: Scene, data: st.DataObject) -> None:
    later = after(scene)
    lacking = sorted((r for r in later.requests if r.count), key=lambda r: r.model)
    for asker in lacking[:1] and [data.draw(st.sampled_from(lacking))]:
        for need in asker.needs:
            text = told(later, replace(asker, needs=(need,)))
            counts = [int(n) for n in re.findall(r"(?:: |; )(\d+) nodes? ", text)]
            assert sum(counts) == len(later.sites), text
            assert text == told(later, replace(asker, needs=(need,)))


# --- devices that are smaller than they look, or cannot be named ----------------------------------------------------


def test_what_driver_and_firmware_keep_comes_off_what_is_shared_and_is_named() -> None:
    f = fleet("a", count=1)
    node = f.nodes[NodeId("a")]
    f.nodes[NodeId("a")] = with_inventory(
        node, tuple(d.model_copy(update={"baseline_mib": 600, "memory_mib": 24_000}) for d in node.devices)
    )
    claims = {"fits": "22GiB", "not": 23_000}
    models = [
        model(name, profile={"accelerators": [{"count": 1, "claim": claim, "memory": 24_000}]})
        for name, claim in claims.items()
    ]
    f.catalog(catalog(f, *models, policy={"max_shared_percent": 97}))
    f.run(20)
    assert len(of(f, "fits")) == 1, "97 % of 23,400 MiB hold 22 GiB"
    assert why(f, "model/not").endswith(
        "1 node with 0 such devices (1 but for 0.586 GiB that driver and firmware keep)"
    )


def test_a_device_of_which_much_is_kept_is_not_as_large_as_it_says() -> None:
    f = fleet("a", count=2)
    node = f.nodes[NodeId("a")]
    kept = node.devices[0].model_copy(update={"baseline_mib": 30_000})
    f.nodes[NodeId("a")] = with_inventory(node, (kept, *node.devices[1:]))
    large = model("large", replicas=2, profile={"accelerators": [{"count": 1, "memory": "70GiB"}]})
    f.catalog(catalog(f, large, model("any")))
    f.run(20)
    assert [c.device for a in of(f, "large") for c in a.claims] == [node.devices[1].id]
    assert [c.device for a in of(f, "any") for c in a.claims] == [node.devices[0].id]


def test_a_slice_does_not_go_to_an_engine_that_takes_devices_by_number() -> None:
    f = fleet("a", count=0)
    slices = tuple(
        device.model_copy(update={"id": DeviceId(f"MIG-{i}"), "vendor": "nvidia"})
        for i, device in enumerate(devices("a", 2, kind="NVIDIA H100 MIG 3g.40gb", memory_mib=40_000))
    )
    f.nodes[NodeId("a")] = SimNode(NodeId("a"), slices)
    ask = {"accelerators": [{"count": 1, "kind": "mig 3g.40gb"}]}
    by_uuid = {"base": "vllm", "devices": {"naming": "uuid", "variables": ["CUDA_VISIBLE_DEVICES"]}}
    numbered = model("numbered", weights="hf://org/m", profile={"engine": "vllm", **ask})
    named = model("named", weights="hf://org/m", profile={"engine": "vllm-by-uuid", **ask})
    f.catalog(catalog(f, numbered, named, engines={"vllm-by-uuid": by_uuid}))
    f.run(20)
    assert len(of(f, "named")) == 1
    assert of(f, "numbered") == []
    assert why(f, "model/numbered").endswith("1 node with 0 such devices (2 that cannot be named to its engine)")
