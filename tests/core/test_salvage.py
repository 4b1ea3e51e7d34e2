"""One record that cannot be read after carrying over: its replica is left as it is, and everything else goes on."""

import json
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from llmgw import views
from llmgw.carry import Parts
from llmgw.ids import NodeId, ReplicaId, RouterId
from llmgw.recent import Recent
from llmgw.salvage import FORGOTTEN_AFTER_S
from llmgw.world import InputKind

from .fleets import catalog, ids, model, of, only, places, published, running, why


def spoilt(change: Callable[[dict[str, object]], object], index: int = 0) -> Callable[[Parts], Parts]:
    """Carried parts in which one assignment's record is what `change` makes of it."""

    def spoil(parts: Parts) -> Parts:
        carried = json.loads(zlib.decompress(parts.assignments))
        carried["assignments"][index] = change(carried["assignments"][index])
        return replace(parts, assignments=zlib.compress(json.dumps(carried).encode()))

    return spoil


def without(*keys: str) -> Callable[[dict[str, object]], object]:
    return lambda record: {k: v for k, v in record.items() if k not in keys}


SPOILT: dict[str, Callable[[dict[str, object]], object]] = {
    "an unknown word": lambda record: {**record, "stop": {"cause": "a word of another age"}},
    "a missing field": without("fingerprint"),
    "no place": without("parts"),
    "no model": without("model", "attempt"),
    "no id": without("replica"),
    "no record at all": lambda _: 17,
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_replica_whose_record_cannot_be_read_is_left_as_it_is_and_the_others_are_cared_for(how: str) -> None:
    f = running(model("m"), model("other"), nodes="ab", count=1)
    mine, other = only(f, "m"), only(f, "other")
    f.carry_over(spoilt(SPOILT[how]))
    f.run(20)
    f.nodes[other.node].crash(other.replica)
    f.run(60)
    assert set(f.nodes[mine.node].engines) == {mine.replica}, "neither stopped nor doubled"
    assert published(f, "m") == {mine.replica}, "it serves on"
    assert f.nodes[mine.node].starts == [mine.replica], "its device goes to nobody"
    assert published(f, "other") == ids(f, "other") != {other.replica}, "others are restarted as ever"
    assert why(f, f"replica/{mine.replica}").startswith("unreadable: its record could not be read")


def test_a_stop_that_was_commanded_goes_on_though_the_rest_of_the_record_cannot_be_read() -> None:
    f = running(model("m"), model("k"), nodes="a")
    f.nodes[NodeId("a")].stop_s = 30.0
    f.catalog(catalog(f, model("k"), policy={"removal_grace_s": 0.0}))
    f.run(2)
    f.carry_over(spoilt(without("attempt"), index=1))
    f.run(40)
    assert of(f, "m") == []
    assert f.world.unreadable == {}


def test_what_cannot_be_read_is_shown_until_an_operator_restarts_it() -> None:
    f = running(model("m"), nodes="a", count=1)
    first = only(f, "m").replica
    f.carry_over(spoilt(without("attempt")))
    f.run(5)
    status = views.status(f.world, Recent(), f.now_s)
    assert any(f"record of {first} could not be read" in text for text in status.warnings)
    said = views.explain(f.world, f"replica/{first}", f.now_s).sentences
    assert any(f"`llmgw restart {first}` stops it" in sentence for sentence in said)
    f.order("restart", target=first)
    f.run(20)
    assert first not in ids(f, "m")
    assert published(f, "m") == ids(f, "m") != set()
    assert f.world.unreadable == {}
    assert not any("could not be read" in text for text in views.status(f.world, Recent(), f.now_s).warnings)


def test_what_cannot_be_read_is_stopped_when_its_model_leaves_the_catalog() -> None:
    f = running(model("m"), model("k"), nodes="a")
    f.carry_over(spoilt(without("attempt"), index=1))
    f.run(5)
    f.catalog(catalog(f, model("k"), policy={"removal_grace_s": 5.0}))
    f.run(20)
    assert of(f, "m") == []
    assert f.world.unreadable == {}


def test_an_unreadable_replica_that_fails_is_withdrawn_and_waits_for_an_operator() -> None:
    f = running(model("m"), nodes="ab", count=1)
    mine = only(f, "m")
    f.carry_over(spoilt(without("attempt")))
    f.run(5)
    f.nodes[mine.node].crash(mine.replica)
    f.run(30)
    assert published(f, "m") == set()
    assert ids(f, "m") == {mine.replica}
    f.order("restart", target=mine.replica)
    f.run(20)
    assert len(published(f, "m")) == 1


def test_an_unreadable_replica_that_is_gone_is_replaced() -> None:
    f = running(model("m"), nodes="ab", count=1)
    mine = only(f, "m")
    f.carry_over(spoilt(without("attempt")))
    f.run(5)
    f.nodes[mine.node].reboot()
    f.run(20)
    assert mine.replica not in ids(f, "m")
    assert published(f, "m") == ids(f, "m") != set()
    assert f.world.unreadable == {}


def test_the_route_of_an_unreadable_replica_goes_with_the_proof_that_it_is_gone_though_others_are_silent() -> None:
    f = running(model("m"), model("k"), nodes="abc", count=1)
    mine, other = only(f, "m"), only(f, "k")
    f.cut = {f"node/{n}" for n in f.nodes if n not in (mine.node, other.node)}
    f.run(15)
    records = sorted([mine.replica, other.replica])
    f.carry_over(spoilt(without("attempt"), index=records.index(mine.replica)))
    f.run(5)
    assert published(f, "m") == {mine.replica}
    f.nodes[mine.node].reboot()
    f.settle()
    assert published(f, "m") == set(), "in the very pass that finds it gone"
    assert published(f, "k") == {other.replica}


def test_what_was_to_take_the_place_of_a_replica_whose_record_cannot_be_read_does_not() -> None:
    f = running(model("low"), nodes="a", count=1)
    low = only(f, "low").replica
    f.routers[RouterId("r1")].begin(low)  # so it does not stop at once
    f.catalog(catalog(f, model("low"), model("high", priority=5)))
    assert places(f, "high") == places(f, "low") == ["a"]
    f.carry_over(spoilt(without("attempt"), index=sorted([low, only(f, "high").replica]).index(low)))
    f.run(5)
    assert of(f, "high") == [], "its device has nobody to give it up"
    assert set(f.nodes[NodeId("a")].engines) == {low}
    assert why(f, "model/high").startswith("no_place")
    f.routers[RouterId("r1")].end(low)
    f.order("restart", target=low)
    f.run(20)
    assert published(f, "high") == ids(f, "high") != set()


def test_it_does_not_where_a_restart_is_asked_for_in_the_very_moment_the_record_is_lost() -> None:
    f = running(model("low"), nodes="a", count=1)
    low = only(f, "low").replica
    f.routers[RouterId("r1")].begin(low)  # so it does not stop at once
    f.catalog(catalog(f, model("low"), model("high", priority=5)))
    high = only(f, "high").replica
    f.pause()
    f.carry_over(spoilt(without("attempt"), index=sorted([low, high]).index(low)))
    f.give(InputKind.ORDER, "restart", {"target": low})
    f.run(5)
    f.go_on()
    f.settle()
    f.check()
    f.routers[RouterId("r1")].end(low)
    f.run(120)
    assert len(published(f, "high")) == 1, "the higher priority has the place in the end"
    assert f.nodes[NodeId("a")].engines.keys() == ids(f, "high")


def test_an_unreadable_replica_on_a_lost_node_is_replaced_elsewhere_and_kept_in_mind() -> None:
    f = running(model("m"), nodes="abc", count=1)
    mine = only(f, "m")
    f.carry_over(spoilt(without("attempt")))
    f.run(5)
    f.cut = {f"node/{mine.node}"}
    f.run(80)
    assert len(published(f, "m") - {mine.replica}) == 1
    assert ReplicaId(mine.replica) in f.world.unreadable


def test_a_nameless_record_is_forgotten_once_nothing_can_be_left_of_it() -> None:
    f = running(model("m"), nodes="a", count=1)
    f.nodes[NodeId("a")].engines.clear()
    f.carry_over(spoilt(SPOILT["no record at all"]))
    f.run(30)
    assert list(f.world.unreadable) == ["record 0"]
    assert len(published(f, "m")) == 1, "the model is served meanwhile"
    f.run(FORGOTTEN_AFTER_S)
    assert f.world.unreadable == {}
