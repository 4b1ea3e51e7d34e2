"""The data plane with real servers on both sides: what passes, how it is paced, and what is counted."""

import asyncio
import hashlib
import json
from pathlib import Path
from urllib.parse import quote

import pytest
from aiohttp import ClientPayloadError, web
from yarl import URL

from llmgw.wire import ModelState

from .rig import CHAT, Engine, Rig, both, endpoint, model, running, started, table, watching

PIECE = b"data: " + b"x" * 65_530


def in_flight(rig: Rig) -> dict[str, int]:
    uses = [c.use for c in rig.router.traffic.routing.candidates.values()] + [*rig.router.traffic.withdrawn.values()]
    return {use.id: use.in_flight for use in uses}


async def until_idle(rig: Rig) -> None:
    """Until the router counts no request any more; it notices ends on its own event loop, in some turns of it."""
    async with asyncio.timeout(60):
        while any(in_flight(rig).values()):  # noqa: ASYNC110 - a request makes no event, by design
            await asyncio.sleep(0)


class Stream:
    """An answer in pieces that the test hands out one by one; None ends it, an empty piece breaks it off."""

    def __init__(self, length: int | None = None) -> None:
        self.pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.length = length
        self.opened = asyncio.Event()

    async def __call__(self, request: web.Request, body: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if self.length is not None:
            response.content_length = self.length
        await response.prepare(request)
        self.opened.set()
        while (piece := await self.pieces.get()) is not None:
            if not piece:
                assert request.transport is not None
                request.transport.abort()
                return response
            await response.write(piece)
        return response


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings"])
async def test_a_request_reaches_its_engine_and_the_answer_names_the_replica(
    rig: Rig, engine: Engine, path: str
) -> None:
    await rig.serve((model("m"),), (engine.endpoint(),))
    async with rig.client.post(
        URL(rig.url + path + "?trace=1%2F2", encoded=True), json={"model": "m", "n": 1.50}
    ) as response:
        assert response.status == 200
        assert response.headers["x-llmgw-replica"] == "m-1"
        assert await response.json() == {"replica": "m-1"}
    assert engine.seen[0].path == path + "?trace=1%2F2"


async def test_an_alias_is_rewritten_for_an_engine_that_refuses_other_names(rig: Rig) -> None:
    async with running(Engine(served_name="org/Real-Name:v1")) as engine:
        await rig.serve((model("m", "chat"),), (engine.endpoint("m", "chat"),))
        body = b'{ "messages":[{"content":"\\u00e9 \xe6\x97\xa5"}],"model" :"chat","temperature":1.0e0 }'
        async with rig.client.post(rig.url + CHAT, data=body, headers={"Content-Type": "application/json"}) as response:
            assert response.status == 200
        assert engine.seen[0].body == body.replace(b'"chat"', b'"org/Real-Name:v1"')
        assert (await rig.ask("org/Real-Name:v1"))[0] == 404


async def test_a_body_that_needs_no_new_name_passes_byte_for_byte(rig: Rig, engine: Engine) -> None:
    await rig.serve((model("m"),), (engine.endpoint(),))
    body = b'\n{"model":"\\u006d","x":1e400,"model_":[ ]}'
    async with rig.client.post(rig.url + CHAT, data=body) as response:
        assert response.status == 200
    assert engine.seen[0].body == body


async def test_pieces_pass_as_they_come(rig: Rig, engine: Engine) -> None:
    engine.answer = stream = Stream()
    await rig.serve((model("m"),), (engine.endpoint(),))
    response = await rig.open()
    assert response.headers["Content-Type"] == "text/event-stream"
    for i in range(5):
        piece = f"data: {i}\n\n".encode()
        stream.pieces.put_nowait(piece)
        assert await asyncio.wait_for(response.content.readexactly(len(piece)), 5) == piece
        assert in_flight(rig) == {"m-1": 1}
    stream.pieces.put_nowait(None)
    assert await response.read() == b""
    await until_idle(rig)


async def test_the_head_of_an_answer_does_not_wait_for_its_body(rig: Rig, engine: Engine) -> None:
    engine.answer = stream = Stream()
    await rig.serve((model("m"),), (engine.endpoint(),))
    response = await asyncio.wait_for(rig.open(), 5)
    assert response.status == 200
    stream.pieces.put_nowait(None)
    assert await response.read() == b""


async def test_a_slow_client_slows_the_engine_down_and_gets_everything(rig: Rig, engine: Engine) -> None:
    total, sent = 1200, 0
    done = asyncio.Event()

    async def pour(request: web.Request, body: bytes) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(total):
            await response.write(PIECE)
            sent += 1
        done.set()
        return response

    engine.answer = pour
    await rig.serve((model("m"),), (engine.endpoint(),))
    response = await rig.open()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(done.wait(), 0.5)
    assert sent < total // 2
    size = 0
    async for piece in response.content.iter_any():
        size += len(piece)
    assert size == total * len(PIECE)


async def test_a_client_that_goes_away_stops_the_engine(rig: Rig, engine: Engine) -> None:
    engine.answer = stream = Stream()
    await rig.serve((model("m"),), (engine.endpoint(),))
    response = await rig.open()
    stream.pieces.put_nowait(b"data: 1\n\n")
    await response.content.readany()
    response.close()
    await asyncio.wait_for(engine.cancelled.wait(), 5)
    await until_idle(rig)
    (use,) = (c.use for c in rig.router.traffic.routing.candidates.values())
    assert use.answers == {499: 1}


async def test_a_client_that_goes_away_before_the_answer_stops_the_engine(rig: Rig, engine: Engine) -> None:
    asked = asyncio.Event()

    async def think(request: web.Request, body: bytes) -> web.StreamResponse:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    engine.answer = think
    await rig.serve((model("m"),), (engine.endpoint(),))
    asking = asyncio.ensure_future(rig.open())
    await asyncio.wait_for(asked.wait(), 5)
    asking.cancel()
    await asyncio.wait_for(engine.cancelled.wait(), 5)
    await until_idle(rig)


@pytest.mark.parametrize("length", [None, 1000], ids=["chunked", "with a length"])
async def test_an_engine_that_breaks_off_is_seen_by_the_client(rig: Rig, engine: Engine, length: int | None) -> None:
    engine.answer = stream = Stream(length)
    await rig.serve((model("m"),), (engine.endpoint(),))
    response = await rig.open()
    stream.pieces.put_nowait(b"data: 1\n\n")
    assert await response.content.readany() == b"data: 1\n\n"
    stream.pieces.put_nowait(b"")
    with pytest.raises(ClientPayloadError):
        await response.read()
    await until_idle(rig)
    (use,) = (c.use for c in rig.router.traffic.routing.candidates.values())
    assert use.aborts == 1
    assert len(engine.seen) == 1


async def test_an_old_client_sees_it_as_a_reset(rig: Rig, engine: Engine) -> None:
    engine.answer = stream = Stream()
    await rig.serve((model("m"),), (engine.endpoint(),))
    host, _, port = rig.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = b'{"model":"m"}'
    writer.write(b"POST %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (CHAT.encode(), len(body), body))
    stream.pieces.put_nowait(b"one")
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head
    assert b"Transfer-Encoding" not in head
    assert await reader.readexactly(3) == b"one"
    stream.pieces.put_nowait(b"")
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()


async def test_a_withdrawn_endpoints_stream_ends_by_itself_and_its_drain_is_told(
    rig: Rig, engine: Engine, other: Engine
) -> None:
    engine.answer = stream = Stream()
    await rig.serve((model("m"),), (engine.endpoint(),))
    response = await rig.open()
    reply = await rig.serve((model("m"),), (other.endpoint(),), seq=2)
    assert reply["draining"] == ["m-1"]
    assert await rig.ask() == (200, {"replica": "m-2"})
    async with watching(rig) as state:
        told = {use.id: (use.in_flight, use.withdrawn) for use in (await state.next()).use}
        assert told == {"m-1": (1, True), "m-2": (0, False)}
        stream.pieces.put_nowait(b"data: still here\n\n")
        stream.pieces.put_nowait(None)
        assert await response.read() == b"data: still here\n\n"
        assert [use.id for use in (await state.next()).use] == ["m-2"]


async def test_a_large_body_passes_whole(rig: Rig, engine: Engine) -> None:
    async def measure(request: web.Request, body: bytes) -> web.StreamResponse:
        return web.json_response({"digest": hashlib.sha256(body).hexdigest(), "length": request.content_length})

    engine.answer = measure
    await rig.serve((model("m", "chat"),), both(engine.endpoint()))
    for name in ("m", "chat"):
        body = json.dumps({"messages": ["é" * 12_000_000], "model": name}, ensure_ascii=False).encode()
        sent = body.replace(b'"chat"', b'"m"')
        async with rig.client.post(rig.url + CHAT, data=AsyncBody(body)) as response:
            assert await response.json() == {"digest": hashlib.sha256(sent).hexdigest(), "length": len(sent)}


class AsyncBody:
    """A body in pieces, without a length: chunked."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self):  # type: ignore[no-untyped-def]  # aiohttp takes any async iterable
        for at in range(0, len(self._body), 1 << 20):
            yield self._body[at : at + (1 << 20)]


async def test_a_side_door_leads_where_the_front_door_does(rig: Rig, engine: Engine) -> None:
    """Routers that know one model by one address ask for each sleeping model at an address of its own."""
    await rig.serve((model("m", "chat"),), both(engine.endpoint()))
    assert await rig.ask("chat", "/for/activator-1" + CHAT + "?a=b") == (200, {"replica": "m-1"})
    assert engine.seen[0].path == CHAT + "?a=b"
    for path in ("/for/activator-1/health", "/for/activator-1/v1/models"):
        async with rig.client.get(rig.url + path) as response:
            assert response.status == 200
    assert (await rig.ask("x", "/for/activator-1" + CHAT))[0] == 404
    assert (await rig.ask("m", "/for/a/b" + CHAT))[0] == 404


async def test_a_body_above_the_limit_is_refused(tmp_path: Path, engine: Engine) -> None:
    async with started(tmp_path, max_body_bytes=1000) as rig:
        await rig.serve((model("m"),), (engine.endpoint(),))
        status, reply = await rig.ask(prompt="x" * 1000)
        assert (status, reply["error"]["code"]) == (413, "body_too_large")  # type: ignore[index]  # a JSON object
        large = table(2, tuple(model(f"model-{i}") for i in range(100)))
        assert (await rig.put(large))[0] == 200
    assert engine.seen == []


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{", 400, "not valid JSON"),
        (b'{"messages":[]}', 400, "no `model`; known are chat, m"),
        (b'{"model":"x/y"}', 404, "known are chat, m"),
    ],
)
async def test_what_cannot_be_routed_is_told_in_openais_shape(rig: Rig, body: bytes, status: int, says: str) -> None:
    await rig.serve((model("m", "chat"),), both(endpoint("m-1")))
    async with rig.client.post(rig.url + CHAT, data=body) as response:
        assert response.status == status
        error = (await response.json())["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert says in error["message"]


@pytest.mark.parametrize("state", list(ModelState))
@pytest.mark.parametrize("name", ["m", "chat"])
async def test_a_known_model_without_a_ready_endpoint_is_503_in_every_state(
    rig: Rig, state: ModelState, name: str
) -> None:
    await rig.serve((model("m", "chat", state=state, retry_after_s=42),), ())
    async with rig.client.post(rig.url + CHAT, json={"model": name}) as response:
        assert response.status == 503
        assert response.headers["Retry-After"] == "42"
        assert (await response.json())["error"]["state"] == state.value


async def test_headers_of_this_hop_stay_here_and_others_pass(rig: Rig, engine: Engine) -> None:
    async def reply(request: web.Request, body: bytes) -> web.StreamResponse:
        headers = {"X-Engine": "yes", "Connection": "x-private", "X-Private": "1", "Keep-Alive": "timeout=5"}
        return web.json_response({}, status=418, headers=headers, reason="Short and Stout")

    engine.answer = reply
    await rig.serve((model("m"),), (engine.endpoint(),))
    headers = {"Connection": "X-Mine", "X-Mine": "1", "TE": "trailers", "X-Other": "1", "Authorization": "Bearer mine"}
    async with rig.client.post(rig.url + CHAT, json={"model": "m"}, headers=headers) as response:
        assert (response.status, response.reason) == (418, "Short and Stout")
        assert response.headers["X-Engine"] == "yes"
        assert not {"X-Private", "Keep-Alive"} & set(response.headers)
    seen = engine.seen[0].headers
    assert (seen["X-Other"], seen["Authorization"]) == ("1", "Bearer mine")
    assert not {"X-Mine", "TE"} & set(seen)
    assert seen["Host"] == engine.url.removeprefix("http://")
    assert seen["x-request-id"]


async def test_what_the_client_did_not_send_is_not_made_up(rig: Rig, engine: Engine) -> None:
    await rig.serve((model("m"),), (engine.endpoint(),))
    skip = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
    async with rig.client.post(rig.url + CHAT, data=b'{"model":"m"}', skip_auto_headers=skip) as response:
        assert response.status == 200
    assert set(map(str.lower, engine.seen[0].headers)) == {"host", "content-length", "x-request-id"}


async def test_encoded_bodies_pass_in_both_directions(rig: Rig, engine: Engine) -> None:
    async def squeeze(request: web.Request, body: bytes) -> web.StreamResponse:
        response = web.json_response({"got": json.loads(body)["model"], "pad": "x" * 5000})
        response.enable_compression(web.ContentCoding.gzip)
        return response

    engine.answer = squeeze
    await rig.serve((model("m"),), (engine.endpoint(),))
    async with rig.client.post(rig.url + CHAT, data=b'{"model":"m"}', compress="gzip") as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert (await response.json())["got"] == "m"
    assert "Content-Encoding" not in engine.seen[0].headers


async def test_clients_need_a_key_where_keys_are_set_and_it_goes_no_further(tmp_path: Path, engine: Engine) -> None:
    keys = tmp_path / "keys"
    keys.write_text("sk-one\n")
    async with started(tmp_path / "state", api_keys_file=keys) as rig:
        await rig.serve((model("m"),), (engine.endpoint(),))
        status, reply = await rig.ask()
        assert (status, reply["error"]["code"]) == (401, "invalid_api_key")  # type: ignore[index]  # a JSON object
        async with rig.client.get(rig.url + "/v1/models") as response:
            assert response.status == 401
        headers = {"Authorization": "Bearer sk-one"}
        async with rig.client.post(rig.url + CHAT, json={"model": "m"}, headers=headers) as response:
            assert response.status == 200
        async with rig.client.get(rig.url + "/v1/models", headers=headers) as response:
            assert [entry["id"] for entry in (await response.json())["data"]] == ["m"]
    assert "Authorization" not in engine.seen[0].headers


NAMES = ("m", "chat", "org/m-8b:latest", "ü", "a b")


@pytest.mark.parametrize("name", NAMES)
async def test_each_listed_name_can_be_asked_for_by_itself(rig: Rig, engine: Engine, name: str) -> None:
    """As it is, or with every character escaped, as clients of OpenAI's library send it."""
    await rig.serve((model("m", *NAMES[1:]), model("z", state=ModelState.ASLEEP)), (engine.endpoint("m", *NAMES[1:]),))
    async with rig.client.get(rig.url + "/v1/models") as response:
        entries = {entry["id"]: entry for entry in (await response.json())["data"]}
    for escaped in (quote(name, safe="/:"), quote(name, safe="")):
        url = URL(f"{rig.url}/v1/models/{escaped}", encoded=True)
        async with rig.client.get(url) as response:
            assert response.status == 200
            assert await response.json() == entries[name]
            assert response.content_type == "application/json"


async def test_a_name_that_is_not_listed_is_told_as_openai_does(rig: Rig, engine: Engine) -> None:
    await rig.serve((model("m"),), (engine.endpoint(),))
    async with rig.client.get(rig.url + "/v1/models/nope") as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "model_not_found"


async def test_models_and_aliases_are_listed_with_their_state(rig: Rig, engine: Engine) -> None:
    await rig.serve((model("m", "chat"), model("z", state=ModelState.ASLEEP)), (engine.endpoint("m", "chat"),))
    async with rig.client.get(rig.url + "/v1/models") as response:
        listed = await response.json()
    assert listed["object"] == "list"
    assert {entry["id"]: (entry["object"], entry["state"], entry.get("alias_of")) for entry in listed["data"]} == {
        "m": ("model", "ready", None),
        "chat": ("model", "ready", ["m"]),
        "z": ("model", "asleep", None),
    }


async def test_another_path_is_told_what_is_served(rig: Rig) -> None:
    async with rig.client.post(rig.url + "/v1/batches", json={}) as response:
        assert response.status == 404
        assert CHAT in (await response.json())["error"]["message"]
    async with rig.client.get(rig.url + CHAT) as response:
        assert response.status == 404
