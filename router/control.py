"""The control API: tables in. Translates between HTTP and `router.tables`; never decides about a table itself."""

import asyncio

import structlog
from aiohttp import web
from pydantic import BaseModel, ValidationError

from llmgw.misfit import misfits
from llmgw.wire import ErrorCode, ErrorReply, RouterTable, TablePatch
from router import answers
from router.settings import MIB
from router.tables import Offer, Refused, Tables

MAX_TABLE_BYTES = 256 * MIB
_log = structlog.get_logger("llmgw.router")


class Control:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def put_table(self, request: web.Request) -> web.Response:
        return await self._offer(request, RouterTable)

    async def patch_table(self, request: web.Request) -> web.Response:
        return await self._offer(request, TablePatch)

    async def _offer(self, request: web.Request, kind: type[RouterTable] | type[TablePatch]) -> web.Response:
        try:
            body = await request.clone(client_max_size=MAX_TABLE_BYTES).read()
        except web.RequestPayloadError:
            return await answers.last(request, unreadable())
        offer = await asyncio.to_thread(_parsed, kind, body)
        if isinstance(offer, Refused):
            return _told(offer)
        try:
            outcome = await self._tables.offer(offer)
        except OSError as error:
            _log.error("table not kept", fleet=offer.token.fleet, problem=error.strerror)
            return web.Response(status=500, text=f"the table could not be written to disk: {error.strerror}")
        if isinstance(outcome, Refused):
            return _told(outcome, fleet=offer.token.fleet, seq=offer.token.seq)
        _log.info("table in force", fleet=outcome.token.fleet, seq=outcome.token.seq, digest=outcome.digest)
        return _document(200, outcome)


def unauthorized() -> web.Response:
    message = "send one of this router's control tokens as a bearer token in the Authorization header"
    return _document(401, ErrorReply(code=ErrorCode.UNAUTHORIZED, message=message))


def unreadable() -> web.Response:
    message = "the body is not encoded as its headers say"
    return _document(400, ErrorReply(code=ErrorCode.INVALID, message=message))


def _parsed(kind: type[RouterTable] | type[TablePatch], body: bytes) -> Offer | Refused:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        status = 400 if error.errors()[0]["type"] == "json_invalid" else 422
        return Refused(status, ErrorReply(code=ErrorCode.INVALID, message=misfits(error)))


def _told(refused: Refused, **facts: object) -> web.Response:
    _log.warning("table refused", code=refused.reply.code.value, problem=refused.reply.message, **facts)
    return _document(refused.status, refused.reply)


def _document(status: int, document: BaseModel) -> web.Response:
    return web.Response(status=status, text=document.model_dump_json(), content_type="application/json")
