"""A call's end in words: taken, refused with or without our own document, or unanswered."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from activities.outward import Callers, RefusedError, UnansweredError
from activities.settings import Outward
from llmgw.calls import CallOutcome
from llmgw.wire import ErrorCode, ErrorReply, Token

BODY = Token(installation="i", fleet="f", epoch=1, seq=2)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(handler: Handler, limit_s: float = 2.5) -> AsyncIterator[tuple[Callers, str]]:
    app = web.Application()
    app.add_routes([web.route("*", "/{rest:.*}", handler)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    callers = Callers(Outward(bearer="t0ken", call_limit_s=limit_s))
    try:
        yield callers, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await callers.close()
        await runner.cleanup()


async def test_a_call_carries_the_bearer_and_the_body_and_brings_the_answer() -> None:
    async def echo(request: web.Request) -> web.Response:
        said = request.headers["authorization"], request.content_type, request.path
        return web.Response(body=f"{said}".encode() + await request.read())

    async with answering(echo) as (callers, url):
        answer = await callers.send("POST", f"{url}/node/a/", "/v1/commands", BODY)
    assert answer == b"('Bearer t0ken', 'application/json', '/node/a/v1/commands')" + BODY.model_dump_json().encode()


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(ErrorCode.STALE_TOKEN, CallOutcome.STALE), (ErrorCode.FOREIGN_OWNER, CallOutcome.FOREIGN)],
)
async def test_a_refusal_of_our_own_kind_keeps_what_it_holds(code: ErrorCode, outcome: CallOutcome) -> None:
    reply = ErrorReply(code=code, message="no", held=BODY)

    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=409, body=reply.model_dump_json().encode())

    async with answering(refuse) as (callers, url):
        with pytest.raises(RefusedError, match=r"^409 from 127.0.0.1:\d+: no$") as caught:
            await callers.send("POST", url, "/v1/commands", BODY)
    assert (caught.value.outcome, caught.value.reply) == (outcome, reply)


async def test_another_servers_refusal_is_told_in_its_words_and_cut() -> None:
    async def busy(_: web.Request) -> web.Response:
        return web.Response(status=502, text="bad gateway " * 1000)

    async with answering(busy) as (callers, url):
        with pytest.raises(RefusedError, match=r"502 from .*bad gateway") as caught:
            await callers.send("PUT", url, "/v1/table", BODY)
    assert caught.value.outcome is CallOutcome.FAILED
    assert len(str(caught.value)) <= 300


async def test_a_redirect_is_a_refusal_since_commands_go_where_the_catalog_says() -> None:
    asked: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=307, headers={"location": "/other"})

    async with answering(elsewhere) as (callers, url):
        with pytest.raises(RefusedError, match="307"):
            await callers.send("PUT", url, "/v1/table", BODY)
    assert asked == ["/v1/table"]


async def test_nobody_there_is_said_in_a_few_words() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        callers = Callers(Outward())
        with pytest.raises(UnansweredError, match="cannot connect"):
            await callers.send("POST", f"http://127.0.0.1:{probe.getsockname()[1]}", "/v1/commands", BODY)
        await callers.close()


async def test_no_answer_in_time_is_none() -> None:
    async def slow(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with answering(slow, limit_s=0.2) as (callers, url):
        with pytest.raises(UnansweredError, match="no answer in time"):
            await callers.send("POST", url, "/v1/commands", BODY)


async def test_an_address_that_is_none_is_no_answer() -> None:
    callers = Callers(Outward())
    with pytest.raises(UnansweredError):
        await callers.send("POST", "http://", "/v1/commands", BODY)
    await callers.close()
