"""The agent's HTTP side (DESIGN §6): a held stream of reports, commands, release, logs, health, metrics.

It translates; `agent.node` and `agent.commands` decide.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.types import ASGIApp

from agent.auth import BearerDoor, TokenSource
from agent.commands import BatchRefused, Commands
from agent.description import describe
from agent.enginelogs import follow as follow_log
from agent.enginelogs import read_tail
from agent.limits import Limits, Rate
from agent.node import Node
from agent.proc import boottime_s
from agent.reports import as_line
from llmgw.ids import ReplicaId
from llmgw.misfit import misfits_of
from llmgw.wire import (
    BEAT_S,
    BatchReply,
    CommandBatch,
    EngineState,
    ErrorCode,
    ErrorReply,
    NodeReport,
    Release,
    Restore,
)

MOST_LINES = 10_000
_LINE_BYTES = 512


class NdjsonStream(StreamingResponse):
    media_type = "application/x-ndjson"


def build_app(node: Node, tokens: TokenSource | None) -> ASGIApp:
    """The agent's application behind its limits and its door; `tokens` None: whoever reaches it may speak."""
    settings = node.settings
    app = build_api(node)
    inside = app if tokens is None else BearerDoor(app, tokens)
    return Limits(inside, Rate(settings.requests_per_s), settings.max_body_mib * 1024 * 1024)


def build_api(node: Node) -> FastAPI:
    """The endpoints alone."""
    app = FastAPI(title="llmgw agent", docs_url=None, redoc_url=None)
    describe(app)
    commands = Commands(node)
    node.meters.watch(node.report, lambda: node.hearing.silent_s(boottime_s()))
    _say_errors(app)
    _serve_state(app, node)
    _serve_commands(app, commands)
    _serve_logs(app, node)
    _serve_health(app, node)
    return app


def _serve_state(app: FastAPI, node: Node) -> None:
    @app.get("/v1/state", response_class=NdjsonStream, responses={200: {"model": NodeReport}}, tags=["state"])
    async def hold_state(
        instance: Annotated[str, Query(description="The instance of the report you hold")] = "",
        revision: Annotated[int, Query(description="Its revision")] = -1,
    ) -> NdjsonStream:
        """Held: a report at once unless you hold it, then one per change; an empty line every 3 s as a beat."""
        return NdjsonStream(_reports(node, instance, revision))


async def _reports(node: Node, instance: str, revision: int) -> AsyncIterator[bytes]:
    with node.meters.streams.track_inprogress():
        while not node.closing:
            node.hearing.note(boottime_s())
            if node.revisions.is_news(instance, revision):
                report = node.report()
                instance, revision = report.instance, report.revision
                yield as_line(report)
                node.told(revision)
                continue
            await node.revisions.wait(BEAT_S)
            if not node.closing and not node.revisions.is_news(instance, revision):
                yield b"\n"


def _serve_commands(app: FastAPI, commands: Commands) -> None:
    errors: dict[int | str, dict[str, type[ErrorReply]]] = {
        status: {"model": ErrorReply} for status in (401, 403, 409, 422, 503)
    }

    @app.post("/v1/commands", responses={**errors}, response_model_exclude_none=True, tags=["commands"])
    async def send_commands(batch: CommandBatch) -> BatchReply:
        """Accept a node's whole batch. What is accepted is on disk; how it goes is told by the state."""
        return await commands.execute(batch)

    @app.post("/v1/release", status_code=204, responses={**errors}, tags=["commands"])
    async def release(order: Release) -> Response:
        """Give the agent up for another installation; `owner` must name the present one."""
        await commands.release(order)
        return Response(status_code=204)

    @app.post("/v1/restore", status_code=204, responses={**errors}, tags=["commands"])
    async def restore(order: Restore) -> Response:
        """Take a quarantined device into use again; refused while a process of ours lives on it."""
        await commands.restore(order)
        return Response(status_code=204)


def _serve_logs(app: FastAPI, node: Node) -> None:
    @app.get(
        "/v1/replicas/{replica}/logs",
        response_class=PlainTextResponse,
        responses={404: {"model": ErrorReply, "description": "nothing of this replica is kept here"}},
        tags=["logs"],
    )
    async def read_logs(
        replica: str,
        lines: Annotated[int, Query(ge=0, le=MOST_LINES, description="How many last lines")] = 100,
        follow: Annotated[bool, Query(description="Go on with what is written from now on")] = False,
    ) -> Response:
        """The engine's output: of its latest attempt here, also when the replica is gone."""
        path = node.logs.latest(replica)
        if path is None:
            message = f"no log of replica {replica!r} on node {node.settings.node!r}"
            return _error(404, ErrorReply(code=ErrorCode.INVALID, message=message))
        head, end = await asyncio.to_thread(read_tail, path, lines, max(64 * 1024, lines * _LINE_BYTES))
        node.secrets.learn()
        if not follow:
            return PlainTextResponse(node.secrets.redactor.clean_bytes(head))
        return StreamingResponse(_log_stream(node, replica, head, end), media_type="text/plain; charset=utf-8")


async def _log_stream(node: Node, replica: str, head: bytes, end: int) -> AsyncIterator[bytes]:
    """Until the replica has ended, or the agent does."""

    def is_over() -> bool:
        known = node.replicas.get(ReplicaId(replica))
        return node.closing or known is None or known.state is EngineState.FAILED

    path = node.logs.latest(replica)
    if path is None:
        yield node.secrets.redactor.clean_bytes(head)
        return
    async for chunk in node.secrets.redactor.clean_stream(_joined(head, follow_log(path, end, is_over))):
        yield chunk


async def _joined(head: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield head
    async for chunk in rest:
        yield chunk


def _serve_health(app: FastAPI, node: Node) -> None:
    broken: dict[int | str, dict[str, Any]] = {
        503: {"description": "the ledger cannot be written", "content": {"text/plain": {"schema": {"type": "string"}}}}
    }

    @app.get("/healthz", response_class=PlainTextResponse, responses=broken, tags=["health"])
    async def health() -> Response:
        """200 while the agent serves and can write its ledger; what else is wrong with it is told all the same."""
        if problem := node.ledger.problem:
            return PlainTextResponse(problem, status_code=503)
        return PlainTextResponse("; ".join(("ok", *node.problems())))

    @app.get("/metrics", response_class=PlainTextResponse, tags=["health"])
    async def metrics() -> Response:
        """Prometheus figures, names llmgw_agent_*."""
        return Response(node.meters.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _say_errors(app: FastAPI) -> None:
    @app.exception_handler(BatchRefused)
    async def refused(_: Request, error: BatchRefused) -> Response:
        return _error(error.status, error.reply)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        problems = misfits_of(error.errors(), document="the request", skip=1)
        return _error(422, ErrorReply(code=ErrorCode.INVALID, message=problems))


def _error(status: int, reply: ErrorReply) -> JSONResponse:
    return JSONResponse(reply.model_dump(mode="json", exclude_none=True), status_code=status)
