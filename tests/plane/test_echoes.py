"""What only shows our own orders waits for the news that follow it, and is told with them; alone it is told later."""

import asyncio
import random

import pytest

from activities.pool import Pool
from llmgw.echo import ECHO_S
from llmgw.outbox import REPEAT_S
from llmgw.pace import AT_ONCE, WINDOW_S, Pace
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


def test_after_quiet_a_few_observations_follow_at_once_and_more_are_gathered() -> None:
    pace, waits = Pace(), []
    for _ in range(5):
        waits.append(pace.wait_s(100.0))
        pace.take(100.0)
    assert waits == [0.0, 0.0, 0.0, WINDOW_S, WINDOW_S]


def test_news_that_never_cease_are_told_once_a_window() -> None:
    pace, now_s, told = Pace(), 100.0, 0
    while now_s < 200.0:
        now_s += pace.wait_s(now_s)
        pace.take(now_s)
        told += 1
    assert 100.0 / WINDOW_S <= told <= 100.0 / WINDOW_S + AT_ONCE + 1


def test_what_comes_less_than_once_a_window_never_waits() -> None:
    pace = Pace()
    for second in range(100):
        assert pace.wait_s(float(second)) == 0.0
        pace.take(float(second))
