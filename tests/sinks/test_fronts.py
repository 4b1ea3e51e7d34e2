"""What other routers' front ends of ours (deploy/routers) make of bodies that clients really send: the same as our own
router, and never another model than the one that is meant."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from llmgw.ids import ModelName
from llmgw.router_kinds import kind_of
from llmgw.wire import ModelState, TableModel
from tests.sinks.plane import Plane, plane_of
from tests.sinks.rigs import running
from tests.sinks.stubs import Stub, engine

pytestmark = pytest.mark.real

TLS = httpx.create_ssl_context()
NAME, OTHER = "org/m é 日 🎈", "other"
JSON = {"content-type": "application/json"}
MESSAGES = [{"role": "user", "content": "x"}]
KINDS = ["native", "haproxy", "envoy"]


def told(**fields: object) -> str:
    return json.dumps({"messages": MESSAGES, **fields}, ensure_ascii=False)


SOUND = {
    "last": told(model=NAME),
    "first": json.dumps({"model": NAME, "messages": MESSAGES}, ensure_ascii=False),
    "escaped": json.dumps({"model": NAME, "messages": MESSAGES}),
    "slash escaped": told(model=NAME).replace("/", "\\/"),
    "key escaped": told(model=NAME).replace('"model"', '"m\\u006fdel"'),
    "spread out": json.dumps({"model": NAME, "messages": MESSAGES}, indent=7).replace('":', '"  \t:\n'),
    "another one inside": told(metadata={"model": OTHER}, model=NAME),
    "another one in a list": told(tools=[{"model": OTHER}, [{"model": OTHER}]], model=NAME),
    "another one in a text": told(prompt=f'"model": "{OTHER}", \\"model\\":"{OTHER}" \\', model=NAME),
    "another one as a value": told(kind="model", name=OTHER, model=NAME),
    "brackets in texts": told(stop=["}", "]", '"', "{[,:"], model=NAME),
    "a large one": told(prompt='y\\"' * 100_000, model=NAME),
}
UNSOUND = {
    "two": '{"model": "other", "model": "other"}',
    "two different": '{"model": "other", "x": {"model": "a"}, "model": "org"}',
    "none": told(),
    "inside only": told(metadata={"model": OTHER}),
    "a list": json.dumps([{"model": OTHER}]),
    "a number": told(model=5),
    "nothing": "",
    "no text": '{"model": "\\ud800"}',
    "empty": told(model=""),
}


@asynccontextmanager
async def front(kind: str, folder: Path) -> AsyncIterator[tuple[Plane, Stub]]:
    """Two models, of which the one that is asked for has a name of many kinds of letters."""
    async with (
        engine("n-1", NAME) as one,
        engine("o-1", OTHER) as two,
        running(kind, folder) as rig,
        plane_of(rig, "") as plane,
    ):
        rows = [
            TableModel(name=ModelName(n), aliases=a, state=ModelState.READY)
            for n, a in ((NAME, ("nick",)), (OTHER, ()))
        ]
        named = one.endpoint.model_copy(update={"models": (NAME, "nick")})
        await plane.put(rows, [named, two.endpoint])
        async with asyncio.timeout(60):
            while {(await post(plane, told(model=n))).status_code for n in (NAME, OTHER)} != {200}:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        two.taken = 0
        yield plane, two


async def post(plane: Plane, body: str | bytes, path: str = "/v1/chat/completions", **headers: str) -> httpx.Response:
    raw = body.encode() if isinstance(body, str) else body
    given = {**JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with httpx.AsyncClient(base_url=plane.rig.door, trust_env=False, timeout=20, verify=TLS) as client:
        return await client.post(path, content=raw, headers=given)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_model_that_is_meant_is_found_however_it_is_written_and_never_another(
    kind: str, tmp_path: Path
) -> None:
    async with front(kind, tmp_path) as (plane, other):
        found = {case: (await post(plane, body)).status_code for case, body in SOUND.items()}
        assert found == dict.fromkeys(SOUND, 200)
        found = {case: (await post(plane, body)).status_code for case, body in UNSOUND.items()}
        assert all(400 <= status < 500 for status in found.values()), found
        assert other.taken == 0, "nothing was ever sent to a model that only stands somewhere in a body"
        answer = await post(plane, gzip.compress(SOUND["last"].encode()), content_encoding="gzip")
        assert answer.status_code == (200 if kind == "native" else 415)


@pytest.mark.parametrize("kind", KINDS)
async def test_forms_with_files_and_aliases_reach_the_engine_under_its_own_name(kind: str, tmp_path: Path) -> None:
    async with front(kind, tmp_path) as (plane, other):
        files = {"file": ("a.wav", b'\r\n--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nother\r\n' * 3)}
        names = (NAME, "nick") if kind_of(kind).renames else (NAME,)
        for name in names:
            sent = httpx.Request("POST", "http://x", data={"model": name, "language": "de"}, files=files)
            body, form = sent.read(), sent.headers["content-type"]
            answer = await post(plane, body, "/v1/audio/transcriptions", content_type=form)
            assert (answer.status_code, answer.json()["text"]) == (200, "n-1")
            if name == "nick":
                assert (await post(plane, told(model=name, metadata={"model": OTHER}))).status_code == 200
        assert other.taken == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_old_clients_and_bodies_without_a_length_are_served(kind: str, tmp_path: Path) -> None:
    async with front(kind, tmp_path) as (plane, _):

        async def pieces() -> AsyncIterator[bytes]:
            body = SOUND["first"].encode()
            for at in range(0, len(body), 7):
                yield body[at : at + 7]

        async with httpx.AsyncClient(base_url=plane.rig.door, trust_env=False, timeout=20, verify=TLS) as client:
            answer = await client.post("/v1/chat/completions", content=pieces(), headers=JSON)
            assert answer.status_code == 200
        body = SOUND["first"].encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        )
        assert await raw(plane, head.encode() + b"\r\n" + body) == b"200"
        head = head.replace("1.0", "1.1") + "host: x\r\nexpect: 100-continue\r\n"
        assert await raw(plane, head.encode() + b"\r\n", body) == b"200"


async def raw(plane: Plane, *pieces: bytes) -> bytes:
    """The final status of an answer to these pieces, of which each but the first waits to be asked for."""
    host, _, port = plane.rig.door.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        async with asyncio.timeout(20):
            for piece in pieces[:-1]:
                writer.write(piece)
                assert b"100" in await reader.readline()
                assert await reader.readline() == b"\r\n"
            writer.write(pieces[-1])
            return (await reader.readline()).split()[1]
    finally:
        writer.close()
