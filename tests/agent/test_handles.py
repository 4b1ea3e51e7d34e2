"""File handles: an agent and its engines may have as many as the system lets them, and too few are told."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.handles import LEAST_FOR_ENGINES, why_too_few
from tests.agent.running import agent_in, start, stub


@pytest.fixture
def hard() -> Iterator[int]:
    """What follows begins with a low soft limit, as services and shells give it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_an_engine_has_all_the_handles_that_the_agent_may_ask_for(tmp_path: Path, hard: int) -> None:
    async with agent_in(tmp_path) as agent:
        await agent.send(1, start("m-1", stub()))
        row = await agent.row("m-1", "ready")
        assert row.pid is not None
        soft, _ = resource.prlimit(row.pid, resource.RLIMIT_NOFILE)
    assert soft == (hard if 0 <= hard < 2**20 else 2**20)


@pytest.mark.parametrize(
    ("limit", "replicas", "words"),
    [
        (1_048_576, 500, ""),
        (LEAST_FOR_ENGINES, 100, ""),
        (1024, 10, "engines get 1024 file handles"),
        (256, 200, "too few for this agent with 200 replicas"),
    ],
)
def test_what_is_too_few_is_said_with_what_it_is_for_and_how_to_mend_it(limit: int, replicas: int, words: str) -> None:
    said = why_too_few(limit, replicas)
    assert bool(said) is bool(words)
    assert words in said
    assert not said or "LimitNOFILE" in said
