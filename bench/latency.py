"""Latency of the plane, beside a floor taken in the same run.

signal -> withdrawn at the router, signal -> start accepted by the agent, agent reports ready -> router has it; the
floor is a workflow that does nothing but one activity with one PUT per signal, interleaved.
`python -m bench.latency [--nodes 20] [--rounds 50] [--strict]`
"""

import argparse
import asyncio
import contextlib
import sys
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from pydantic import BaseModel
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.outward import Callers
from activities.pools import Pools
from activities.settings import Outward
from bench.fleet.skins import FleetSkin, serving
from bench.report import Target, report, spread
from llmgw.ids import NodeId, RouterId
from llmgw.wire import CommandBatch
from sim.node import SimNode, devices
from sim.router import SimRouter
from workers.control import make_worker
from workers.settings import WorkerSettings
from workflows.client import Fleet
from workflows.ensure import ensure

MOST = 1.5
QUIET_S = 0.4
"""Longer than the window in which observations are gathered: each sample begins in a quiet fleet."""


@workflow.defn(name="Floor")
class Floor:
    """One activity for each signal, and nothing else."""

    def __init__(self) -> None:
        self.todo: list[str] = []

    @workflow.run
    async def run(self) -> None:
        while True:
            await workflow.wait_condition(lambda: bool(self.todo))
            url = self.todo.pop(0)
            await workflow.execute_activity("put_once", url, start_to_close_timeout=timedelta(seconds=3))

    @workflow.signal
    def go(self, url: str) -> None:
        self.todo.append(url)


class PutOnce:
    def __init__(self) -> None:
        self.client = httpx.AsyncClient(trust_env=False)
        self.done = asyncio.Event()

    @activity.defn(name="put_once")
    async def put_once(self, url: str) -> None:
        await self.client.put(url, content=b"{}")
        self.done.set()


class Moments:
    """When documents arrived: waits for the first that satisfies a test."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[str, BaseModel], bool], asyncio.Future[float]]] = []

    def heard(self, target: str, document: BaseModel) -> None:
        now = time.perf_counter()
        for test, future in list(self._waiting):
            if not future.done() and test(target, document):
                future.set_result(now)
                self._waiting.remove((test, future))

    def next(self, test: Callable[[str, BaseModel], bool]) -> asyncio.Future[float]:
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.append((test, future))
        return future


def catalog(base: str, nodes: int, models: int) -> dict[str, Any]:
    return {
        "nodes": [{"id": f"n{i}", "url": f"{base}/node/n{i}"} for i in range(nodes)],
        "routers": [{"id": "r", "url": f"{base}/router/r"}],
        "policy": {"removal_grace_s": 0.0},
        "allow_removals": True,
        "models": [
            {"name": f"m{i}", "profiles": [{"name": "p", "engine": "stub", "accelerators": [{"count": 1}]}]}
            for i in range(models)
        ],
    }


async def measure(client: Client, nodes: int, rounds: int) -> tuple[dict[str, list[float]], list[float]]:
    """Samples in ms by name, and the floor's."""
    moments = Moments()
    skin = FleetSkin(
        {NodeId(f"n{i}"): SimNode(NodeId(f"n{i}"), devices(f"n{i}", 8), 0.0, 0.0) for i in range(nodes)},
        {RouterId("r"): SimRouter(RouterId("r"))},
        moments.heard,
    )
    name = f"latency-{uuid.uuid4().hex[:6]}"
    settings = WorkerSettings(fleet=name, installation="bench", metrics_listen=None)
    outward = Outward()
    callers, pools, put = Callers(outward), Pools(outward), PutOnce()
    samples: dict[str, list[float]] = {"withdrawn": [], "start_accepted": [], "published": []}
    floor: list[float] = []
    async with contextlib.AsyncExitStack() as stack:
        base = await stack.enter_async_context(serving(skin))
        await stack.enter_async_context(make_worker(client, settings, callers, pools))
        await stack.enter_async_context(
            Worker(
                client,
                task_queue=f"{name}-floor",
                workflows=[Floor],
                activities=[put.put_once],
                workflow_runner=UnsandboxedWorkflowRunner(),
            )
        )
        await ensure(client, name, "bench", now_s=time.time())
        fleet = Fleet(client, name)
        noop = await client.start_workflow("Floor", id=f"{name}-floor", task_queue=f"{name}-floor")
        models = nodes * 4
        await fleet.apply(catalog(base, nodes, models))
        await _steady(fleet)
        for _ in range(rounds):
            floor.append(await _floor(noop, put, f"{base}/router/none/v1/table"))
            await _round(fleet, moments, base, nodes, models, samples)
        await fleet.handle.terminate()
        await noop.terminate()
    await pools.close()
    await callers.close()
    await put.client.aclose()
    return samples, floor


async def _floor(handle: Any, put: PutOnce, url: str) -> float:
    put.done.clear()
    begun = time.perf_counter()
    await handle.signal("go", url)
    await put.done.wait()
    return (time.perf_counter() - begun) * 1000


async def _round(
    fleet: Fleet, moments: Moments, base: str, nodes: int, models: int, samples: dict[str, list[float]]
) -> None:
    """Take the last model out, and put it back."""
    gone = moments.next(lambda t, d: t == "router/r" and bool(getattr(d, "drop_endpoints", ())))
    begun = time.perf_counter()
    await fleet.signal_catalog(catalog(base, nodes, models - 1))
    samples["withdrawn"].append((await asyncio.wait_for(gone, 30) - begun) * 1000)
    await _steady(fleet)
    accepted = moments.next(lambda _, d: isinstance(d, CommandBatch) and any(c.kind == "start" for c in d.commands))
    routed = moments.next(lambda t, d: t == "router/r" and bool(getattr(d, "put_endpoints", ())))
    begun = time.perf_counter()
    await fleet.signal_catalog(catalog(base, nodes, models))
    at = await asyncio.wait_for(accepted, 30)
    samples["start_accepted"].append((at - begun) * 1000)
    # The skin's engines are ready at once: the report leaves with the acceptance.
    samples["published"].append((await asyncio.wait_for(routed, 30) - at) * 1000)
    await _steady(fleet)


async def _steady(fleet: Fleet) -> None:
    while (await fleet.query("status"))["phase"] != "steady":  # noqa: ASYNC110 - the fleet is asked from outside
        await asyncio.sleep(0.05)
    await asyncio.sleep(QUIET_S)


async def run(nodes: int, rounds: int, *, strict: bool) -> int:
    environment = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(Path(sys.executable).parent / "temporal"),
        data_converter=pydantic_data_converter,
        dev_server_log_level="error",
    )
    samples, floor = await measure(environment.client, nodes, rounds)
    await environment.shutdown()
    base = spread(floor)
    figures = {name: spread(times) for name, times in samples.items()}
    ratios = {name: figure["p50_ms"] / base["p50_ms"] for name, figure in figures.items()}
    targets = [Target(f"{name} p50 / floor", ratio, MOST) for name, ratio in ratios.items()]
    return report(
        "latency", figures={"nodes": nodes, **figures}, floor=base, ratios=ratios, targets=targets, strict=strict
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--strict", action="store_true", help="exit 1 where a target is missed")
    given = parser.parse_args()
    return asyncio.run(run(given.nodes, given.rounds, strict=given.strict))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    import os

    os._exit(code)  # the SDK's native runtime may abort an ordinary exit
