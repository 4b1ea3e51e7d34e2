"""Requests for a model that sleeps or starts: held within limits, let go on together, and told of in the state."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llmgw.wire import ModelState

from .rig import Engine, Rig, endpoint, model, started, watching

ASLEEP = (model("m", "chat", state=ModelState.ASLEEP, retry_after_s=7),)


@pytest.fixture
async def holding(tmp_path: Path) -> AsyncIterator[Rig]:
    async with started(tmp_path / "state", hold_limit_s=30.0, hold_requests=3) as rig:
        yield rig


async def held(rig: Rig, count: int) -> None:
    async with asyncio.timeout(60):
        while rig.router.traffic.asks.waiting().get("m", 0) != count:  # type: ignore[call-overload]  # noqa: ASYNC110
            await asyncio.sleep(0)  # that a request waits makes no event of its own, by design


async def test_requests_wait_for_their_model_and_are_answered_when_it_wakes(holding: Rig, engine: Engine) -> None:
    await holding.serve(ASLEEP, ())
    waiting = [asyncio.create_task(holding.ask(name)) for name in ("m", "chat", "m")]
    await held(holding, 3)
    await holding.serve((model("m", "chat", state=ModelState.STARTING),), (), seq=2)
    await held(holding, 3)
    await holding.serve((model("m", "chat"),), (engine.endpoint("m", "chat"),), seq=3)
    assert await asyncio.gather(*waiting) == [(200, {"replica": "m-1"})] * 3
    assert holding.router.traffic.asks.waiting() == {}


async def test_b38_one_ask_of_many_is_told_in_the_state_with_how_many_wait(holding: Rig, engine: Engine) -> None:
    await holding.serve(ASLEEP, ())
    async with watching(holding) as reader:
        assert (await reader.next()).asked == ()
        waiting = [asyncio.create_task(holding.ask("m"))]
        told = (await reader.next()).asked
        assert [(a.model, a.waiting, a.asked_s) for a in told] in ([("m", 1, 0.0)], [("m", 0, 0.0)])
        waiting.append(asyncio.create_task(holding.ask("m")))
        await held(holding, 2)
        await holding.serve((model("m", "chat"),), (engine.endpoint("m", "chat"),), seq=2)
        assert (await reader.next()).asked == ()
        assert {status for status, _ in await asyncio.gather(*waiting)} == {200}


async def test_one_more_than_may_wait_is_told_when_to_come_back(holding: Rig) -> None:
    await holding.serve(ASLEEP, ())
    waiting = [asyncio.create_task(holding.ask("m")) for _ in range(3)]
    await held(holding, 3)
    async with holding.client.post(holding.url + "/v1/completions", json={"model": "chat"}) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "7")
        assert "many requests wait" in await response.text()
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_b36_a_client_that_goes_away_frees_its_place(holding: Rig, engine: Engine) -> None:
    await holding.serve(ASLEEP, ())
    gone = [asyncio.create_task(holding.ask("m")) for _ in range(3)]
    await held(holding, 3)
    for task in gone:
        task.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    await held(holding, 0)
    patient = asyncio.create_task(holding.ask("m"))
    await held(holding, 1)
    await holding.serve((model("m", "chat"),), (engine.endpoint("m", "chat"),), seq=2)
    assert (await patient)[0] == 200
    assert len(engine.seen) == 1


async def test_who_waits_too_long_is_told_so(tmp_path: Path) -> None:
    async with started(tmp_path / "state", hold_limit_s=0.05) as rig:
        await rig.serve(ASLEEP, ())
        async with rig.client.post(rig.url + "/v1/completions", json={"model": "m"}) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "7")
            assert "did not become ready in time" in await response.text()


async def test_nobody_waits_for_a_model_that_cannot_run(holding: Rig) -> None:
    await holding.serve((model("m", state=ModelState.UNAVAILABLE),), ())
    assert (await holding.ask("m"))[0] == 503


@pytest.mark.parametrize(
    ("models", "status"), [((), 404), ((model("m", state=ModelState.UNAVAILABLE),), 503)], ids=["left", "unavailable"]
)
async def test_who_waits_in_vain_is_told_at_once(holding: Rig, models: tuple[object, ...], status: int) -> None:
    await holding.serve(ASLEEP, ())
    waiting = asyncio.create_task(holding.ask("m"))
    await held(holding, 1)
    await holding.serve(models, (), seq=2)  # type: ignore[arg-type]  # rows of a table
    assert (await waiting)[0] == status


async def test_b38_listing_models_is_no_ask(holding: Rig) -> None:
    await holding.serve(ASLEEP, ())
    for _ in range(5):
        async with holding.client.get(holding.url + "/v1/models") as response:
            assert response.status == 200
    assert holding.router.traffic.asks.asked == {}


# --- endpoints that died and are still in the table ------------------------------------------------------------------


async def behind(rig: Rig, count: int) -> None:
    async with asyncio.timeout(60):
        while rig.router.traffic.asks.behind != count:  # noqa: ASYNC110
            await asyncio.sleep(0)  # likewise


async def test_requests_for_an_engine_that_died_wait_for_what_replaces_it(holding: Rig, engine: Engine) -> None:
    await holding.serve((model("m"), model("x")), (endpoint("m-0"),))
    waiting = [asyncio.create_task(holding.ask("m")) for _ in range(2)]
    await behind(holding, 2)
    await holding.serve((model("m"), model("x", "other")), (endpoint("m-0"),), seq=2)
    assert holding.router.traffic.asks.behind == 2, "a table that says nothing of the model changes nothing"
    await holding.serve((model("m", state=ModelState.STARTING),), (), seq=3)
    await held(holding, 2)
    await holding.serve((model("m"),), (engine.endpoint(),), seq=4)
    assert await asyncio.gather(*waiting) == [(200, {"replica": "m-1"})] * 2


async def test_requests_go_on_at_once_where_the_next_table_has_another_endpoint(holding: Rig, engine: Engine) -> None:
    await holding.serve((model("m"),), (endpoint("m-0"),))
    waiting = asyncio.create_task(holding.ask("m"))
    await behind(holding, 1)
    await holding.serve((model("m"),), (endpoint("m-0"), engine.endpoint()), seq=2)
    assert await waiting == (200, {"replica": "m-1"})


async def test_a_table_that_never_comes_is_waited_for_only_shortly_and_not_by_everybody(
    holding: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.proxy.STALE_S", 3600.0)
    await holding.serve((model("m"),), (endpoint("m-0"),))
    patient = [asyncio.create_task(holding.ask("m")) for _ in range(3)]
    await behind(holding, 3)
    assert (await holding.ask("m"))[0] == 503
    for task in patient:
        task.cancel()
    await asyncio.gather(*patient, return_exceptions=True)
    await behind(holding, 0)
    monkeypatch.setattr("router.proxy.STALE_S", 0.0)
    assert (await holding.ask("m"))[0] == 503


async def test_a_model_that_leaves_while_its_engine_is_dead_is_unknown(holding: Rig) -> None:
    await holding.serve((model("m"), model("x")), (endpoint("m-0"),))
    waiting = asyncio.create_task(holding.ask("m"))
    await behind(holding, 1)
    await holding.serve((model("x"),), (), seq=2)
    assert (await waiting)[0] == 404
