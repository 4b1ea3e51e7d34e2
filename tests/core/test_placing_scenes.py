"""Where replicas go and what gives way, told as scenes over simulated nodes: the rules an operator can write."""

import pytest

from llmgw.ids import NodeId, RouterId
from llmgw.world import StopCause
from sim.fleet import SimFleet
from sim.node import SimNode, devices, with_inventory

from .fleets import START_S, catalog, fleet, ids, model, of, only, places, published, running, state, why


def shown(f: SimFleet, *models: dict[str, object], **fields: object) -> SimFleet:
    """The fleet under a catalog, until all is quiet."""
    f.catalog(catalog(f, *models, **fields))
    f.run(START_S * (1 + len(models)))
    return f


def labelled(f: SimFleet, *models: dict[str, object], **labels: dict[str, str]) -> SimFleet:
    raw = catalog(f, *models)
    nodes = raw["nodes"]
    assert isinstance(nodes, list)
    raw["nodes"] = [{**node, "labels": labels.get(str(node["id"]), {})} for node in nodes]
    f.catalog(raw)
    f.run(START_S * (1 + len(models)))
    return f


# --- what gives way ------------------------------------------------------------------------------------------------


def test_a_higher_priority_takes_the_place_of_a_lower_one_and_waits_until_it_has_stopped() -> None:
    f = running(model("low", devices=2), nodes="a")
    [victim] = ids(f, "low")
    f.catalog(catalog(f, model("low", devices=2), model("high", devices=2, priority=1)))
    stop = f.world.assignments[victim].stop
    assert stop is not None
    assert (stop.cause, stop.by) == (StopCause.DISPLACED, only(f, "high").replica)
    assert published(f, "low") == set()
    f.run(30)
    assert published(f, "high") == ids(f, "high")
    assert victim not in ids(f, "low")
    assert why(f, "model/low").startswith("no_place: p needs 2 × any device in pool default: 1 node with 0 free")


def test_what_gave_way_comes_back_when_there_is_room_again() -> None:
    f = running(model("low", devices=2), nodes="a")
    both = [model("low", devices=2), model("high", devices=2, priority=1)]
    shown(f, *both).run(30)
    assert published(f, "low") == set()
    shown(f, both[0]).run(60)
    assert published(f, "low") == ids(f, "low") != set()


def test_nothing_gives_way_to_its_equal_or_where_it_does_not_help() -> None:
    f = running(model("low", devices=1), nodes="a")
    before = ids(f, "low")
    shown(f, model("low", devices=1), model("same", devices=2), model("huge", devices=3, priority=9))
    assert ids(f, "low") == published(f, "low") == before
    assert why(f, "model/huge").startswith(
        "no_place: p needs 3 × any device in pool default: 1 node with 2 such devices"
    )


def test_a_claim_that_is_no_longer_wanted_lets_the_other_stay() -> None:
    f = running(model("low", devices=2), nodes="a")
    before = ids(f, "low")
    f.routers[next(iter(f.routers))].in_flight = dict.fromkeys(before, 1)
    f.catalog(catalog(f, model("low", devices=2), model("high", devices=2, priority=1)))
    f.run(1)
    assert only(f, "low").stop is not None
    f.catalog(catalog(f, model("low", devices=2)))
    f.run(2)
    assert only(f, "low").stop is None
    assert published(f, "low") == before


def test_the_lowest_priority_and_the_fewest_devices_give_way_first() -> None:
    running_ = [model("tiny", devices=1, priority=1), model("wide", devices=2), model("best", devices=1, priority=2)]
    f = running(*running_, nodes="a", count=4)
    shown(f, *running_, model("high", devices=1, priority=5)).run(20)
    assert {name for name in ("tiny", "wide", "best") if published(f, name)} == {"tiny", "best"}


def test_a_model_within_its_grace_is_not_displaced_and_afterwards_like_any_other() -> None:
    f = running(model("low", devices=2), nodes="a")
    high = model("high", devices=2, priority=1)
    f.catalog(catalog(f, high))
    f.run(1)
    assert of(f, "high") == []
    f.catalog(catalog(f, high, model("low", devices=2)))
    stop = only(f, "low").stop
    assert stop is not None
    assert (stop.cause, stop.by) == (StopCause.DISPLACED, only(f, "high").replica)


# --- shares --------------------------------------------------------------------------------------------------------


def part(claim: str, **fields: object) -> dict[str, object]:
    return {"accelerators": [{"count": 1, "claim": claim, **fields}]}


