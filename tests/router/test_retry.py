"""Tried again before the first byte, and only when that is safe."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from llmgw.wire import Endpoint
from router.uses import EJECT_S

from .rig import CHAT, Engine, Rig, endpoint, model, running, started, table

DEAD = "http://127.0.0.1:1"


class Wire:
    """A server made of bytes: reads a request's head, then says what it is told and closes."""

    def __init__(self, says: bytes = b"") -> None:
        self.says = says
        self.requests = 0
        self.url = ""

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.requests += 1
        writer.write(self.says)
        writer.close()


@asynccontextmanager
async def wired(wire: Wire) -> AsyncIterator[Wire]:
    server = await asyncio.start_server(wire.talk, "127.0.0.1", 0)
    wire.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield wire


def uses(rig: Rig) -> dict[str, float]:
    return {c.use.id: c.use.ejections for c in rig.router.traffic.routing.candidates.values()}


async def test_a_refused_connect_goes_on_to_the_next_and_the_endpoint_rests(rig: Rig, engine: Engine) -> None:
    await rig.serve((model("m"),), (endpoint("m-0", DEAD), engine.endpoint(priority=1)))
    for _ in range(3):
        assert await rig.ask() == (200, {"replica": "m-1"})
    assert uses(rig) == {"m-0": 1, "m-1": 0}
    assert rig.router.traffic.models["m"].retries == {"unreachable": 1}  # type: ignore[index]  # a plain name


async def test_every_endpoint_is_tried_when_none_can_be_reached_at_first(rig: Rig, engine: Engine) -> None:
    dead = tuple(endpoint(f"m-d{i}", DEAD) for i in range(12))
    await rig.serve((model("m"),), (*dead, engine.endpoint(priority=1)))
    assert await rig.ask() == (200, {"replica": "m-1"})


async def test_when_nobody_can_be_reached_the_client_may_come_again_and_resting_ones_are_tried(rig: Rig) -> None:
    await rig.serve((model("m"),), (endpoint("m-1", DEAD), endpoint("m-2", DEAD)))
    for _ in range(2):
        async with rig.client.post(rig.url + CHAT, json={"model": "m"}) as response:
            assert response.status == 503
            assert int(response.headers["Retry-After"]) > 0
            assert (await response.json())["error"]["code"] == "model_unreachable"
    assert rig.router.traffic.asks.asked == {}
    async with running(Engine("m-1")) as revived:
        await rig.serve((model("m"),), (revived.endpoint(),), seq=2)
        assert await rig.ask() == (200, {"replica": "m-1"})
        assert (await rig.ask())[0] == 200
    (candidate,) = rig.router.traffic.routing.candidates.values()
    assert candidate.use.ejected_until == 0


async def test_an_endpoint_is_found_again_after_its_rest(tmp_path: Path, engine: Engine, other: Engine) -> None:
    async with started(tmp_path) as rig:
        await rig.serve((model("m"),), (engine.endpoint(), other.endpoint(priority=1)))
        (use,) = (c.use for c in rig.router.traffic.routing.candidates.values() if c.use.id == "m-1")
        use.eject(picked_at=rig.router.traffic.clock(), now=rig.router.traffic.clock() - EJECT_S)
        assert await rig.ask() == (200, {"replica": "m-1"})
        assert use.failures == 0


async def test_a_connection_that_breaks_before_the_answer_goes_to_another_endpoint_once(
    rig: Rig, engine: Engine
) -> None:
    async with wired(Wire()) as broken:
        await rig.serve((model("m"),), (endpoint("m-0", broken.url), engine.endpoint(priority=1)))
        assert await rig.ask() == (200, {"replica": "m-1"})
        assert broken.requests == 1
    assert uses(rig)["m-0"] == 0


async def test_a_request_that_crashes_engines_stops_at_the_second(rig: Rig, engine: Engine) -> None:
    async with wired(Wire()) as one, wired(Wire()) as two:
        endpoints = (endpoint("m-a", one.url), endpoint("m-b", two.url, priority=1), engine.endpoint(priority=2))
        await rig.serve((model("m"),), endpoints)
        status, reply = await rig.ask()
        assert (status, reply["error"]["code"]) == (502, "bad_gateway")  # type: ignore[index]  # a JSON object
        assert (one.requests, two.requests, engine.seen) == (1, 1, [])


