"""What one workflow task commands stays inside Temporal's limits, however much there is to be told at once."""

import asyncio
import uuid

from temporalio.client import Client

from bench.fleet.skins import FleetSkin, serving
from llmgw.ids import NodeId, RouterId
from sim.node import SimNode, devices
from sim.router import SimRouter
from tests.plane.conftest import working
from workflows.lanes import MAX_BUSY_BYTES, Lanes

NODES, ARGUMENT_CHARS = 160, 30_000
LIMIT_S = 120.0


async def test_long_arguments_for_many_nodes_at_once_reach_all_of_them(client: Client) -> None:
    """Together they are more than the 4 MiB of commands at which Temporal ends a workflow."""
    assert NODES * ARGUMENT_CHARS > 4 * 1024 * 1024
    names = [NodeId(f"n{i}") for i in range(NODES)]
    router = SimRouter(RouterId("r0"))
    skin = FleetSkin({name: SimNode(name, devices(name, 1), start_s=0.0) for name in names}, {router.id: router})
    profile = {"name": "p", "engine": "stub", "args": ["x" * ARGUMENT_CHARS], "accelerators": [{"count": 1}]}
    async with serving(skin) as base, working(client, f"t-{uuid.uuid4().hex[:8]}") as fleet:
        catalog = {
            "nodes": [{"id": name, "url": f"{base}/node/{name}"} for name in names],
            "routers": [{"id": "r0", "url": f"{base}/router/r0"}],
            "models": [{"name": "m", "replicas": NODES, "profiles": [profile]}],
        }
        await fleet.apply(catalog)
        async with asyncio.timeout(LIMIT_S):
            while len(router.table.endpoints) < NODES:  # noqa: ASYNC110 - the simulated side has no event for it
                await asyncio.sleep(0.1)
        assert all(len(node.starts) == 1 for node in skin.nodes.values())
        await fleet.handle.terminate("the test is over")


def test_calls_under_way_count_with_the_bytes_of_their_inputs() -> None:
    lanes: Lanes[str] = Lanes()
    lanes.begin("a", MAX_BUSY_BYTES)
    lanes.begin("b", 7)
    assert (lanes.busy, lanes.busy_bytes) == (2, MAX_BUSY_BYTES + 7)
    lanes.end("a")
    lanes.end("never begun")
    assert (lanes.busy, lanes.busy_bytes) == (1, 7)
