"""What only shows our own orders waits for the news that follow it, and is told with them; alone it is told later."""

import asyncio
import random

import pytest

from activities.pool import Pool, _Stream
from llmgw.echo import ECHO_S
from llmgw.ids import ReplicaId
from llmgw.observation import Target
from llmgw.outbox import REPEAT_S
from llmgw.pace import AT_ONCE, WINDOW_S, Pace
from llmgw.wire import EndpointUse, EngineState, HeldTable, NodeReport, RouterState, Token
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


async def test_what_had_failed_and_went_when_it_was_stopped_is_no_news(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the stop has told of it. What went otherwise is."""
    monkeypatch.setattr("activities.pool.ECHO_S", 3600.0)
    before, _, ready = loading()
    *others, last = ready.replicas
    failed = last.model_copy(update={"state": EngineState.FAILED})
    hear(pool, ready.model_copy(update={"replicas": (*others, failed)}))
    told = await pool.take(0)
    hear(pool, before.model_copy(update={"revision": 8}))
    assert pool._urgent <= told.cursor
    hear(pool, ready.model_copy(update={"revision": 9}))
    cursor = pool._seq
    hear(pool, before.model_copy(update={"revision": 10}))
    assert pool._urgent > cursor


def router_state(seq: int, **said: object) -> RouterState:
    token = Token(installation="i", fleet="f", epoch=1, seq=seq)
    held = {"f": HeldTable(token=token, digest=f"d{seq}")}
    return RouterState.model_validate({"instance": "r", "revision": seq, "tables": held, **said})


def hear_router(pool: Pool, state: RouterState) -> None:
    stream = pool._streams.setdefault("router/r", _Stream(Target(id="router/r", url="http://h")))
    pool._router(stream, state)


async def test_a_table_that_a_router_took_waits_longer_than_any_other_echo(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.pool.TABLE_ECHO_S", 3600.0)
    monkeypatch.setattr("activities.pool.ECHO_S", 0.01)
    before, loads, _ = loading()
    hear(pool, before)
    hear_router(pool, router_state(1))
    told = await pool.take(0)
    hear_router(pool, router_state(2))
    taking = asyncio.create_task(pool.take(told.cursor))
    await asyncio.sleep(0)
    hear(pool, loads)
    async with asyncio.timeout(600):
        seen = await taking
    assert [router.revision for router in seen.routers] == [2]
    assert [node.revision for node in seen.nodes] == [loads.revision]


async def test_a_table_that_nothing_follows_is_told_all_the_same(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activities.pool.TABLE_ECHO_S", 0.01)
    hear_router(pool, router_state(1))
    told = await pool.take(0)
    hear_router(pool, router_state(2))
    assert [router.revision for router in (await pool.take(told.cursor)).routers] == [2]


FOREIGN = {"f": HeldTable(token=Token(installation="other", fleet="f", epoch=1, seq=9), digest="d")}
IN_USE = [EndpointUse(id=ReplicaId("m-1"), in_flight=1, idle_s=0.0, withdrawn=True)]


@pytest.mark.parametrize(
    "after", [router_state(0), router_state(2, tables=FOREIGN), router_state(2, use=IN_USE), router_state(2, tables={})]
)
async def test_what_else_a_router_says_is_told_at_once(
    after: RouterState, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.pool.TABLE_ECHO_S", 3600.0)
    monkeypatch.setattr("activities.pool.ECHO_S", 0.01)
    hear_router(pool, router_state(1))
    told = await pool.take(0)
    hear_router(pool, after)
    async with asyncio.timeout(600):
        assert len((await pool.take(told.cursor)).routers) == 1


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
