"""Small engines that say who they are, refuse every name but their own, and stream until they are told to end."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.test_utils import TestServer

from llmgw.ids import ReplicaId
from llmgw.wire import Endpoint


@dataclass
class Stub:
    """One replica's engine."""

    id: str
    model: str
    url: str = ""
    end: asyncio.Event = field(default_factory=asyncio.Event)
    """Set: running streams end in order."""
    taken: int = 0
    running: int = 0
    came: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """A client came for an answer that never comes (`user`: waits), and went away."""

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        if body.get("model") != self.model:
            return web.json_response({"error": {"message": f"no model {body.get('model')}", "code": 404}}, status=404)
        self.taken += 1
        if body.get("user") == "waits":
            await self._wait()
        if not body.get("stream"):
            return web.json_response(self._answer("chat.completion"))
        self.running += 1
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f"data: {json.dumps(self._answer('chat.completion.chunk'))}\n\n".encode())
        await self.end.wait()
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        self.running -= 1
        return response

    async def _wait(self) -> None:
        self.came.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()

    async def transcribe(self, request: web.Request) -> web.Response:
        form = await request.post()
        if form.get("model") != self.model or "file" not in form:
            return web.json_response({"error": {"message": f"no model {form.get('model')!r}", "code": 404}}, status=404)
        self.taken += 1
        return web.json_response({"text": self.id})

    def _answer(self, kind: str) -> dict[str, object]:
        message = {"role": "assistant", "content": self.id}
        choice = {"index": 0, "message": message, "delta": message, "finish_reason": "stop"}
        return {"id": "c", "object": kind, "created": 1, "model": self.model, "choices": [choice]}

    async def list_models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self.model, "object": "model", "created": 1}]})

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(text=f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running {self.running}\n")

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(
            id=ReplicaId(self.id), url=self.url, models=(self.model,), served_name=self.model, engine="stub"
        )


async def _healthy(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


@asynccontextmanager
async def engine(id_: str, model: str = "m") -> AsyncIterator[Stub]:
    """A running stub. Its streams end with it."""
    stub = Stub(id_, model)
    app = web.Application()
    app.add_routes(
        [
            web.post("/v1/chat/completions", stub.chat),
            web.post("/v1/audio/transcriptions", stub.transcribe),
            web.get("/v1/models", stub.list_models),
            web.get("/health", _healthy),
            web.get("/metrics", stub.metrics),
        ]
    )
    async with TestServer(app) as server:
        stub.url = f"http://127.0.0.1:{server.port}"
        yield stub
        stub.end.set()
