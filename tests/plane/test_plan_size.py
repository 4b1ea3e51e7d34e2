"""A plan that Temporal would not take never reaches the workflow: its task would fail again and again."""

import asyncio
from typing import cast

import pytest

from activities import handover
from activities.plan import MAX_PLAN_BYTES, Planner
from activities.pools import Pools
from llmgw.plan import Plan
from llmgw.world import Event, World


@pytest.mark.parametrize("chars", [10, MAX_PLAN_BYTES])
def test_a_plan_that_is_too_large_becomes_a_safe_one(monkeypatch: pytest.MonkeyPatch, chars: int) -> None:
    made = Plan(events=(Event(0.0, "model/m", "x" * chars),))
    monkeypatch.setattr(f"{Planner.__module__}.decide", lambda world, now_s: made)
    world = World(fleet="f", installation="i", epoch=1, seq=0)
    handover.put("large", world, 0.0)
    try:
        plan = asyncio.run(Planner(cast("Pools", None)).plan("large"))
    finally:
        handover.drop("large")
    if chars < MAX_PLAN_BYTES:
        assert plan is made
    else:
        assert "too large to be kept: apply a smaller catalog" in plan.safe_mode
        assert not plan.events
