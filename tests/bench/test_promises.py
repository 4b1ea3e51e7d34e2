"""The soak's watch sees what it is there to see."""

import random
from typing import cast

import pytest

from bench.fleet.chaos import Chaos
from bench.fleet.skins import FleetSkin
from bench.fleet.watch import Promises
from bench.stage import Stage
from llmgw import table
from llmgw.ids import DeviceId, Fingerprint, ModelName, NodeId, ReplicaId, RouterId
from llmgw.wire import CommandBatch, DeviceClaim, Endpoint, LaunchSpec, Start, Stop, Token
from sim.node import SimNode, devices
from sim.router import SimRouter

A, B = NodeId("a"), NodeId("b")


@pytest.fixture
def skin() -> FleetSkin:
    return FleetSkin({n: SimNode(n, devices(n, 4)) for n in (A, B)}, {})


def start(replica: str, device: int = 0, node: NodeId = A, version: str = "1") -> Start:
    return Start(
        replica=ReplicaId(replica),
        model=ModelName("m"),
        fingerprint=Fingerprint("f"),
        attempt=1,
        launch=LaunchSpec(engine="stub", argv=("stub", "--version", version), served_name="m"),
        claims=(DeviceClaim(device=DeviceId(f"GPU-{node}-{device}")),),
    )


def heard(skin: FleetSkin, promises: Promises, node: NodeId, *commands: Start | Stop) -> None:
    held = skin.nodes[node].token
    token = Token(installation="i", fleet="f", epoch=1, seq=1 if held is None else held.seq + 1)
    batch = CommandBatch(token=token, node=node, commands=commands)
    skin.nodes[node].commands(batch, 0.0)
    promises.heard(f"node/{node}", batch)


def test_an_orderly_start_breaks_nothing(skin: FleetSkin) -> None:
    promises = Promises(skin)
    heard(skin, promises, A, start("r1"), start("r2", device=1))
    heard(skin, promises, A, Stop(replica=ReplicaId("r1")))
    assert promises.broken == []
    assert (promises.starts, promises.stops) == (2, 1)


def test_a_second_home_is_seen(skin: FleetSkin) -> None:
    promises = Promises(skin)
    heard(skin, promises, A, start("r1"))
    heard(skin, promises, B, start("r1", node=B))
    assert promises.broken == ["r1 was started on a, b"]


def test_a_stop_that_comes_before_the_withdrawal_is_seen(skin: FleetSkin) -> None:
    promises = Promises(skin)
    heard(skin, promises, A, start("r1"))
    router = skin.routers[RouterId("r0")] = SimRouter(RouterId("r0"))
    served = Endpoint(id=ReplicaId("r1"), url="http://h:1", models=("m",), served_name="m", engine="stub")
    router.table = table.build([], [served])
    heard(skin, promises, A, Stop(replica=ReplicaId("r1")))
    assert promises.broken == ["r1 was told to stop while r0 still routed to it"]


def test_what_is_told_during_a_pause_is_seen(skin: FleetSkin) -> None:
    promises = Promises(skin)
    promises.is_paused = True
    heard(skin, promises, A, start("r1"))
    assert promises.broken == ["r1 was told to start during a pause"]


def test_more_canaries_than_are_tried_are_seen_and_dead_ones_do_not_count(skin: FleetSkin) -> None:
    promises = Promises(skin)
    promises.canaries = {"2": 1}
    heard(skin, promises, A, start("old"), start("new", device=1, version="2"))
    skin.crash(A, ReplicaId("new"))
    heard(skin, promises, B, start("again", node=B, version="2"))
    assert promises.broken == []
    heard(skin, promises, A, start("more", device=2, version="2"))
    assert promises.broken == ["2 replicas run of version 2, of which 1 may be tried"]


def test_only_acts_that_there_are_can_be_asked_for(skin: FleetSkin) -> None:
    stage, promises = cast("Stage", None), Promises(skin)
    assert set(Chaos(stage, promises, random.Random(0), ["engine dies"]).acts) == {"engine dies"}
    with pytest.raises(ValueError, match="there is no act earthquake; there are engine dies, "):
        Chaos(stage, promises, random.Random(0), ["earthquake"])
