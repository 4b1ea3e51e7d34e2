"""Whatever comes in at the router's door, byte by byte: an answer that is no 500, or an ended connection; and the next
client is served."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw.wire import ModelState

from .rig import Engine, Rig, both, endpoint, model, running, started

LIMIT_S = 30.0
GRACE_S = 0.3
PATHS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models"),
    *(
        "/v1/table",
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/",
        "*",
        "//",
        "/v1/../v1/models",
        "/%00",
        "/é",
    ),
)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "BREW")
HEADERS = (
    *("Content-Type: application/json", "Content-Encoding: gzip", "Content-Encoding: deflate", "Content-Encoding: x"),
    *("Expect: 100-continue", "Expect: the-unexpected", "Connection: close", "Connection: keep-alive, Host"),
    *("Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Upgrade: websocket", "Authorization: Bearer"),
    *("Content-Length: -1", "Content-Length: 0", "Content-Length: 3", "Content-Length: 99999999999999999999"),
    *("Content-Length: ٣", "Host: a b", "Host:", "Accept-Encoding: gzip", "TE: trailers", "Range: bytes=0-1"),
    *("X-Request-Id: \t ", "X-Request-Id: ☃", "X: " + "y" * 9000, "no colon", ": no name", "Cookie: a=b; a=c"),
)

words = st.text(max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
models = st.sampled_from(["m", "chat", "asleep", "gone", "", "m\x00", "\ud800", "m" * 3000]) | values
asked = st.builds(
    lambda name, rest: json.dumps({**rest, "model": name}).encode(), models, st.dictionaries(words, values)
)
bodies = st.one_of(
    asked,
    st.binary(max_size=200),
    st.builds(json.dumps, values).map(str.encode),
    asked.map(lambda body: b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)),
    st.sampled_from([b'{"model":' * 3000, b'{"model":1' + b"0" * 5000 + b"}", b"zz\r\n", b'{"model":"m","model":"m"}']),
)
lines = st.builds(
    lambda method, path, query, version: f"{method} {path}{query} {version}",
    st.sampled_from(METHODS) | st.text(max_size=8),
    st.sampled_from(PATHS) | st.text(max_size=30).map(lambda text: "/" + text),
    st.sampled_from(["", "?", "?a=b", "?%zz", "?\x01", "#f"]),
    st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/1.12", ""]),
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """The bytes of a request, sound or not."""
    body = draw(bodies)
    headers = ["Host: router", *draw(st.lists(st.sampled_from(HEADERS), max_size=4))]
    if draw(st.booleans()):
        headers.append(f"Content-Length: {len(body)}")
    head = "\r\n".join([draw(lines), *headers])
    return head.encode(errors="surrogatepass") + b"\r\n\r\n" + body


class Door:
    """A router's door, knocked at with raw bytes."""

    def __init__(self, rig: Rig) -> None:
        at = urlsplit(rig.url)
        self.host, self.port = str(at.hostname), int(at.port or 0)

    async def knock(self, raw: bytes) -> bytes:
        """What comes back, once the connection has ended. A sound request is answered within the grace; what lacks its
        end gets none, and its client goes away."""
        async with asyncio.timeout(LIMIT_S):
            reader, writer = await asyncio.open_connection(self.host, self.port)
            try:
                writer.write(raw)
                await writer.drain()
                answer = b""
                with contextlib.suppress(TimeoutError):
                    answer = await asyncio.wait_for(reader.read(1 << 16), GRACE_S)
                if answer:
                    writer.write_eof()
                    answer += await reader.read()
                return answer
            except ConnectionError:
                return b""
            finally:
                writer.close()


def statuses(answer: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"^HTTP/1\.[01] (\d{3})", answer, re.M)]


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[tuple[Door, Rig]]:
    async with running(Engine()) as engine, started(tmp_path / "state", max_body_bytes=4096) as rig:
        rows = (model("m", "chat"), model("dead"), model("asleep", state=ModelState.ASLEEP))
        dead = endpoint("dead-1", "http://127.0.0.1:1", "dead")
        await rig.serve(rows, (*both(engine.endpoint()), dead))
        yield Door(rig), rig


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(raw=requests())
async def test_whatever_is_sent_nothing_breaks_and_the_next_client_is_served(
    door: tuple[Door, Rig], raw: bytes
) -> None:
    knocked, rig = door
    found = statuses(await knocked.knock(raw))
    assert all(status != 500 for status in found), found
    assert (await rig.ask())[0] == 200


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b'POST /v1/completions HTTP/1.1\r\nHost: r\r\nContent-Length: 13\r\n\r\n{"model":"m"}', 200),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b'POST /v1/completions HTTP/1.1\r\nHost: r\r\nContent-Length: 5\r\n\r\n{"mod', 400),
        (b"POST /v1/completions HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"PUT /v1/table HTTP/1.1\r\nHost: r\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", 400),
        (b"POST /v1/completions HTTP/1.1\r\nHost: r\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", 400),
    ],
    ids=["sound", "TLS", "half a document", "no chunk", "table not compressed", "not compressed"],
)
async def test_what_is_unsound_is_told_so(door: tuple[Door, Rig], raw: bytes, status: int) -> None:
    assert statuses(await door[0].knock(raw)) == [status]


async def test_a_client_that_stops_in_the_middle_of_its_request_holds_up_nobody(door: tuple[Door, Rig]) -> None:
    knocked, rig = door
    reader, writer = await asyncio.open_connection(knocked.host, knocked.port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: r\r\nContent-Length: 100\r\n\r\n{")
    await writer.drain()
    assert (await rig.ask())[0] == 200
    writer.close()
    assert await reader.read() == b""


async def test_a_body_that_does_not_come_to_its_end_is_waited_for_so_long(tmp_path: Path) -> None:
    async with started(tmp_path, body_limit_s=0.05) as rig:
        await rig.serve((model("m"),), ())
        host, _, port = rig.url.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: r\r\nContent-Length: 100\r\n\r\n{")
        assert b" 408 " in await reader.readline()
        assert b"body_too_slow" in await reader.read(), "and the connection ends"
        writer.close()
