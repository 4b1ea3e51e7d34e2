"""State survives continue-as-new record by record; one that cannot be read is set aside and named."""

import json
import zlib
from dataclasses import replace

from llmgw import carry, table
from llmgw.carry import Parts, Seed
from llmgw.catalog import Node
from llmgw.ids import DeviceId, Fingerprint, ModelName, NodeId, ReplicaId, RouterId, SpecId
from llmgw.wire import DeviceClaim, Endpoint, LaunchSpec, ModelState, RefusalCode, TableModel
from llmgw.world import (
    Assignment,
    Failure,
    Input,
    InputKind,
    Known,
    Part,
    Refused,
    RouterFacts,
    StopCause,
    StopIntent,
    Waiting,
    Wishes,
    World,
)

NODE, REPLICA, MODEL = NodeId("n1"), ReplicaId("m-1"), ModelName("m")
CATALOG = {"models": [{"name": "m", "profiles": [{"name": "p", "engine": "stub"}]}]}


def assignment(replica: str = "m-1") -> Assignment:
    return Assignment(
        replica=ReplicaId(replica),
        model=MODEL,
        profile="p",
        fingerprint=Fingerprint("f"),
        attempt=2,
        spec=SpecId("s"),
        parts=(Part(NODE, (DeviceClaim(device=DeviceId("GPU-1"), memory_mib=10),)),),
        boot="b",
        created_s=12.5,
        stop=StopIntent(StopCause.SURPLUS, "one too many", 13.0, 4, commanded=True, commanded_s=14.0),
    )


def world() -> World:
    return World(
        fleet="f",
        installation="i",
        epoch=3,
        seq=9,
        generation=2,
        digest="d",
        inbox=(Input(4, InputKind.ORDER, "wake", ["m"], 1.0),),
        wishes=Wishes(cordoned={NODE: 1.0}, added_nodes={NODE: Node.model_validate({"id": "n1", "url": "http://h:1"})}),
        assignments={REPLICA: assignment()},
        specs={SpecId("s"): LaunchSpec(engine="stub", argv=("x", ""), served_name="m")},
        sent={REPLICA: 8},
        refused={REPLICA: Refused(RefusalCode.NO_PORT, "no port", 2.0)},
        failures={MODEL: (Failure(REPLICA, NODE, Fingerprint("f"), 5.0, True, 1, "exit 1", ("last line",)),)},
        next_replica=7,
        known={NODE: Known("mach", "b", (DeviceId("GPU-1"),))},
        unclaimed={ReplicaId("old-1"): 3.0},
        table=table.build(
            [TableModel(name=MODEL, state=ModelState.READY)],
            [Endpoint(id=REPLICA, url="http://h:1", models=("m",), served_name="m", engine="stub")],
        ),
        table_revision=6,
        routers={RouterId("r"): RouterFacts(acked_revision=6, acked_seq=8, acked_digest="x")},
        waiting={"model/m": Waiting("model/m", "no_place", "nowhere", 1.0)},
    )


def seed_of(before: World) -> Seed:
    return Seed(
        fleet=before.fleet,
        installation=before.installation,
        epoch=before.epoch,
        seq=before.seq,
        generation=before.generation,
        digest=before.digest,
        next_replica=before.next_replica,
        table_revision=before.table_revision,
    )


def test_everything_but_reports_comes_back() -> None:
    before = world()
    opened = carry.unpack(seed_of(before), carry.pack(before, CATALOG, {"kept": [1]}))
    assert opened.unreadable == {}
    assert opened.catalog_raw == CATALOG
    assert opened.extra == {"kept": [1]}
    assert opened.world.catalog is not None
    assert opened.world.catalog.models[0].name == "m"
    assert replace(opened.world, catalog=None) == before


def test_nothing_at_all_is_an_empty_world() -> None:
    opened = carry.unpack(Seed(fleet="f", installation="i", epoch=5), Parts())
    assert opened.world == World(fleet="f", installation="i", epoch=5, seq=0)


def test_one_unreadable_record_never_stops_the_care_of_the_others() -> None:
    before = replace(world(), assignments={ReplicaId(r): assignment(r) for r in ("m-1", "m-2", "m-3")})
    parts = carry.pack(before, CATALOG, {})
    raw = json.loads(zlib.decompress(parts.assignments))
    raw["assignments"][1]["stop"]["cause"] = "a word of another age"
    broken = replace(parts, assignments=zlib.compress(json.dumps(raw).encode()))
    opened = carry.unpack(seed_of(before), broken)
    assert {r: bool(a.unreadable) for r, a in opened.world.assignments.items()} == {
        "m-1": False,
        "m-2": True,
        "m-3": False,
    }
    assert "stop.cause" in opened.world.unreadable["m-2"].problem
    assert opened.world.assignments[ReplicaId("m-2")].claims == assignment().claims, "its devices go to nobody"


def test_a_record_that_a_later_version_can_read_is_whole_again() -> None:
    before = world()
    parts = carry.pack(before, CATALOG, {})
    raw = json.loads(zlib.decompress(parts.assignments))
    good = raw["assignments"][0]
    raw["assignments"][0] = {**good, "attempt": "two"}
    first = carry.unpack(seed_of(before), replace(parts, assignments=zlib.compress(json.dumps(raw).encode())), 5.0)
    assert first.world.assignments[REPLICA].unreadable
    again = carry.pack(first.world, CATALOG, {})
    mended = json.loads(zlib.decompress(again.assignments))
    mended["unreadable"]["m-1"]["raw"] = good
    second = carry.unpack(seed_of(before), replace(again, assignments=zlib.compress(json.dumps(mended).encode())))
    assert second.world.assignments == before.assignments
    assert second.world.unreadable == {}


def test_a_record_of_which_nothing_can_be_read_is_kept_under_a_name_of_its_own() -> None:
    spoilt: object
    for spoilt in (7, [], {"parts": []}, {"replica": 3}):
        parts = replace(Parts(), assignments=zlib.compress(json.dumps({"assignments": [spoilt]}).encode()))
        opened = carry.unpack(Seed(fleet="f"), parts, 5.0)
        assert opened.world.assignments == {}
        assert list(opened.world.unreadable) == ["record 0"]
        carried = carry.unpack(Seed(fleet="f"), carry.pack(opened.world, None, {}), 9.0)
        assert carried.world.unreadable == opened.world.unreadable


def test_one_wish_that_cannot_be_read_drops_no_other() -> None:
    before = world()
    parts = carry.pack(before, CATALOG, {})
    raw = json.loads(zlib.decompress(parts.rest))
    raw["wishes"]["cordoned"]["n2"] = "since ever"
    raw["wishes"]["tasks"] = [{"id": "t"}]
    opened = carry.unpack(seed_of(before), replace(parts, rest=zlib.compress(json.dumps(raw).encode())))
    assert opened.world.wishes == before.wishes
    assert sorted(opened.unreadable) == ["wish cordoned n2", "wish tasks 0"]


def test_a_catalog_with_lone_surrogates_can_be_carried() -> None:
    parts = carry.pack(world(), {"models": "\ud800"}, {})
    assert carry.unpack(Seed(), parts).catalog_raw == {"models": "\ud800"}
