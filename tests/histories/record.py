"""Records the histories that `tests/plane/test_replay.py` replays: `python -m tests.histories.record`.

Record anew only for a released change of the workflow's commands, beside the old ones: histories in flight are theirs.
"""

import asyncio
import contextlib
import os
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from activities import pool
from activities.outward import Callers
from activities.pools import Pools
from activities.settings import Outward
from bench.fleet.skins import FleetSkin, serving
from llmgw.ids import NodeId, RouterId
from sim.node import SimNode, devices
from sim.router import SimRouter
from workers.control import make_worker
from workers.settings import WorkerSettings
from workflows.client import Fleet
from workflows.converting import data_converter
from workflows.ensure import ensure

FOLDER = Path(__file__).parent
Scene = Callable[[Fleet, FleetSkin, str], Awaitable[None]]


def catalog(base: str, *models: str, **fields: Any) -> dict[str, Any]:
    return {
        "nodes": [{"id": n, "url": f"{base}/node/{n}"} for n in ("a", "b")],
        "routers": [{"id": "r", "url": f"{base}/router/r"}],
        "policy": {"removal_grace_s": 0.0},
        "models": [
            {"name": m, "profiles": [{"name": "p", "engine": "stub", "accelerators": [{"count": 1}], **fields}]}
            for m in models
        ],
    }


async def steady(fleet: Fleet) -> None:
    while (await fleet.query("status"))["phase"] != "steady":  # noqa: ASYNC110 - asked from outside
        await asyncio.sleep(0.05)


async def edits(fleet: Fleet, skin: FleetSkin, base: str) -> None:
    """First catalog, a model more, one less, a changed one, a refused one, orders."""
    del skin
    for raw in (
        catalog(base, "x"),
        catalog(base, "x", "y"),
        catalog(base, "y"),
        catalog(base, "y", args=["--tokens", "3"]),
    ):
        await fleet.apply(raw)
        await steady(fleet)
    await fleet.signal_catalog({"modles": []})
    await fleet.order("cordon", {"node": "a"})
    await fleet.order("drain", {"node": "b"})
    await fleet.handle.signal("no-such-signal", "x")
    await asyncio.sleep(0.5)


async def failures(fleet: Fleet, skin: FleetSkin, base: str) -> None:
    """An engine dies, an agent restarts, a node is booted anew."""
    await fleet.apply(catalog(base, "x", "y", "z"))
    await steady(fleet)
    for act in (lambda n: n.crash(next(iter(n.engines))), SimNode.restart_agent, SimNode.reboot):
        node = next(n for n in skin.nodes.values() if n.engines)
        act(node)
        skin.tell(f"node/{node.id}")
        await asyncio.sleep(0.6)
        await steady(fleet)


async def long_run(fleet: Fleet, skin: FleetSkin, base: str) -> None:
    """So many edits that the workflow continues as new; the last run is recorded."""
    del skin
    for number in range(14):
        await fleet.apply(catalog(base, *(f"m{n}" for n in range(1 + number % 3))) | {"allow_removals": True})
        await steady(fleet)


SCENES: dict[str, tuple[Scene, int]] = {
    "edits": (edits, 1500),
    "failures": (failures, 1500),
    "long_run": (long_run, 100),
}


async def record(client: Client, name: str, scene: Scene, max_history: int) -> str:
    """Play a scene and return its history as JSON."""
    skin = FleetSkin(
        {NodeId(n): SimNode(NodeId(n), devices(n, 4), start_s=0.1, stop_s=0.05) for n in ("a", "b")},
        {RouterId("r"): SimRouter(RouterId("r"))},
    )
    fleet_name = f"{name}-{uuid.uuid4().hex[:6]}"
    settings = WorkerSettings(fleet=fleet_name, installation="rec", metrics_listen=None, max_history=max_history)
    callers, pools = Callers(Outward()), Pools(Outward())
    async with contextlib.AsyncExitStack() as stack:
        base = await stack.enter_async_context(serving(skin))
        await stack.enter_async_context(make_worker(client, settings, callers, pools))
        await ensure(client, fleet_name, "rec", now_s=time.time(), max_history=max_history)
        fleet = Fleet(client, fleet_name)
        await scene(fleet, skin, base)
        history = await fleet.handle.fetch_history()
        await fleet.handle.terminate("recorded")
    await pools.close()
    await callers.close()
    return history.to_json()


async def main() -> None:
    environment = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(Path(sys.executable).parent / "temporal"),
        data_converter=data_converter,
        dev_server_log_level="error",
    )
    pool.identity = lambda: "recorder:1"  # the name of this machine is nobody's business
    address = environment.client.service_client.config.target_host
    client = await Client.connect(address, data_converter=data_converter, identity="recorder")
    for name, (scene, max_history) in SCENES.items():
        text = await record(client, name, scene, max_history)
        (FOLDER / f"{name}.json").write_text(text)
        print(name, len(text), "bytes")
    await environment.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
    sys.stdout.flush()
    os._exit(0)