def test_replicas_share_a_device_up_to_what_the_policy_allows() -> None:
    f = shown(fleet("a", count=1), model("m", replicas=4, profile=part("20GiB")))
    f.run(20)
    assert len(published(f, "m")) == 3, "95 % of 80 GiB hold three claims of 20 GiB"
    assert why(f, "model/m").startswith(
        "no_place: p needs 20 GiB of 1 × any device in pool default: 1 node with at most 16 GiB left"
    )
    shown(f, model("m", replicas=4, profile=part("20GiB")), policy={"max_shared_percent": 100}).run(20)
    assert len(published(f, "m")) == 4


def test_starts_on_one_device_come_one_after_the_other() -> None:
    f = fleet("a", count=1)
    f.catalog(catalog(f, model("m", replicas=3, profile=part("20GiB")), policy={"max_loading_per_node": 9}))
    node = f.nodes[NodeId("a")]
    seen = []
    while len(published(f, "m")) < 3 and f.now_s < 1_100:
        seen.append(sum(1 for e in node.engines.values() if e.state != "ready"))
        f.run(0.5)
    assert max(seen) == 1
    assert len(published(f, "m")) == 3


def test_a_whole_device_and_a_shared_one_are_never_the_same() -> None:
    f = shown(fleet("a", count=2), model("whole", devices=1), model("part", profile=part("1GiB")))
    assert {c.device for c in only(f, "whole").claims} & {c.device for c in only(f, "part").claims} == set()
    shown(f, model("whole", devices=1, replicas=2), model("part", profile=part("1GiB")))
    assert len(of(f, "whole")) == 1


def test_unknown_memory_can_be_taken_whole_and_never_in_parts() -> None:
    f = fleet("a", count=0)
    f.nodes[NodeId("a")] = SimNode(NodeId("a"), devices("a", 1, memory_mib=None))
    shown(f, model("part", profile=part("1GiB")), model("whole", devices=1))
    assert len(of(f, "whole")) == 1
    assert why(f, "model/part").endswith("1 node with 0 such devices (1 of unknown memory)")


def test_foreign_memory_comes_off_a_shared_device_and_is_named_where_it_is_in_the_way() -> None:
    f = fleet("a", count=1)
    node = f.nodes[NodeId("a")]
    busy = tuple(d.model_copy(update={"foreign_mib": 40_960, "foreign_processes": ("python3",)}) for d in node.devices)
    f.nodes[NodeId("a")] = with_inventory(node, busy)
    shown(f, model("fits", profile=part("30GiB")), model("big", profile=part("50GiB")), model("whole", devices=1))
    assert len(of(f, "fits")) == 1
    assert why(f, "model/whole").endswith("1 node with 0 free, 1 used by python3")
    assert ", 1 used by python3" in why(f, "model/big")


# --- where ---------------------------------------------------------------------------------------------------------


def test_required_labels_bind_and_preferred_ones_only_draw() -> None:
    must, may = model("must", profile={"labels": {"rack": "b"}}), model("may", profile={"prefer_labels": {"rack": "b"}})
    f = labelled(fleet("abc", count=2), must, may, b={"rack": "b"})
    assert places(f, "must") == places(f, "may") == ["b"]
    f = labelled(fleet("abc", count=2), model("must", replicas=3, profile={"labels": {"rack": "b"}}), b={"rack": "b"})
    assert places(f, "must") == ["b", "b"]
    assert "2 nodes without the label rack=b" in why(f, "model/must")


def test_only_listed_nodes_and_devices_are_taken() -> None:
    nodes = model("n", replicas=3, profile={"nodes": ["b"]})
    f = shown(fleet("abc", count=2), nodes)
    assert places(f, "n") == ["b", "b"]
    assert "2 nodes not on its list of nodes" in why(f, "model/n")
    listed = {"accelerators": [{"count": 1, "devices": ["GPU-c-1", "GPU-a-0"]}]}
    f = shown(fleet("abc", count=2), model("d", replicas=3, profile=listed))
    assert sorted(c.device for a in of(f, "d") for c in a.claims) == ["GPU-a-0", "GPU-c-1"]


def test_no_more_on_one_node_than_the_model_allows() -> None:
    f = shown(fleet("ab", count=4), model("m", replicas=3, max_per_node=1))
    assert places(f, "m") == ["a", "b"]
    assert "2 nodes with as many of its replicas as one may have (1)" in why(f, "model/m")


@pytest.mark.parametrize(("replicas", "nodes", "count"), [(2, "ab", 3), (2, "ab", 4), (3, "abc", 4), (3, "abc", 6)])
@pytest.mark.parametrize("how", ["an edit", "a restart"])
def test_replicas_that_are_replaced_do_not_count_for_spread(replicas: int, nodes: str, count: int, how: str) -> None:
    """Where an old one still serves is no reason to put two new ones together elsewhere."""
    f = running(model("m", replicas), nodes=nodes, count=count)
    old = ids(f, "m")
    assert places(f, "m") == list(nodes)
    if how == "an edit":
        f.catalog(catalog(f, model("m", replicas, args=["--new"])))
    else:
        f.order("restart", target="m")
    f.run(60)
    assert not ids(f, "m") & old
    assert places(f, "m") == list(nodes)


