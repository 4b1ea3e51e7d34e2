"""Bursts of signals among activity results: what was commanded is commanded again at replay."""

import asyncio
import random
import uuid
from functools import partial

from temporalio.client import Client
from temporalio.worker import Replayer

from bench.fleet.skins import FleetSkin, serving
from llmgw.ids import NodeId, RouterId
from sim.node import SimNode, devices
from sim.router import SimRouter
from workers.control import runner
from workflows.converting import data_converter
from workflows.guard import GuardInterceptor
from workflows.news import News
from workflows.reconcile import ReconcileWorkflow

from .conftest import working

BURSTS, SIGNALS = 20, 10


def catalog(base: str, number: int) -> dict[str, object]:
    """Weights differ, models come and go: most of these make the plane tell its routers."""
    names = ["x", "y", *(f"z{i}" for i in range(number % 3))]
    profile = {"name": "p", "engine": "stub", "weight": 100 + number % 2}
    return {
        "nodes": [{"id": n, "url": f"{base}/node/{n}"} for n in ("a", "b")],
        "routers": [{"id": r, "url": f"{base}/router/{r}"} for r in ("r1", "r2")],
        "policy": {"removal_grace_s": 0.0},
        "allow_removals": True,
        "models": [{"name": name, "profiles": [profile]} for name in names],
    }


def test_news_of_one_task_are_taken_up_together_and_its_inputs_before_the_rest() -> None:
    news = News()
    taken: list[str] = []

    def take(name: str) -> bool:
        taken.append(name)
        return True

    for task, name, is_input in ((3, "a", True), (3, "b", True), (3, "c", False), (5, "d", False), (6, "e", False)):
        news.add(task, partial(take, name), is_input=is_input)
    groups = []
    while news:
        for happened in news.next():
            happened()
        groups.append("".join(taken))
        taken.clear()
    assert groups == ["ab", "c", "d", "e"]
    assert news.next() == []


async def test_bursts_of_signals_replay(client: Client) -> None:
    skin = FleetSkin(
        {NodeId(n): SimNode(NodeId(n), devices(n, 4), start_s=0.05, stop_s=0.05) for n in ("a", "b")},
        {RouterId(r): SimRouter(RouterId(r)) for r in ("r1", "r2")},
    )
    replayer = Replayer(
        workflows=[ReconcileWorkflow],
        data_converter=data_converter,
        workflow_runner=runner(),
        interceptors=[GuardInterceptor()],
    )
    dice = random.Random(7)
    async with serving(skin) as base, working(client, f"t-{uuid.uuid4().hex[:8]}", max_history=400) as fleet:
        await fleet.apply(catalog(base, 0))
        for burst in range(BURSTS):
            for number in range(SIGNALS):
                await fleet.signal_catalog(catalog(base, burst + number))
                # Some fall together with results, and some between them.
                await asyncio.sleep(dice.choice((0.0, 0.0, 0.02, 0.05, 0.1)))
            history = await fleet.handle.fetch_history()
            result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
            assert result.replay_failure is None
        await fleet.handle.terminate("the test is over")
