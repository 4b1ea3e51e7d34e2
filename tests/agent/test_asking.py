"""How the agent asks engines: one connection a look, and none that stays open when it has looked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from agent.readiness import Prober
from llmgw.wire import LaunchSpec, MetricNames
from tests.agent.running import stub


@dataclass
class Engine:
    """Answers `/health` and `/metrics`, keeps connections for as long as its clients do."""

    health: int = 200
    drops: bool = False
    """It closes after each answer, without having said so."""
    opened: int = 0
    open: int = 0
    asked: list[tuple[str, bool]] = field(default_factory=list)
    """(path, whether it was said to be the last question)."""
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self.open += 1
        while head := await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b"":
            path = head.split()[1].decode()
            last = b"connection: close" in head.lower()
            self.asked.append((path, last))
            status, body = (self.health, b"") if path == "/health" else (200, b"r 1\n")
            writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))
            await writer.drain()
            if last or self.drops:
                break
        writer.close()
        self.open -= 1
        self.closed.set()


@asynccontextmanager
async def engine(made: Engine) -> AsyncIterator[tuple[str, Prober]]:
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    prober = Prober()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", prober
    finally:
        await prober.close()
        server.close()


def launch(running: str | None = "r") -> LaunchSpec:
    return stub().model_copy(update={"metrics": MetricNames(running=running)})


async def test_a_look_at_a_ready_engine_is_one_connection_that_ends_with_it() -> None:
    made = Engine()
    async with engine(made) as (base, prober):
        assert (await prober.look(base, launch(), was_ready=True)).ready
        assert await prober.figures(base, launch()) == {"r": 1.0}
        async with asyncio.timeout(60):
            await made.closed.wait()
    assert (made.opened, made.open) == (1, 0)
    assert made.asked == [("/health", False), ("/metrics", True)]


@pytest.mark.parametrize("was_ready", [True, False])
async def test_where_nothing_more_is_asked_the_first_question_says_so(was_ready: bool) -> None:
    made = Engine(health=503)
    async with engine(made) as (base, prober):
        assert not (await prober.look(base, launch(None), was_ready=was_ready)).ready
    assert made.asked == [("/health", True)]


async def test_an_engine_that_closes_between_two_questions_is_asked_anew() -> None:
    made = Engine(drops=True)
    async with engine(made) as (base, prober):
        assert (await prober.look(base, launch(), was_ready=True)).ready
        await made.closed.wait()
        assert await prober.figures(base, launch()) == {"r": 1.0}
    assert made.opened == 2
