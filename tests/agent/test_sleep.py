"""An engine is put to sleep and woken as it was told last, by real agents with an engine that sleeps as vLLM does."""

from typing import Any

import httpx
import pytest

from agent.readiness import parse_figures
from llmgw.engines import ROWS
from llmgw.wire import LaunchSpec, MetricNames, ReplicaReport
from tests.agent.running import Agent, start, stop, stub, token

METRICS = MetricNames(
    running="stub:requests_running", waiting="stub:requests_waiting", tokens_total="stub:tokens_total"
)
ASK = {"model": "m", "max_tokens": 1, "messages": []}


def sleepy(*args: str, able: bool = True, level: int = 1, **fields: Any) -> LaunchSpec:
    mode = ROWS["stub"].sleep
    assert mode is not None
    launch = stub(*(mode.args if able else ()), *args, **fields)
    return launch.model_copy(update={"metrics": METRICS, "sleep": mode.levels[level]})


async def row(agent: Agent, **fields: object) -> ReplicaReport:
    """The row of m-1 once it is so."""

    def fits(found: ReplicaReport) -> bool:
        return all(getattr(found, name) == value for name, value in fields.items())

    report = await agent.report(lambda r: any(fits(x) for x in r.replicas if x.replica == "m-1"))
    return next(x for x in report.replicas if x.replica == "m-1")


ASLEEP = {"state": "loading", "asleep": True, "rests": True}
AWAKE = {"state": "ready", "asleep": False, "rests": False}


async def begun(agent: Agent, launch: LaunchSpec | None = None) -> ReplicaReport:
    await agent.send(1, start("m-1", launch or sleepy()))
    return await row(agent, **AWAKE)


async def completion(at: ReplicaReport) -> int:
    async with httpx.AsyncClient(trust_env=False) as http:
        return (await http.post(f"{at.url}/v1/chat/completions", json=ASK)).status_code


async def figures(at: ReplicaReport) -> dict[str, float]:
    async with httpx.AsyncClient(trust_env=False) as http:
        found = parse_figures((await http.get(f"{at.url}/metrics")).text)
    return {name: found[f"stub:{name}_total"] for name in ("sleeps", "wakes", "refused_asleep")}


async def test_it_sleeps_and_wakes_as_told_last_and_is_the_same_process(agent: Agent) -> None:
    first = await begun(agent)
    for turn in range(3):
        await agent.rest(10 + 2 * turn, m_1=True)
        asleep = await row(agent, **ASLEEP)
        assert (asleep.pid, asleep.reason, asleep.was_ready, asleep.usage) == (first.pid, "asleep", True, None)
        assert await completion(first) == 503
        await agent.rest(11 + 2 * turn, m_1=False)
        assert (await row(agent, **AWAKE)).pid == first.pid
        assert await completion(first) == 200
    assert await figures(first) == {"sleeps": 3, "wakes": 3, "refused_asleep": 3}


async def test_the_same_word_again_does_nothing_and_a_stale_or_foreign_one_is_refused(agent: Agent) -> None:
    first = await begun(agent)
    for seq in (5, 6, 6):
        await agent.rest(seq, m_1=True, x_9=True)
    await row(agent, **ASLEEP)
    stale = await agent.post(4, asleep={"m-1": False})
    foreign = await agent.post(9, asleep={"m-1": False}, token=token(9, installation="elsewhere"))
    assert (stale.status_code, foreign.status_code) == (409, 403)
    await row(agent, **ASLEEP)
    assert await figures(first) == {"sleeps": 1, "wakes": 0, "refused_asleep": 0}


async def test_another_agent_finds_it_asleep_and_wakes_it_when_told(agent: Agent) -> None:
    first = await begun(agent)
    await agent.rest(2, m_1=True)
    await row(agent, **ASLEEP)
    await agent.written(lambda records: records.get("m-1", {}).get("asleep") is True)
    await agent.kill()
    await agent.begin()
    again = await row(agent, **ASLEEP)
    assert (again.pid, (await figures(first))["wakes"]) == (first.pid, 0)
    await agent.rest(3, m_1=False)
    await row(agent, **AWAKE)
    assert (await figures(first))["wakes"] == 1


async def test_an_agent_that_died_between_the_word_to_wake_and_the_deed_wakes_it_when_it_is_back(agent: Agent) -> None:
    first = await begun(agent, sleepy("--wake-s", "3"))
    await agent.rest(2, m_1=True)
    await row(agent, **ASLEEP)
    await agent.rest(3, m_1=False)
    await agent.kill()
    await agent.begin()
    await row(agent, **AWAKE)
    assert await completion(first) == 200, "ready means awake"


async def test_what_sleeps_although_nobody_remembers_it_is_woken(agent: Agent) -> None:
    first = await begun(agent)
    await agent.written(lambda records: records.get("m-1", {}).get("was_ready") is True)
    async with httpx.AsyncClient(trust_env=False) as http:
        assert (await http.post(f"{first.url}/sleep?level=1")).status_code == 200
    await agent.kill()
    await agent.begin()
    await row(agent, **AWAKE)
    assert await completion(first) == 200
    assert await figures(first) == {"sleeps": 1, "wakes": 1, "refused_asleep": 0}


