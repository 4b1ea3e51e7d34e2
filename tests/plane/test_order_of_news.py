"""Bursts of signals among activity results: what was commanded is commanded again at replay."""

import asyncio
import random
import uuid

from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer

from bench.fleet.skins import FleetSkin, serving
from llmgw.carry import Parts, Seed
from llmgw.ids import NodeId, RouterId
from llmgw.world import Input, InputKind
from sim.node import SimNode, devices
from sim.router import SimRouter
from workers.control import runner
from workflows.converting import data_converter
from workflows.fleet_state import FleetState
from workflows.guard import GuardInterceptor
from workflows.news import Happened, News
from workflows.reconcile import ReconcileWorkflow

from .conftest import working
from .earlier import told_earlier

BURSTS, SIGNALS, TOLD_OTHERWISE = 20, 10, 10


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


def test_a_preview_has_all_that_happened_and_leaves_the_state_as_it_was() -> None:
    state = FleetState(Seed(fleet="f", installation="i"), Parts(b"", b"", b"", b"", b""), 0.0)
    news = News()
    news.add(3, Happened(lambda s: s.refuse("a", "no", 1.0)))
    news.add(-2, Happened(lambda s: s.take(Input(2, InputKind.ORDER, "cordon", [], 1.0))))
    preview = news.preview(state, 1.0)
    assert preview.seen == (3, -2)
    assert (len(preview.state.world.inbox), len(preview.state.recent.refusals)) == (1, 1)
    assert (len(state.world.inbox), len(state.recent.refusals)) == (0, 0)
    assert news.has([3])
    assert not news.has([3, 4])
    assert len(news.take([-2])) == 1
    assert news.preview(state, 1.0).seen == (3,)


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
    dice, longest = random.Random(7), WorkflowHistory("", [])
    async with serving(skin) as base, working(client, f"t-{uuid.uuid4().hex[:8]}", max_history=400) as fleet:
        await fleet.apply(catalog(base, 0))
        for burst in range(BURSTS):
            for number in range(SIGNALS):
                await fleet.signal_catalog(catalog(base, burst + number))
                # Some fall together with results, and some between them.
                await asyncio.sleep(dice.choice((0.0, 0.0, 0.02, 0.05, 0.1)))
            history = await fleet.handle.fetch_history()
            longest = max(longest, history, key=lambda h: len(h.events))
            result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
            assert result.replay_failure is None
        await fleet.handle.terminate("the test is over")
    for _ in range(TOLD_OTHERWISE):
        otherwise, moved = told_earlier(longest, dice)
        assert moved
        result = await replayer.replay_workflow(otherwise, raise_on_replay_failure=False)
        assert result.replay_failure is None, "at replay something may be handed over before it was"
