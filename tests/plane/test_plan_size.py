"""A plan that Temporal would not take never reaches the workflow: its task would fail again and again. And one that
takes long is made beside the event loop."""

import asyncio
import random
import threading
from typing import cast

import pytest

from activities import handover
from activities.handover import Handed
from activities.plan import LARGE, MAX_PLAN_BYTES, Planner
from activities.pools import Pools
from llmgw.ids import ReplicaId
from llmgw.plan import Plan
from llmgw.world import Assignment, Event, World


@pytest.mark.parametrize("chars", [10, MAX_PLAN_BYTES])
def test_a_plan_that_is_too_large_becomes_a_safe_one(monkeypatch: pytest.MonkeyPatch, chars: int) -> None:
    noise = random.Random(0).randbytes(chars).hex()  # a plan is compressed where that helps
    made = Plan(events=(Event(0.0, "model/m", noise),))
    monkeypatch.setattr(f"{Planner.__module__}.decide", lambda world, now_s: made)
    world = World(fleet="f", installation="i", epoch=1, seq=0)
    handover.put("large", Handed(world, 0.0))
    try:
        plan = asyncio.run(Planner(cast("Pools", None)).plan("large"))
    finally:
        handover.drop("large")
    if chars < MAX_PLAN_BYTES:
        assert plan == made
    else:
        assert "too large to be kept: apply a smaller catalog" in plan.safe_mode
        assert not plan.events


@pytest.mark.parametrize(("replicas", "beside"), [(LARGE - 1, False), (LARGE, True)])
def test_a_large_fleet_is_decided_on_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, replicas: int, beside: bool
) -> None:
    decided_in: list[threading.Thread] = []

    def decide(world: World, now_s: float) -> Plan:
        decided_in.append(threading.current_thread())
        return Plan()

    monkeypatch.setattr(f"{Planner.__module__}.decide", decide)
    assignments = {ReplicaId(f"r{n}"): cast("Assignment", None) for n in range(replicas)}
    handover.put("beside", Handed(World(fleet="f", installation="i", epoch=1, seq=0, assignments=assignments), 0.0))
    try:
        asyncio.run(Planner(cast("Pools", None)).plan("beside"))
    finally:
        handover.drop("beside")
    assert [thread is not threading.main_thread() for thread in decided_in] == [beside]