async def says(at: ReplicaReport) -> str:
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.post(f"{at.url}/v1/chat/completions", json=ASK)
    return str(answer.json()["choices"][0]["message"]["content"])


async def test_at_level_two_the_weights_are_read_again_before_it_counts_as_awake(agent: Agent) -> None:
    first = await begun(agent, sleepy(level=2))
    before = await says(first)
    for turn in range(2):
        await agent.rest(2 + 2 * turn, m_1=True)
        await row(agent, **ASLEEP)
        await agent.rest(3 + 2 * turn, m_1=False)
        assert (await row(agent, **AWAKE)).pid == first.pid
        assert await says(first) == before, "no weights, no sense"
    assert await figures(first) == {"sleeps": 2, "wakes": 2, "refused_asleep": 0}


async def test_an_agent_that_ends_between_the_steps_of_a_wake_takes_them_anew(agent: Agent) -> None:
    first = await begun(agent, sleepy("--wake-s", "2", level=2))
    before = await says(first)
    await agent.rest(2, m_1=True)
    await row(agent, **ASLEEP)
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        assert (await http.post(f"{first.url}/wake_up?tags=weights")).status_code == 200
    await agent.rest(3, m_1=False)
    await agent.kill()
    await agent.begin()
    await row(agent, **AWAKE)
    assert await says(first) == before


async def test_a_stub_woken_from_level_two_as_from_level_one_talks_nonsense_and_one_put_to_sleep_cuts_its_streams(
    agent: Agent,
) -> None:
    """What vLLM's documentation says of both, so that whoever gets it wrong is found out here."""
    first = await begun(agent, sleepy("--token-delay-s", "0.05", level=2))
    stream = {**ASK, "stream": True, "max_tokens": 1000}
    async with httpx.AsyncClient(trust_env=False, timeout=60, base_url=first.url or "") as http:
        async with http.stream("POST", "/v1/chat/completions", json=stream) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            await http.post("/sleep?level=2")
            with pytest.raises(httpx.RemoteProtocolError):
                [line async for line in lines]
        assert (await http.get("/is_sleeping")).json() == {"is_sleeping": True}
        assert (await http.post("/collective_rpc", json={"method": "reload_weights"})).status_code == 500
        await http.post("/wake_up?tags=weights")
        assert (await http.get("/is_sleeping")).json() == {"is_sleeping": True}
        await http.post("/wake_up")
        assert (await http.get("/is_sleeping")).json() == {"is_sleeping": False}
    assert await says(first) == "nonsense"


async def test_a_sleeper_is_stopped_with_proof_like_any_other(agent: Agent) -> None:
    await begun(agent)
    await agent.rest(2, m_1=True)
    await row(agent, **ASLEEP)
    await agent.send(3, stop("m-1"))
    await agent.without("m-1")
    assert agent.ours() == []


async def test_a_sleeper_that_dies_has_failed(agent: Agent) -> None:
    await begun(agent)
    await agent.rest(2, m_1=True)
    await row(agent, **ASLEEP)
    await agent.tell("m-1", "crash")
    failed = await row(agent, state="failed", asleep=False)
    assert "exit code 1" in failed.reason


async def test_an_engine_that_cannot_sleep_serves_on_and_says_why(agent: Agent) -> None:
    await begun(agent, sleepy(able=False))
    await agent.rest(2, m_1=True)
    told = await row(agent, state="ready", asleep=False, rests=True, reason=_REASON)
    assert await completion(told) == 200
    await agent.rest(3, m_1=False)
    await row(agent, **AWAKE, reason="")


_REASON = "is not put to sleep: /sleep?level=1 answers 404"


async def test_requests_that_no_router_sent_end_before_it_sleeps(agent: Agent) -> None:
    first = await begun(agent, sleepy("--token-delay-s", "0.05"))
    stream = {**ASK, "stream": True, "max_tokens": 40}
    url = f"{first.url}/v1/chat/completions"
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http, http.stream("POST", url, json=stream) as answer:
        lines = answer.aiter_lines()
        await anext(lines)
        await agent.rest(2, m_1=True)
        waiting = await row(agent, rests=True, reason=_BUSY)
        assert (waiting.state, waiting.asleep) == ("ready", False)
        assert [line async for line in lines if line][-1] == "data: [DONE]"
    await row(agent, **ASLEEP)


_BUSY = "is not put to sleep: it works on requests that no router sent"


async def test_an_engine_that_does_not_wake_up_is_ended_as_failed(agent: Agent) -> None:
    await begun(agent, sleepy(start_limit_s=3.0))
    await agent.rest(2, m_1=True)
    await row(agent, **ASLEEP)
    await agent.tell("m-1", "oversleep")
    await agent.rest(3, m_1=False)
    failed = await row(agent, state="failed")
    assert failed.reason == "did not wake up within 3 s: wakes up: /wake_up answers 500"
    assert agent.ours() == []


@pytest.mark.parametrize("first", [True, False])
async def test_the_later_of_two_words_counts_though_both_come_before_it_is_ready(agent: Agent, first: bool) -> None:
    await agent.send(1, start("m-1", sleepy("--load-s", "0.5")))
    await agent.rest(2, m_1=first)
    await agent.rest(3, m_1=not first)
    await row(agent, **(AWAKE if first else ASLEEP))
