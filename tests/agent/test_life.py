"""An engine's life on a node, with real processes: nothing is lost or doubled, whoever dies meanwhile."""

import signal

import pytest

from llmgw.wire import Outcome
from tests.agent.running import Agent, alive, start, stop, stub, token


async def test_a_replica_becomes_ready_and_is_gone_only_when_that_is_proven(agent: Agent) -> None:
    reply = await agent.send(1, start("m-1", stub("--load-s", "0.2")))
    assert reply.results[0].outcome is Outcome.ACCEPTED
    row = await agent.row("m-1", "ready")
    assert row.url is not None
    assert alive(row.pid)
    await agent.send(2, stop("m-1"))
    report = await agent.without("m-1")
    assert report.token == token(2), "absence counts against the token of the stop"
    assert not alive(row.pid)
    assert agent.ours() == []


async def test_a_crash_is_reported_with_exit_code_and_last_lines_and_cleared_by_a_stop(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub("--crash-after-s", "0.3", "--exit-code", "7")))
    row = await agent.row("m-1", "failed")
    assert row.exit_code == 7
    assert row.was_ready
    assert "crashing as told" in row.log_tail
    await agent.send(2, stop("m-1"))
    await agent.without("m-1")


async def test_the_start_limit_ends_a_load_that_takes_too_long_with_its_own_reason(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub("--load-s", "60", start_limit_s=0.8)))
    row = await agent.row("m-1", "failed")
    assert "start limit 0.8 s reached" in row.reason
    assert not alive(row.pid)


async def test_an_engine_that_lists_another_name_is_not_ready_and_the_reason_names_both(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub("--list-as", "impostor")))
    report = await agent.report(lambda r: any("impostor" in row.reason for row in r.replicas))
    assert report.replicas[0].state == "loading"
    assert "m" in report.replicas[0].reason


async def test_a_stop_ends_engines_that_ignore_term_and_the_children_they_leave(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub("--ignore-term", "--leave-child", term_limit_s=0.3)))
    await agent.row("m-1", "ready")
    assert len(agent.ours()) == 2
    await agent.send(2, stop("m-1"))
    await agent.without("m-1")
    assert agent.ours() == []


@pytest.mark.parametrize(
    ("args", "until", "end"),
    [
        (("--load-s", "1.5"), "loading", "ready"),
        ((), "ready", "ready"),
        (("--crash-after-s", "0.2"), "failed", "failed"),
    ],
    ids=["while it loads", "while it serves", "after it failed"],
)
async def test_an_agent_killed_at_any_moment_comes_back_to_the_same_engine(
    agent: Agent, args: tuple[str, ...], until: str, end: str
) -> None:
    await agent.send(1, start("m-1", stub(*args)))
    before = await agent.row("m-1", until)
    await agent.kill()
    await agent.begin()
    after = await agent.row("m-1", end)
    assert (after.pid, after.port, after.mark) == (before.pid, before.port, before.mark)
    assert len(agent.ours()) == (0 if end == "failed" else 1)


async def test_a_stop_interrupted_by_the_agents_death_goes_on(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub("--ignore-term", term_limit_s=1.0)))
    await agent.row("m-1", "ready")
    await agent.send(2, stop("m-1"))
    await agent.row("m-1", "stopping")
    await agent.kill()
    await agent.begin()
    await agent.without("m-1")
    assert agent.ours() == []


async def test_an_engine_that_dies_while_the_agent_is_away_is_reported_failed(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub()))
    row = await agent.row("m-1", "ready")
    await agent.kept_as_ready()
    await agent.kill()
    for process in agent.ours():
        process.kill()
        process.wait(5)
    await agent.begin()
    assert (await agent.row("m-1", "failed")).pid == row.pid


async def test_a_lost_ledger_is_rebuilt_from_the_marks(agent: Agent) -> None:
    await agent.send(3, start("m-1", stub()))
    before = await agent.row("m-1", "ready")
    await agent.kill()
    (agent.state_dir / "ledger.json").unlink()
    await agent.begin()
    after = await agent.row("m-1", "ready")
    assert (after.pid, after.port) == (before.pid, before.port)
    assert (await agent.post(2)).status_code == 409, "it still knows that newer commands were given"


async def test_ending_the_agent_in_order_leaves_its_engines_running(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub()))
    row = await agent.row("m-1", "ready")
    assert await agent.kill(signal.SIGTERM) == 0
    assert alive(row.pid)


async def test_logs_are_served_by_replica(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub("--tokens", "3")))
    await agent.row("m-1", "ready")
    answer = await agent.http.get("/v1/replicas/m-1/logs")
    assert '"--tokens", "3"' in answer.text
    assert (await agent.http.get("/v1/replicas/nobody/logs")).status_code == 404
