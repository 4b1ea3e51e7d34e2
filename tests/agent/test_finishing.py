"""What came to an engine past the routers may finish before it is told to end; a gauge that lies holds up nothing."""

import asyncio
from collections.abc import Mapping

import aiohttp
import pytest

from agent import finishing
from agent.finishing import let_finish
from llmgw.ids import ReplicaId
from llmgw.wire import LaunchSpec, MetricNames, Stop
from tests.agent.running import Agent, start, stub

METRICS = MetricNames(
    running="stub:requests_running", waiting="stub:requests_waiting", tokens_total="stub:tokens_total"
)
STREAM = {"model": "m", "stream": True, "max_tokens": 30, "messages": []}


def gentle(*args: str) -> LaunchSpec:
    return stub("--token-delay-s", "0.05", *args).model_copy(update={"metrics": METRICS})


def stop(drain_s: float, *, force: bool = False) -> Stop:
    return Stop(replica=ReplicaId("m-1"), reason="the test asks", drain_s=drain_s, force=force)


async def tokens(answer: aiohttp.ClientResponse) -> int:
    return sum([line.startswith(b'data: {"id"') async for line in answer.content])


async def test_a_stream_past_the_routers_runs_to_its_end_and_the_stop_says_what_it_waits_for(agent: Agent) -> None:
    await agent.send(1, start("m-1", gentle()))
    row = await agent.row("m-1", "ready")
    async with aiohttp.ClientSession() as http, http.post(f"{row.url}/v1/chat/completions", json=STREAM) as answer:
        await answer.content.readline()
        await agent.send(2, stop(60.0))
        report = await agent.report(lambda r: any("waits for 1 request" in row.reason for row in r.replicas))
        assert (report.replicas[0].state, report.replicas[0].pid) == ("stopping", row.pid)
        assert await tokens(answer) == 29, "all but the first, which was read before"
    await agent.without("m-1")


@pytest.mark.parametrize("how", ["no time is left", "by force", "told again with force"])
async def test_a_stream_is_cut_where_it_may_not_go_on(agent: Agent, how: str) -> None:
    await agent.send(1, start("m-1", gentle()))
    row = await agent.row("m-1", "ready")
    endless = {**STREAM, "max_tokens": 100_000}
    async with aiohttp.ClientSession() as http, http.post(f"{row.url}/v1/chat/completions", json=endless) as answer:
        await answer.content.readline()
        await agent.send(2, stop(0.0 if how == "no time is left" else 3600.0, force=how == "by force"))
        if how == "told again with force":
            await agent.report(lambda r: any("waits for" in row.reason for row in r.replicas))
            await agent.send(3, stop(3600.0, force=True))
        await agent.without("m-1")
        with pytest.raises(aiohttp.ClientPayloadError):
            await tokens(answer)


@pytest.mark.parametrize(
    "figures",
    [{"stub:requests_running": 1.0, "stub:tokens_total": 7.0}, {"stub:requests_running": 0.0}, {"other": 1.0}, None],
    ids=["it stands still", "nothing runs", "no gauge", "no answer"],
)
async def test_nothing_is_waited_for_that_cannot_be_finished(
    figures: Mapping[str, float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finishing, "STILL_S", 0.01)

    async def asked() -> Mapping[str, float] | None:
        return figures

    async with asyncio.timeout(30):
        await let_finish(asked, gentle(), 3600.0, lambda _: None)


async def test_what_makes_progress_may_go_on_until_the_limit() -> None:
    count, told = 0.0, list[int]()

    async def asked() -> Mapping[str, float]:
        nonlocal count
        count += 1
        return {"stub:requests_running": 2.0, "stub:tokens_total": count}

    await let_finish(asked, gentle(), 0.3, told.append)
    assert count > 1
    assert told == [2]
