"""A plan that goes on for longer than a workflow task lasts, with news coming meanwhile: it replays, and tells each
node once."""

import asyncio
import uuid
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Replayer

from activities.plan import Planner
from bench.fleet.sizes import whole_device_models
from bench.fleet.skins import FleetSkin, serving
from llmgw import plan_size
from llmgw.ids import NodeId, RouterId
from llmgw.plan import Plan
from sim.node import SimNode, devices
from sim.router import SimRouter
from workers.control import runner
from workflows.converting import data_converter
from workflows.guard import GuardInterceptor
from workflows.reconcile import ReconcileWorkflow

from .conftest import working

NODES, DEVICES = 56, 8
SLOW_S = 1.5
"""Two such plans are longer than what a worker waits before it tells the server that its task goes on (2.4 s)."""


class SlowPlanner(Planner):
    """Takes its time over every plan that goes on, and says when it made one."""

    went_on: int = 0
    progress: asyncio.Event

    @activity.defn(name="plan")
    async def plan(self, run_id: str) -> Plan:
        made = await super().plan(run_id)
        if made.more:
            SlowPlanner.went_on += 1
            SlowPlanner.progress.set()
            await asyncio.sleep(SLOW_S)
        return made


async def test_news_that_come_between_plans_replay(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [NodeId(f"n{n}") for n in range(NODES)]
    skin = FleetSkin(
        {n: SimNode(n, devices(n, DEVICES), start_s=0.02, stop_s=0.02) for n in names},
        {RouterId("r"): SimRouter(RouterId("r"))},
    )
    monkeypatch.setattr("workers.control.Planner", SlowPlanner)
    monkeypatch.setattr(plan_size, "MAX_START_BYTES", 6 * 1024)  # five plans and more for this fleet
    monkeypatch.setattr(SlowPlanner, "went_on", 0)
    monkeypatch.setattr(SlowPlanner, "progress", asyncio.Event(), raising=False)
    async with serving(skin) as base, working(client, f"t-{uuid.uuid4().hex[:8]}") as fleet:
        catalog: dict[str, Any] = {
            "nodes": [{"id": n, "url": f"{base}/node/{n}"} for n in names],
            "routers": [{"id": "r", "url": f"{base}/router/r"}],
            "policy": {"max_loading_per_node": DEVICES},
            "models": whole_device_models(NODES * DEVICES),
        }
        asleep = {**catalog["models"][0], "name": "asleep", "replicas": {"min": 0, "max": 1}}
        async with asyncio.timeout(60):
            await fleet.apply({**catalog, "models": []})
            while (await fleet.query("status"))["phase"] != "steady":  # noqa: ASYNC110 - asked from outside
                await asyncio.sleep(0.05)
            skin.silence("router/r")
            await fleet.apply({**catalog, "models": [asleep]})  # a call to the router is under way from now on
            applied = asyncio.create_task(fleet.apply(catalog))
            await SlowPlanner.progress.wait()
            skin.speak("router/r")  # its answer comes in the midst of the plans, and a report of a node does, too
            skin.nodes[names[0]].restart_agent()
            skin.tell(f"node/{names[0]}")
            await fleet.handle.signal("no-such-signal", "x")
            await applied
            while sum(len(n.starts) for n in skin.nodes.values()) < NODES * DEVICES:  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(0.05)
        history = await fleet.handle.fetch_history()
        await fleet.handle.terminate("the test is over")
    assert SlowPlanner.went_on >= 2
    replayer = Replayer(
        workflows=[ReconcileWorkflow],
        data_converter=data_converter,
        workflow_runner=runner(),
        interceptors=[GuardInterceptor()],
    )
    assert (await replayer.replay_workflow(history)).replay_failure is None
