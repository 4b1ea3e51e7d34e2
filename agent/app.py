"""The agent's HTTP door (see `llmgw.wire`): held state stream, commands, logs, release. Decides nothing itself."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from agent.enginelogs import follow, last_lines
from agent.node import Node, RefusedBatch
from agent.reports import as_line
from llmgw.wire import BEAT_S, BatchReply, CommandBatch, ErrorCode, ErrorReply, Release

MAX_LOG_LINES = 10_000
MAX_LOG_BYTES = 4 * 1024 * 1024


def make_app(node: Node, version: str) -> FastAPI:
    """All routes of one node's agent."""
    app = FastAPI(title="llmgw agent", version=version, docs_url=None, redoc_url=None)

    @app.exception_handler(RefusedBatch)
    async def refused(request: Request, refusal: RefusedBatch) -> Response:
        del request
        return _error(refusal.status, refusal.reply)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        del request
        said = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        return _error(422, ErrorReply(code=ErrorCode.INVALID, message=said[:2000]))

    @app.get("/v1/state", response_class=StreamingResponse)
    async def state(instance: str = "", revision: int = -1) -> StreamingResponse:
        """NDJSON: the report when it is news, then at every change; an empty line is a beat."""
        return StreamingResponse(_stream(node, instance, revision), media_type="application/x-ndjson")

    @app.post("/v1/commands", responses={409: {"model": ErrorReply}, 403: {"model": ErrorReply}})
    async def commands(batch: CommandBatch) -> BatchReply:
        """Take a node's whole list of outstanding commands."""
        return await node.commands(batch)

    @app.post("/v1/release", status_code=204)
    async def release(body: Release) -> Response:
        """Give this agent up for another installation."""
        await node.release(body.owner)
        return Response(status_code=204)

    @app.get("/v1/replicas/{replica}/logs", response_class=PlainTextResponse)
    async def logs(
        replica: str,
        lines: Annotated[int, Query(ge=0, le=MAX_LOG_LINES)] = 100,
        *,
        goes_on: Annotated[bool, Query(alias="follow")] = False,
    ) -> Response:
        """The newest attempt's output; with `follow=1` it goes on as the engine writes."""
        path = node.logs.latest(replica)
        if path is None:
            message = f"replica {replica} has no log here"
            return _error(404, ErrorReply(code=ErrorCode.INVALID, message=message))
        head = "".join(f"{line}\n" for line in last_lines(path, lines, MAX_LOG_BYTES))
        if not goes_on:
            return PlainTextResponse(head)
        return StreamingResponse(_followed(node, head, path), media_type="text/plain")

    @app.get("/healthz", response_class=PlainTextResponse)
    async def healthz() -> str:
        return "ok\n"

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return Response(node.metrics.page(), media_type="text/plain; version=0.0.4")

    return app


async def _stream(node: Node, instance: str, revision: int) -> AsyncIterator[bytes]:
    told = revision if instance == node.revisions.instance else -1
    while not node.closing:
        if told != node.revisions.number:
            told = node.revisions.number
            yield as_line(node.report())
        else:
            yield b"\n"
        await node.revisions.wait(BEAT_S)


async def _followed(node: Node, head: str, path: Path) -> AsyncIterator[bytes]:
    yield head.encode()
    async for part in follow(path, lambda: not node.closing):
        yield part


def _error(status: int, reply: ErrorReply) -> JSONResponse:
    return JSONResponse(reply.model_dump(mode="json", exclude_none=True), status_code=status)
