"""What only shows our own orders waits for the news that follow it, and is told with them; alone it is told later."""

import asyncio
import random

import pytest

from activities.pool import Pool
from llmgw.echo import ECHO_S
from llmgw.outbox import REPEAT_S
from llmgw.wire import EngineState, NodeReport
from tests.plane.test_parts import full_report, hear, pool

__all__ = ["pool"]


def loading() -> tuple[NodeReport, NodeReport, NodeReport]:
    """A node before a replica is told to start, while it loads, and when it is ready."""
    after = full_report(random.Random(1), 7)
    *others, new = after.replicas
    loads = new.model_copy(update={"state": EngineState.LOADING, "was_ready": False})
    before = after.model_copy(update={"revision": 5, "replicas": tuple(others)})
    return before, after.model_copy(update={"revision": 6, "replicas": (*others, loads)}), after


async def test_news_are_told_at_once_together_with_the_echo_that_waited(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.pool.ECHO_S", 3600.0)
    before, loads, ready = loading()
    hear(pool, before)
    told = await pool.take(0)
    hear(pool, loads)
    taking = asyncio.create_task(pool.take(told.cursor))
    await asyncio.sleep(0)
    hear(pool, ready)
    async with asyncio.timeout(600):
        (seen,) = (await taking).nodes
    assert seen.revision == ready.revision
    assert seen.replicas[-1].state is EngineState.READY


async def test_an_echo_that_nothing_follows_is_told(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activities.pool.ECHO_S", 0.01)
    before, loads, _ = loading()
    hear(pool, before)
    told = await pool.take(0)
    hear(pool, loads)
    (seen,) = (await pool.take(told.cursor)).nodes
    assert seen.replicas[-1].state is EngineState.LOADING


def test_an_order_shows_long_before_it_would_be_repeated() -> None:
    assert 3 * ECHO_S < REPEAT_S
