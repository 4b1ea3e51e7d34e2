"""Whatever answers at the address of an agent: it is tried again, and only what is understood shows that it lives."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from activities import pool as pools
from activities.pool import MAX_LINE_BYTES, Pool
from activities.settings import Outward
from llmgw.observation import NodeSeen, Target, Targets, TroubleSeen
from llmgw.wire import NodeReport
from llmgw.world import SilenceLevel
from tests.plane.test_parts import full_report

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
REPORT = full_report(random.Random(1), 7)


class Host:
    """What answers at one address: the last of the answers from its turn on."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.asked = list(answers), 0
        self.turn = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        if self.asked >= 5:
            self.turn.set()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)


def saying(*lines: bytes, status: int = 200, ends: bool = True) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        for line in lines:
            await response.write(line)
        if not ends:
            await asyncio.Event().wait()
        return response

    return answer


def document(report: NodeReport) -> bytes:
    return report.model_dump_json().encode() + b"\n"


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(status=500)
    await response.prepare(request)
    while True:
        await response.write(b"x" * 65536)


async def elsewhere(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("/elsewhere")


@pytest.fixture
async def pool(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pool]:
    monkeypatch.setattr(pools, "LONGEST_RETRY_S", 0.001)
    monkeypatch.setattr(pools, "FIRST_RETRY_S", 0.001)
    session = aiohttp.ClientSession(read_bufsize=MAX_LINE_BYTES)
    made = Pool("f", Outward(), session)
    yield made
    await made.close()


async def aimed(pool: Pool, host: Host) -> TestServer:
    app = web.Application()
    app.router.add_get("/v1/state", host.answer)
    app.router.add_get("/elsewhere", saying(document(REPORT), ends=False))
    server = TestServer(app)
    await server.start_server()
    id_ = f"node/{REPORT.node}"
    target = Target(id=id_, url=str(server.make_url("")).rstrip("/"))
    pool.aim({id_: target}, Targets(revision=1, targets=(target,), suspect_after_s=10.0, lost_after_s=60.0))
    return server


NONSENSE: dict[str, Answer] = {
    "a line without end": saying(b"x" * (2 * MAX_LINE_BYTES + 65536)),
    "a page of a web server": saying(b"<html>\n", b"it works\n", b"</html>\n"),
    "empty lines": saying(b"\n" * 50),
    "a number": saying(b"17\n"),
    "nothing": saying(),
    "an error without end": endless,
    "a redirect": elsewhere,
    "an answer that is cut off": saying(b'{"node": "n'),
    "bytes": saying(bytes(range(256)) * 8 + b"\n"),
    "what is nested too deep": saying(b"[" * 100_000 + b"\n"),
}


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
async def test_an_agent_is_heard_again_after_whatever_stood_in_its_place(pool: Pool, answer: Answer) -> None:
    host = Host(*[answer] * 4, saying(document(REPORT), ends=False))
    server = await aimed(pool, host)
    try:
        async with asyncio.timeout(120):
            cursor, seen = 0, list[NodeSeen]()
            while not seen:
                observation = await pool.take(cursor)
                cursor, seen = observation.cursor, list(observation.nodes)
        assert host.asked == 5
    finally:
        await pool.close()
        await server.close()


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
async def test_what_is_not_understood_is_told_and_shows_no_life(pool: Pool, answer: Answer) -> None:
    host = Host(answer)
    server = await aimed(pool, host)
    stream = pool._streams[f"node/{REPORT.node}"]
    try:
        async with asyncio.timeout(120):
            await host.turn.wait()
            told = await pool.take(0)
        assert [type(fact) for fact in told.troubles] == [TroubleSeen]
        assert told.troubles[0].text
        assert (told.nodes, stream.heard_s, stream.level) == ((), 0.0, SilenceLevel.HEARD)
        pool._ran_s = 11.0
        pool.judge_silence()
        assert stream.level is not SilenceLevel.HEARD
    finally:
        await pool.close()
        await server.close()


async def test_what_keeps_saying_the_same_nonsense_is_told_once(pool: Pool) -> None:
    host = Host(saying(document(REPORT)), saying(b"<html>\n" * 20))
    server = await aimed(pool, host)
    try:
        async with asyncio.timeout(120):
            await host.turn.wait()
            told = pool._seq
            host.turn.clear()
            host.asked = 0
            await host.turn.wait()
        assert pool._seq <= told + 1
    finally:
        await pool.close()
        await server.close()


async def test_a_report_of_another_version_is_a_trouble_and_no_silence(pool: Pool) -> None:
    other = REPORT.model_dump(mode="json")
    del other["boot_id"]
    line = json.dumps(other).encode() + b"\n"
    server = await aimed(pool, Host(saying(line, ends=False)))
    stream = pool._streams[f"node/{REPORT.node}"]
    pool._ran_s = 5.0
    try:
        async with asyncio.timeout(120):
            (trouble,) = (await pool.take(0)).troubles
        assert trouble.text == "its report is not understood: boot_id: Field required"
        assert stream.heard_s >= 5.0
    finally:
        await pool.close()
        await server.close()
