"""What the router's tests share: tables in few words, engines with a will of their own, a router in this process."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import ClientResponse, ClientSession, web
from aiohttp.test_utils import TestServer

from llmgw.ids import ModelName, ReplicaId
from llmgw.table import EMPTY, TableChange, apply, build, table_digest
from llmgw.wire import Endpoint, ModelState, RouterState, RouterTable, TableModel, TablePatch, Token
from router.app import Router, application, open_router
from router.settings import MIB, Listen, Settings

CHAT = "/v1/chat/completions"


def model(name: str, *aliases: str, state: ModelState = ModelState.READY, retry_after_s: int = 10) -> TableModel:
    return TableModel(name=ModelName(name), aliases=aliases, state=state, retry_after_s=retry_after_s)


def endpoint(
    id_: str,
    url: str = "http://127.0.0.1:1",
    *names: str,
    served_name: str | None = None,
    weight: int = 100,
    priority: int = 0,
) -> Endpoint:
    """An endpoint of model `m`, unless `names` (model, aliases) say another."""
    names = names or ("m",)
    return Endpoint(
        id=ReplicaId(id_),
        url=url,
        models=names,
        served_name=served_name or names[0],
        engine="stub",
        weight=weight,
        priority=priority,
    )


def both(*endpoints: Endpoint) -> tuple[Endpoint, ...]:
    """Endpoints of `m` that answer to its alias `chat` too."""
    return tuple(one.model_copy(update={"models": ("m", "chat")}) for one in endpoints)


def token(seq: int, epoch: int = 1, fleet: str = "f", installation: str = "home") -> Token:
    return Token(installation=installation, fleet=fleet, epoch=epoch, seq=seq)


def table(
    seq: int,
    models: tuple[TableModel, ...] = (),
    endpoints: tuple[Endpoint, ...] = (),
    fleet: str = "f",
    installation: str = "home",
    epoch: int = 1,
) -> RouterTable:
    return RouterTable(
        token=token(seq, epoch, fleet, installation),
        digest=table_digest(models, endpoints),
        models=models,
        endpoints=endpoints,
    )


def patch(seq: int, base: RouterTable, change: TableChange) -> TablePatch:
    changed = apply(build(base.models, base.endpoints), change)
    return TablePatch(
        token=token(seq),
        base=base.digest,
        digest=changed.digest,
        put_models=change.put_models,
        drop_models=change.drop_models,
        put_endpoints=change.put_endpoints,
        drop_endpoints=change.drop_endpoints,
    )


EMPTY_TABLE_DIGEST = EMPTY.digest


@dataclass
class Seen:
    path: str
    headers: Mapping[str, str]
    body: bytes


Answering = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]


@dataclass
class Engine:
    """An OpenAI-like server that refuses every name but its own, and says in its answers who it is."""

    id: str = "m-1"
    served_name: str = "m"
    answer: Answering | None = None
    seen: list[Seen] = field(default_factory=list)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.seen.append(Seen(request.raw_path, request.headers, body))
        try:
            if self.answer is not None:
                return await self.answer(request, body)
            asked = json.loads(body)["model"]
            if asked != self.served_name:
                return web.json_response({"error": f"{self.served_name} is not {asked}"}, status=404)
            return web.json_response({"replica": self.id})
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    def endpoint(self, *names: str, weight: int = 100, priority: int = 0) -> Endpoint:
        return endpoint(self.id, self.url, *names, served_name=self.served_name, weight=weight, priority=priority)


@asynccontextmanager
async def running(engine: Engine) -> AsyncIterator[Engine]:
    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/{path:.*}", engine.handle)
    server = TestServer(app)
    await server.start_server()  # cancels handlers of clients that went away, as the process does
    engine.url = str(server.make_url("")).rstrip("/")
    try:
        yield engine
    finally:
        await server.close()


def settings(state_dir: Path, **changes: object) -> Settings:
    values: dict[str, object] = {
        "listen": Listen("127.0.0.1", 0),
        "state_dir": state_dir,
        "token_file": None,
        "api_keys_file": None,
        "router_id": "r1",
        "connect_timeout_s": 2.0,
        "drain_limit_s": 5.0,
        "max_body_bytes": 64 * MIB,
        "access_log": False,
        "hold_limit_s": 0.0,
    }
    return Settings(**(values | changes))  # type: ignore[arg-type]  # the tests name what they change


@dataclass
class Rig:
    """A router that really listens, and a client of it."""

    router: Router
    url: str
    client: ClientSession

    async def put(self, document: RouterTable) -> tuple[int, dict[str, object]]:
        return await self._send("PUT", document)

    async def patch(self, document: TablePatch) -> tuple[int, dict[str, object]]:
        return await self._send("PATCH", document)

    async def serve(
        self, models: tuple[TableModel, ...], endpoints: tuple[Endpoint, ...], seq: int = 1
    ) -> dict[str, object]:
        status, reply = await self.put(table(seq, models, endpoints))
        assert status == 200, reply
        return reply

    async def ask(self, name: str = "m", path: str = CHAT, **fields: object) -> tuple[int, dict[str, object]]:
        async with self.client.post(self.url + path, json={"model": name, **fields}) as response:
            return response.status, await response.json()

    async def ask_plainly(self, name: str = "m") -> tuple[int, bytes]:
        async with self.client.post(self.url + CHAT, json={"model": name}) as response:
            return response.status, await response.read()

    def open(self, name: str = "m") -> Awaitable[ClientResponse]:
        """A request whose answer the test reads by itself."""
        return self.client.post(self.url + CHAT, json={"model": name, "stream": True})

    async def _send(self, method: str, document: RouterTable | TablePatch) -> tuple[int, dict[str, object]]:
        async with self.client.request(method, self.url + "/v1/table", data=document.model_dump_json()) as response:
            return response.status, await response.json()


@asynccontextmanager
async def started(state_dir: Path, **changes: object) -> AsyncIterator[Rig]:
    router = open_router(settings(state_dir, **changes))
    server = TestServer(application(router))
    await server.start_server()  # cancels handlers of clients that went away, as the process does
    try:
        async with ClientSession() as client:
            yield Rig(router, str(server.make_url("")).rstrip("/"), client)
    finally:
        router.close()
        await server.close()


class StateReader:
    """Documents of a held stream, one by one; empty lines are skipped and counted."""

    def __init__(self, response: ClientResponse) -> None:
        self._response = response
        self.beats = 0

    async def line(self) -> bytes:
        return await asyncio.wait_for(self._response.content.readline(), 5)

    async def next(self) -> RouterState:
        while not (line := await self.line()).strip():
            assert line, "the stream ended"
            self.beats += 1
        return RouterState.model_validate_json(line)


@asynccontextmanager
async def watching(rig: Rig, **query: str) -> AsyncIterator[StateReader]:
    async with rig.client.get(rig.url + "/v1/state", params=query) as response:
        assert response.status == 200
        yield StateReader(response)
