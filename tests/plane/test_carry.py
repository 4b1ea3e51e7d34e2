"""State survives continue-as-new record by record; one that cannot be read is set aside and named."""

import json
import random
import uuid
import zlib
from dataclasses import replace

from llmgw import carry, table, views
from llmgw.carry import MAX_PART_BYTES, Parts, Seed
from llmgw.catalog import Node
from llmgw.ids import DeviceId, Fingerprint, ModelName, NodeId, ReplicaId, RouterId, SpecId
from llmgw.recent import Recent
from llmgw.wire import DeviceClaim, Endpoint, LaunchSpec, ModelState, RefusalCode, TableModel
from llmgw.world import (
    Assignment,
    Failure,
    HeldCatalog,
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
        routers={
            RouterId("r"): RouterFacts(acked_revision=6, acked_seq=8, acked_digest="x", draining=frozenset({REPLICA}))
        },
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
    mended["unreadable"]["m-1"]["raw"] |= {"attempt": good["attempt"]}
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


# --- budgets -------------------------------------------------------------------------------------------------------


def noise(count: int, chars: int = 64) -> list[str]:
    """Texts that no packing makes smaller."""
    rng = random.Random(1)
    return [f"{rng.getrandbits(4 * chars):0{chars}x}" for _ in range(count)]


def sizes(parts: Parts) -> dict[str, int]:
    return {"catalog": len(parts.catalog), "assignments": len(parts.assignments), "rest": len(parts.rest)}


def test_recent_events_go_before_the_ages_of_reasons_and_both_before_anything_that_counts() -> None:
    before = replace(
        world(),
        waiting={f"model/{text}": Waiting(f"model/{text}", "no_place", text, 1.0) for text in noise(2000)},
    )
    fits = carry.unpack(seed_of(before), carry.pack(before, CATALOG, {"recent": 1}))
    assert (fits.shed, fits.extra, len(fits.world.waiting)) == ((), {"recent": 1}, 2000)
    parts = carry.pack(before, CATALOG, {"recent": noise(5000)})
    opened = carry.unpack(seed_of(before), parts)
    assert max(sizes(parts).values()) <= MAX_PART_BYTES
    assert opened.extra == {}
    assert len(opened.world.waiting) == 2000
    assert opened.shed == ("recent events, results and refusals: the carried rest passed 256 KiB",)
    many = {f"model/{text}": Waiting(f"model/{text}", "no_place", text, 1.0) for text in noise(6000)}
    opened = carry.unpack(seed_of(before), carry.pack(replace(before, waiting=many), CATALOG, {"recent": 1}))
    assert (opened.extra, opened.world.waiting) == ({}, {})
    assert [text.split(":")[0] for text in opened.shed] == [
        "recent events, results and refusals",
        "the ages of reasons to wait",
    ]
    assert replace(opened.world, catalog=None, waiting=before.waiting) == before, "nothing else went"


def test_failures_that_were_answered_go_before_open_ones() -> None:
    tails = noise(3000, 200)
    answered = [Failure(ReplicaId(t[:40]), NODE, Fingerprint("f"), 5.0, True, 1, t, replaced=True) for t in tails]
    still_open = Failure(REPLICA, NODE, Fingerprint("f"), 6.0, True, 1, "exit 1", ("a line",))
    before = replace(world(), failures={MODEL: (*answered, still_open)})
    opened = carry.unpack(seed_of(before), carry.pack(before, CATALOG, {}))
    assert [f.text for f in opened.world.failures[MODEL]] == ["exit 1"]
    assert any(text.startswith("failed attempts that were answered") for text in opened.shed)


def test_a_held_catalog_goes_before_the_one_in_force() -> None:
    big = {"models": [{"name": text, "profiles": [{"name": "p", "engine": "stub"}]} for text in noise(4000)]}
    other = {"models": [{"name": text, "profiles": []} for text in reversed(noise(4000, 60))]}
    before = replace(world(), held=HeldCatalog("d", [other], 1.0, "held"))
    opened = carry.unpack(seed_of(before), carry.pack(before, big, {}))
    assert opened.world.held is None
    assert opened.catalog_raw == big
    assert opened.shed[0].startswith("the catalog that was held")


def test_what_counts_is_carried_at_any_size_and_the_status_says_that_it_is_too_much() -> None:
    replicas = {ReplicaId(text): replace(assignment(text), spec=SpecId(text[::-1])) for text in noise(5000)}
    before = replace(world(), assignments=replicas)
    parts = carry.pack(before, CATALOG, {})
    opened = carry.unpack(seed_of(before), parts)
    assert opened.world.assignments == replicas
    assert opened.shed[-1].startswith("no more of assignments, over 256 KiB all the same")
    shown = views.status(opened.world, Recent(shed=opened.shed), 20.0)
    assert any("split the fleet" in text for text in shown.warnings)


def test_a_thousand_nodes_with_eight_thousand_replicas_fit() -> None:
    rng, known, replicas = random.Random(2), dict[NodeId, Known](), dict[ReplicaId, Assignment]()
    for index in range(1000):
        node, devices = (
            NodeId(f"gpu-{index:04}"),
            [DeviceId(f"GPU-{uuid.UUID(int=rng.getrandbits(128))}") for _ in range(8)],
        )
        known[node] = Known(f"{rng.getrandbits(128):032x}", str(uuid.UUID(int=rng.getrandbits(128))), tuple(devices))
        for number, device in enumerate(devices):
            made = replace(
                assignment(f"model-{index % 200}-{8 * index + number:x}"),
                parts=(Part(node, (DeviceClaim(device=device),)),),
                boot=known[node].boot,
                stop=None,
                created_s=1.7e9 + 0.37 * len(replicas),
            )
            replicas[made.replica] = made
    before = replace(world(), known=known, assignments=replicas, sent=dict.fromkeys(replicas, 7))
    parts = carry.pack(before, CATALOG, {})
    assert max(sizes(parts).values()) <= MAX_PART_BYTES
    opened = carry.unpack(seed_of(before), parts)
    assert (opened.shed, opened.world.assignments) == ((), replicas)


# --- reading many at once -------------------------------------------------------------------------------------------


def test_whichever_record_cannot_be_read_all_others_are_the_same_as_without_it() -> None:
    """Records are read all at once where that is possible, else one by one: nobody can tell which it was."""
    replicas = {ReplicaId(f"m-{n}"): assignment(f"m-{n}") for n in range(5)}
    before = replace(world(), assignments=replicas)
    parts = carry.pack(before, CATALOG, {})
    for spoilt in range(5):
        raw = json.loads(zlib.decompress(parts.assignments))
        raw["assignments"][spoilt]["parts"][0]["claims"] = [{"device": 99}]  # its node has no device of that number
        raw["refused"]["other"] = {"code": "a word of another age"}
        opened = carry.unpack(seed_of(before), replace(parts, assignments=zlib.compress(json.dumps(raw).encode())), 5.0)
        read = {id_: a for id_, a in opened.world.assignments.items() if not a.unreadable}
        assert read == {id_: a for id_, a in replicas.items() if id_ != f"m-{spoilt}"}
        assert list(opened.world.unreadable) == [f"m-{spoilt}"]
        assert opened.world.refused == before.refused
        assert list(opened.unreadable) == ["refusal other"]


def test_devices_of_nodes_that_are_not_known_any_more_are_carried_by_their_names() -> None:
    before = replace(world(), known={})
    parts = carry.pack(before, CATALOG, {})
    assert "GPU-1" in zlib.decompress(parts.assignments).decode()
    assert carry.unpack(seed_of(before), parts).world.assignments == before.assignments