async def test_the_only_endpoint_is_asked_once_more_after_a_broken_connection(rig: Rig) -> None:
    class Second(Wire):
        async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.says = b"" if self.requests == 0 else b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
            await super().talk(reader, writer)

    async with wired(Second()) as engine:
        await rig.serve((model("m"),), (endpoint("m-1", engine.url),))
        assert await rig.ask_plainly() == (200, b"{}")
        assert engine.requests == 2


async def test_the_only_endpoint_that_breaks_and_then_is_gone_ends_the_request(rig: Rig) -> None:
    class Once(Wire):
        async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            server.close()
            await super().talk(reader, writer)

    wire = Once()
    server = await asyncio.start_server(wire.talk, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await rig.serve((model("m"),), (endpoint("m-1", url),))
    assert (await rig.ask())[0] == 503
    assert wire.requests == 1


@pytest.mark.parametrize("says", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
async def test_an_answer_that_is_no_http_is_not_asked_for_twice(rig: Rig, engine: Engine, says: bytes) -> None:
    async with wired(Wire(says)) as broken:
        await rig.serve((model("m"),), (endpoint("m-0", broken.url), engine.endpoint(priority=1)))
        assert (await rig.ask())[0] == 502
        assert (broken.requests, engine.seen) == (1, [])


@pytest.mark.parametrize("status", [400, 429, 500, 503])
async def test_an_engines_own_answer_is_final(rig: Rig, engine: Engine, other: Engine, status: int) -> None:
    async def refuse(request: web.Request, body: bytes) -> web.StreamResponse:
        return web.json_response({"error": "mine"}, status=status, headers={"Retry-After": "9"})

    engine.answer = refuse
    await rig.serve((model("m"),), (engine.endpoint(), other.endpoint(priority=1)))
    assert await rig.ask() == (status, {"error": "mine"})
    assert other.seen == []


class Dying(Wire):
    """Takes a request, and ends the connection without an answer when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.die = asyncio.Event(), asyncio.Event()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.reached.set()
        await self.die.wait()
        writer.close()


async def test_a_retry_uses_the_table_in_force_by_then(rig: Rig, engine: Engine) -> None:
    """The first endpoint takes the request and dies; meanwhile another table came."""
    async with wired(dying := Dying()):
        await rig.serve((model("m"),), (endpoint("m-0", dying.url),))
        asking = asyncio.ensure_future(rig.ask())
        await asyncio.wait_for(dying.reached.wait(), 5)
        reply = await rig.serve((model("m"),), (engine.endpoint(),), seq=2)
        assert reply["draining"] == ["m-0"]
        dying.die.set()
        assert await asking == (200, {"replica": "m-1"})
    assert rig.router.traffic.withdrawn == {}


async def test_a_model_that_left_during_a_retry_is_unknown(rig: Rig) -> None:
    async with wired(dying := Dying()):
        await rig.serve((model("m"),), (endpoint("m-0", dying.url),))
        asking = asyncio.ensure_future(rig.ask())
        await asyncio.wait_for(dying.reached.wait(), 5)
        await rig.put(table(2, (model("n"),)))
        dying.die.set()
        assert (await asking)[0] == 404


async def test_requests_during_table_changes_never_fail_or_go_astray(rig: Rig, engine: Engine, other: Engine) -> None:
    """Two replicas take turns in the table; every request is answered by one that was in it when it was picked."""
    await rig.serve((model("m"),), (engine.endpoint(),))
    over = asyncio.Event()

    async def clients() -> int:
        answered = 0
        while not over.is_set():
            status, reply = await rig.ask()
            assert (status, str(reply["replica"])[:2]) == (200, "m-")
            answered += 1
        return answered

    async def plane() -> None:
        for seq in range(2, 60):
            present: Endpoint = (engine if seq % 2 else other).endpoint()
            reply = await rig.serve((model("m"),), (present,), seq=seq)
            assert reply["digest"] == table(seq, (model("m"),), (present,)).digest
        over.set()

    asking = [asyncio.ensure_future(clients()) for _ in range(8)]
    await plane()
    assert min(await asyncio.gather(*asking)) > 0
    assert rig.router.traffic.withdrawn == {}