def test_zones_are_filled_in_turn() -> None:
    f = fleet("abcd", count=4)
    f.catalog(catalog(f, model("m", replicas=4, spread_zones=True), zones={"a": "x", "b": "x", "c": "x", "d": "y"}))
    f.run(12)
    assert places(f, "m").count(NodeId("d")) == 2


def test_models_of_an_exclusive_group_never_share_a_node_and_the_better_one_gets_it() -> None:
    one, two = model("one", exclusive_group="g"), model("two", exclusive_group="g", priority=1)
    f = shown(fleet("a", count=2), one)
    assert published(f, "one")
    node = f.nodes[NodeId("a")]
    f.catalog(catalog(f, one, two))
    while not published(f, "two") and f.now_s < 1_100:
        assert len({e.start.model for e in node.engines.values()}) <= 1
        f.run(0.5)
    assert published(f, "two")
    assert not published(f, "one")
    assert "1 node with another model of group g" in why(f, "model/one")


def test_a_slice_of_a_device_is_taken_only_by_who_asks_for_one() -> None:
    f = fleet("a", count=0)
    f.nodes[NodeId("a")] = SimNode(
        NodeId("a"), devices("a", 2, kind="NVIDIA H100 80GB HBM3 MIG 1g.10gb", memory_mib=9856)
    )
    whole = model("whole", profile={"accelerators": [{"count": 1, "kind": "h100"}]})
    two = model("two", profile={"accelerators": [{"count": 2}]})
    slice_ = model("slice", profile={"accelerators": [{"count": 1, "kind": "mig 1g.10gb"}]})
    shown(f, whole, two, slice_)
    assert [len(of(f, name)) for name in ("whole", "two", "slice")] == [0, 0, 1]


def test_aligned_devices_lie_in_one_island() -> None:
    odd = model("odd", devices=1)
    pair = model("pair", profile={"accelerators": [{"count": 2, "aligned": True}]})
    f = shown(fleet("a", count=4), odd, pair)
    assert {c.device for c in only(f, "pair").claims} in ({"GPU-a-2", "GPU-a-3"}, {"GPU-a-0", "GPU-a-1"})
    f = shown(fleet("a", count=3), odd, model("one", devices=1, profile={"nodes": ["a"]}), pair)
    assert len(of(f, "pair")) <= 1


def test_large_replicas_find_their_node_whole_because_small_ones_pack() -> None:
    f = fleet("abcd", count=4)
    shown(f, *(model(f"s{i}", devices=1) for i in range(4)), model("large", replicas=3, devices=4)).run(20)
    assert len(published(f, "large")) == 3


def test_a_scarce_kind_is_left_to_whom_nothing_else_suits() -> None:
    f = fleet("ab", count=2)
    f.nodes[NodeId("b")] = SimNode(NodeId("b"), devices("b", 2, kind="a100"))
    any_, picky = (
        model("any", replicas=2),
        model("picky", replicas=2, profile={"accelerators": [{"count": 1, "kind": "h100"}]}),
    )
    shown(f, any_, picky).run(20)
    assert places(f, "picky") == ["a", "a"]
    assert places(f, "any") == ["b", "b"]


@pytest.mark.parametrize("profile", [{"accelerators": []}, {}])
def test_a_profile_without_devices_goes_wherever_its_memory_fits(profile: dict[str, object]) -> None:
    f = shown(fleet("a", count=0), model("cpu", devices=0, profile={**profile, "host_memory": "1GiB"}))
    assert published(f, "cpu") == ids(f, "cpu") != set()


@pytest.mark.parametrize("third", [2, 3])
def test_who_gives_way_to_one_that_gives_way_itself_gives_way_to_the_last(third: int) -> None:
    """The promises are checked at every step: no device is anybody's beside another's."""
    f = running(model("low", priority=-1), nodes="a", count=1)
    [low] = ids(f, "low")
    router = f.routers[RouterId("r1")]
    router.begin(low)
    levels = [model("low", priority=-1)]
    for priority in range(third):
        levels.append(model(f"m{priority}", priority=priority))
        f.catalog(catalog(f, *levels))
        f.run(2)
    last = f"m{third - 1}"
    assert (ids(f, "low"), len(ids(f, last))) == ({low}, 1)
    router.end(low)
    f.run(60)
    assert (ids(f, "low"), state(f, last)) == (set(), "ready")
