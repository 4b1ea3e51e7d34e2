"""The records that a process takes up as it handed them on are the very same as those which another would read."""

import zlib
from dataclasses import fields, replace

import pytest

from bench.fleet import running
from llmgw import carry
from llmgw.carry import Parts
from llmgw.handed_on import HandedOn, of_world
from llmgw.ids import DeviceId, ModelName, NodeId, ReplicaId, RouterId
from llmgw.world import Part, RouterFacts, StopCause, StopIntent, World
from tests.plane.test_carry import assignment, noise, seed_of, world


def as_elsewhere(parts: Parts) -> Parts:
    """The same parts in other bytes: no process has handed these on."""
    return replace(parts, assignments=zlib.compress(zlib.decompress(parts.assignments), 0))


def told(value: World | Parts) -> list[str]:
    """Values, their types and the order of all maps, by field."""
    return [f"{field.name}: {getattr(value, field.name)!r}" for field in fields(value)]


def in_motion() -> World:
    """Replicas that stop and others that fail, by keys that are not in order, and a router with all its facts."""
    before = world()
    facts = RouterFacts(
        acked_revision=6,
        draining=frozenset({ReplicaId("m-1")}),
        idle=frozenset({ReplicaId("m-9")}),
        asked=frozenset({ModelName("m")}),
        asked_s=3.0,
        confirmed_s=4.0,
        instance="x",
        failures=2,
    )
    stopping = replace(assignment("a-2"), stop=StopIntent(StopCause.CHANGED, "is edited", 2.0, -1, port=4711))
    return replace(
        before,
        assignments={ReplicaId("z-1"): assignment("z-1"), ReplicaId("a-2"): stopping, **before.assignments},
        sent={ReplicaId("z-1"): 9, ReplicaId("a-2"): 3},
        published_s={ReplicaId("z-1"): 9.5, ReplicaId("a-2"): 3.0},
        routers={RouterId("r2"): facts, RouterId("r1"): RouterFacts()},
        known={NodeId("zz"): before.known[NodeId("n1")], **before.known},
    )


@pytest.mark.parametrize("before", [World("f", "i", 1, 0), world(), in_motion(), running.world(20)[0]])
def test_who_hands_on_and_who_reads_begin_with_the_same(before: World) -> None:
    parts, seed = carry.pack(before, {"models": []}, {"recent": 1}), seed_of(before)
    mine, read = carry.unpack(seed, parts, 5.0), carry.unpack(seed, as_elsewhere(parts), 5.0)
    assert told(mine.world) == told(read.world)
    assert (mine.extra, mine.shed, mine.unreadable) == (read.extra, read.shed, read.unreadable)
    assert told(carry.pack(mine.world, {"models": []}, {"recent": 1})) == told(parts), "nor does the next differ"


def test_what_was_handed_on_is_taken_as_it_is() -> None:
    before = world()
    parts = carry.pack(before, None, {})
    kept = carry.unpack(seed_of(before), parts).world.assignments[ReplicaId("m-1")]
    assert kept is before.assignments[ReplicaId("m-1")]
    assert carry.unpack(seed_of(before), as_elsewhere(parts)).world.assignments[ReplicaId("m-1")] is not kept


def test_the_same_assignments_on_other_devices_are_not_taken_for_the_same() -> None:
    one = world()
    renamed = replace(one.known[NodeId("n1")], devices=(DeviceId("GPU-2"),))
    claim = assignment().claims[0].model_copy(update={"device": DeviceId("GPU-2")})
    there = replace(assignment(), parts=(Part(NodeId("n1"), (claim,)),))
    other = replace(one, known={NodeId("n1"): renamed}, assignments={ReplicaId("m-1"): there})
    first, second = carry.pack(one, None, {}), carry.pack(other, None, {})
    assert first.assignments == second.assignments, "the devices are told with the nodes"
    for before, parts in ((one, first), (other, second)):
        assert carry.unpack(seed_of(before), parts).world.assignments == before.assignments


def test_what_was_shed_is_not_taken_up_again() -> None:
    before = world()
    parts = carry.pack(before, None, {"recent": noise(9000)})
    mine = carry.unpack(seed_of(before), parts)
    assert mine.shed
    assert mine.extra == {}
    assert told(mine.world) == told(carry.unpack(seed_of(before), as_elsewhere(parts)).world)


def test_an_unreadable_record_is_tried_anew_each_time() -> None:
    raw = carry.pack(world(), None, {})
    spoilt = zlib.decompress(raw.assignments).replace(b'"surplus"', b'"a word of another age"')
    first = carry.unpack(seed_of(world()), replace(raw, assignments=zlib.compress(spoilt)), 5.0)
    assert first.world.unreadable
    assert of_world(first.world) is None


def test_no_more_than_the_last_of_a_few_fleets_is_kept() -> None:
    handed_on: HandedOn[int] = HandedOn(most=2)
    for number, fleet in enumerate(("a", "b", "a", "c")):
        handed_on.keep(fleet, (b"%d" % number,), number)
    assert [handed_on.find("a", (b"%d" % number,)) for number in range(4)] == [None, None, 2, None]
    assert handed_on.find("b", (b"1",)) is None, "it is too long ago"
    assert handed_on.find("c", (b"3",)) == 3


def test_each_run_has_the_very_catalog_of_the_run_before() -> None:
    parts, seed = carry.pack(world(), {"models": []}, {}), seed_of(world())
    first, second = carry.unpack(seed, parts), carry.unpack(seed, parts)
    assert first.world.catalog is not None
    assert first.world.catalog is second.world.catalog
    spoilt = replace(parts, catalog=zlib.compress(b'{"raw": {"models": 3}}'))
    for _ in range(2):
        assert "catalog" in carry.unpack(seed, spoilt).unreadable, "it is tried anew each time"
