"""The load's clients see what is wrong with a stream: a measure that cannot fail measures nothing."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from bench.traffic.streams import Crowd

Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]


def piece(number: int, model: str = "m", who: str = "m-1@1") -> bytes:
    return f"data: {json.dumps({'model': model, 'choices': [{'delta': {'content': f' {who}:{number}'}}]})}\n\n".encode()


def stream(*pieces: bytes, done: bool = True, aborts: bool = False) -> Serve:
    async def serve(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"x-llmgw-replica": "m-1"})
        await response.prepare(request)
        for one in pieces:
            await response.write(one)
        if aborts:
            assert request.transport is not None
            request.transport.abort()
            return response
        if done:
            await response.write(b"data: [DONE]\n\n")
        return response

    return serve


async def refused(_: web.Request) -> web.StreamResponse:
    return web.Response(status=503, text="no")


@asynccontextmanager
async def asked(serve: Serve) -> AsyncIterator[Crowd]:
    """A crowd of one whose only request has been served so."""
    app = web.Application()
    app.router.add_post("/{path:.*}", serve)
    server = TestServer(app)
    await server.start_server()
    async with ClientSession() as http:
        crowd = Crowd(http, [str(server.make_url("")).rstrip("/")], {"m": frozenset({"m"})}, tokens=2)
        await crowd.ask("m", crowd.routers)
        yield crowd
    await server.close()


BAD: dict[str, tuple[Serve, str]] = {
    "it ends early": (stream(piece(0)), "truncated"),
    "its end is missing": (stream(piece(0), piece(1), done=False), "truncated"),
    "it breaks off": (stream(piece(0), aborts=True), "ClientPayloadError"),
    "it comes from another model's engine": (stream(piece(0, model="other"), piece(1)), "misdirected"),
    "it comes from another replica than it says": (stream(piece(0, who="m-2@1"), piece(1)), "misdirected"),
    "a piece is lost": (stream(piece(0), piece(2)), "out of order"),
    "it is refused": (refused, "503"),
}


@pytest.mark.parametrize("case", BAD)
async def test_whatever_is_wrong_is_counted_by_its_cause(case: str) -> None:
    serve, cause = BAD[case]
    async with asked(serve) as crowd:
        assert dict(crowd.count.failures) == {cause: 1}
        assert crowd.count.whole == 0


async def test_a_whole_stream_is_counted_with_its_replica() -> None:
    async with asked(stream(piece(0), piece(1))) as crowd:
        assert (dict(crowd.count.failures), crowd.count.whole) == ({}, 1)
        assert dict(crowd.count.replicas) == {"m-1": 1}


async def test_a_router_that_is_away_is_passed_over() -> None:
    async with ClientSession() as http:
        crowd = Crowd(http, ["http://127.0.0.1:1"], {"m": frozenset({"m"})})
        await crowd.ask("m", crowd.routers)
    assert (crowd.count.rerouted, dict(crowd.count.failures)) == (1, {"no router": 1})
