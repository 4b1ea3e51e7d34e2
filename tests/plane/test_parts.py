"""A snapshot that comes in several parts tells every node's inventory, whenever the node changed last; there are few
parts, and none is too large for a history."""

import json
import random
import uuid
from collections.abc import AsyncIterator

import aiohttp
import pytest

from activities.pool import MOST_PLAIN_BYTES, PART_BYTES, Pool, _Stream
from activities.settings import Outward
from bench.fleet.skins import node_report
from llmgw.ids import DeviceId, Fingerprint, NodeId, ReplicaId
from llmgw.observation import Observation, Target
from llmgw.packing import MAX_BYTES, PACKED_FROM
from llmgw.wire import Device, DeviceClaim, EngineState, Inventory, Mark, NodeReport, Owner, ReplicaReport, Token
from sim.node import SimNode, devices

LETTERS = [chr(code) for code in range(0x4E00, 0x4E00 + 5_000)]


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    made = Pool("f", Outward(), aiohttp.ClientSession())
    yield made
    await made.close()


def hear(pool: Pool, report: NodeReport) -> None:
    id_ = f"node/{report.node}"
    stream = pool._streams.setdefault(id_, _Stream(Target(id=id_, url="http://h")))
    pool._node(stream, report)


def snapshot(pool: Pool) -> list[Observation]:
    parts: list[Observation] = []
    now_s = pool.clock()
    pool.clock = lambda: now_s  # ages run on meanwhile, and their digits would move the border of a part
    while not parts or parts[-1].more:
        cursor = parts[-1].cursor if parts else 0
        parts.append(pool._part(cursor))
        assert [n.inventory is not None for n in pool._part(cursor).nodes] == [
            n.inventory is not None for n in parts[-1].nodes
        ], "a part that is asked for again, since its answer was lost, is the same"
    return parts


async def test_every_inventory_is_told_to_each_reader_and_to_none_twice(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.pool.MOST_PLAIN_BYTES", 60_000)
    nodes = [SimNode(NodeId(f"n{i}"), devices(f"n{i}", 8)) for i in range(120)]
    for node in nodes:
        hear(pool, node_report(node))
    for node in nodes[:80]:  # these are told last: their inventories are older than the parts before
        node.restart_agent()
        hear(pool, node_report(node))
    for _ in range(2):
        parts = snapshot(pool)
        assert len(parts) > 1
        told: dict[NodeId, bool] = {}
        for part in parts:
            told |= {node.node: node.inventory is not None for node in part.nodes}
        assert len(told) == len(nodes)
        assert [id_ for id_, whole in told.items() if not whole] == []
    end = pool._seq
    nodes[0].restart_agent()
    hear(pool, node_report(nodes[0]))
    assert [node.inventory for node in pool._part(end).nodes] == [None]


async def test_each_reader_is_told_once_how_long_replicas_have_been_in_their_state(pool: Pool) -> None:
    now_s = 1000.0
    pool.clock = lambda: now_s
    report = full_report(random.Random(1), 1)
    aged = report.model_copy(
        update={"replicas": tuple(row.model_copy(update={"state_age_s": 400.5}) for row in report.replicas)}
    )
    hear(pool, aged)
    now_s += 60.0
    for _ in range(2):  # a workflow that continues as new begins at the start again
        assert pool._part(0).nodes[0].ages_s == (460,) * 8
    assert pool._part(0).nodes[0].replicas[0].state_age_s == 0.0, "an age is no news: reports are compared without it"
    end = pool._seq
    hear(pool, aged.model_copy(update={"revision": 2, "replicas": aged.replicas[1:]}))
    assert pool._part(end).nodes[0].ages_s == ()


# --- sizes ---------------------------------------------------------------------------------------------------------


def full_report(rng: random.Random, number: int) -> NodeReport:
    """A node with eight replicas that run, and with ids as random as real ones."""
    ids = [DeviceId(f"GPU-{uuid.UUID(int=rng.getrandbits(128))}") for _ in range(8)]
    found = tuple(Device(id=id_, index=n, kind="h100", vendor="nvidia", memory_mib=81_559) for n, id_ in enumerate(ids))
    return NodeReport(
        node=NodeId(f"gpu-{number:04}"),
        machine_id=f"{rng.getrandbits(128):032x}",
        boot_id=str(uuid.UUID(int=rng.getrandbits(128))),
        instance=f"{rng.getrandbits(128):032x}",
        revision=number,
        token=Token(installation="i", fleet="f", epoch=1, seq=number),
        owner=Owner(installation="i", fleet="f"),
        inventory=Inventory(devices=found, host_memory_mib=1 << 20),
        replicas=tuple(full_row(number, n, id_) for n, id_ in enumerate(ids)),
    )


def full_row(number: int, index: int, device: DeviceId) -> ReplicaReport:
    replica = ReplicaId(f"model-{number % 200}-{8 * number + index:x}")
    return ReplicaReport(
        replica=replica,
        model=f"model-{number % 200}",
        mark=Mark(installation="i", fleet="f", replica=replica, epoch=1, seq=number),
        fingerprint=Fingerprint(f"{number % 200:032x}"),
        attempt=1,
        state=EngineState.READY,
        was_ready=True,
        url=f"http://10.0.{number >> 8}.{number & 255}:{9000 + index}",
        claims=(DeviceClaim(device=device),),
    )


async def test_the_reports_of_a_thousand_full_nodes_are_four_parts(pool: Pool) -> None:
    rng = random.Random(1)
    for number in range(1000):
        hear(pool, full_report(rng, number))
    parts = snapshot(pool)
    assert len(parts) <= 4
    assert sum(len(part.nodes) for part in parts) == 1000
    for part in parts:
        told = part.model_dump_json()
        assert len(told) <= PART_BYTES
        assert Observation.model_validate_json(told) == part


@pytest.mark.parametrize(("chars", "letters"), [(40, LETTERS), (300, LETTERS), (3000, LETTERS), (3000, ["a"])])
async def test_no_part_is_too_large_whatever_the_reports_are_made_of(
    pool: Pool, chars: int, letters: list[str]
) -> None:
    """Texts that cannot be packed, and such as are nothing when they are packed."""
    rng = random.Random(2)
    for number in range(4_000_000 // (chars * 3) if letters is LETTERS else 901):
        report = full_report(rng, number).model_copy(update={"hostname": "".join(rng.choices(letters, k=chars))})
        hear(pool, report)
        if number == 900:
            break
    parts = snapshot(pool)
    assert len(parts) > 2
    assert sum(len(part.nodes) for part in parts) == len(pool._streams)
    for part in parts:
        assert len(part.model_dump_json().encode()) <= PART_BYTES + 4096 < MAX_BYTES
        assert len(json.dumps(part.model_dump(), default=str).encode()) <= 2 * MOST_PLAIN_BYTES


async def test_a_report_larger_than_a_part_comes_alone(pool: Pool) -> None:
    rng = random.Random(3)
    for number in range(3):
        noise = "".join(rng.choices(LETTERS, k=PART_BYTES)) if number == 1 else ""
        hear(pool, full_report(rng, number).model_copy(update={"hostname": noise}))
    assert [[n.node for n in part.nodes] for part in snapshot(pool)] == [["gpu-0000"], ["gpu-0001"], ["gpu-0002"]]


async def test_few_reports_stay_readable_in_a_history(pool: Pool) -> None:
    rng = random.Random(4)
    hear(pool, full_report(rng, 0))
    told = pool._part(0).model_dump_json()
    assert len(told) < PACKED_FROM
    assert json.loads(told)["nodes"][0]["node"] == "gpu-0000"
