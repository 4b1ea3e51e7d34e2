"""Calls to agents and routers over HTTP: one session for all of them, as for their streams (`activities.pool`).

A call costs 0.3 ms of CPU so; with httpx 1-2 ms, and 25 ms where a thousand connections shared one of its pools.
"""

from http import HTTPStatus

import aiohttp
import httpx
from pydantic import BaseModel, ValidationError

from activities.settings import Outward
from llmgw.calls import CallOutcome, cut
from llmgw.misfit import misfits
from llmgw.wire import ErrorCode, ErrorReply

KEPT_S = 4.0
"""An unused connection is closed by us, before the other side does (5 s) and a call meets it half closed."""


MAX_ANSWER_BYTES = 8 * 1024 * 1024


class RefusedError(Exception):
    """The other side answered, and not with success."""

    def __init__(self, status: int, reply: ErrorReply | None, text: str) -> None:
        super().__init__(cut(text))
        self.status = status
        self.reply = reply

    @property
    def outcome(self) -> CallOutcome:
        if self.reply is not None and self.reply.code is ErrorCode.STALE_TOKEN:
            return CallOutcome.STALE
        if self.reply is not None and self.reply.code is ErrorCode.FOREIGN_OWNER:
            return CallOutcome.FOREIGN
        return CallOutcome.FAILED


class UnansweredError(Exception):
    """Nothing came back, or not in time."""


class Callers:
    """One HTTP session, opened by the first call."""

    def __init__(self, outward: Outward) -> None:
        self.outward = outward
        self._session: aiohttp.ClientSession | None = None

    async def send(self, method: str, url: str, path: str, body: BaseModel) -> bytes:
        """The answer's body. Raises `RefusedError` for an answer that is no success, `UnansweredError` for none."""
        try:
            async with self._open().request(
                method, url.rstrip("/") + path, data=body.model_dump_json().encode(), allow_redirects=False
            ) as answer:
                content = await _bounded(answer)
                if HTTPStatus(200) <= answer.status < HTTPStatus(300):
                    return content
                raise _refused(answer.status, f"{answer.url.host}:{answer.url.port}", content)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnansweredError(in_words(error)) from error

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, keepalive_timeout=KEPT_S, ttl_dns_cache=60, ssl=self.outward.tls or True
                ),
                headers={**self.outward.headers(), "content-type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=self.outward.call_limit_s),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    """The body. Raises `UnansweredError` for one that does not end: no answer to us is so long."""
    content = b""
    async for chunk in answer.content.iter_chunked(64 * 1024):
        content += chunk
        if len(content) > MAX_ANSWER_BYTES:
            raise UnansweredError(f"the answer is longer than {MAX_ANSWER_BYTES:,} bytes")
    return content


def _refused(status: int, host: str, content: bytes) -> RefusedError:
    reply = _error_reply(content)
    said = reply.message if reply is not None else content[:200].decode(errors="replace")
    return RefusedError(status, reply, f"{status} from {host}: {said}")


def _error_reply(content: bytes) -> ErrorReply | None:
    try:
        return ErrorReply.model_validate_json(content)
    except ValidationError:
        return None


def in_words(error: Exception) -> str:
    """A failed call in one short sentence, without request bodies or headers."""
    if isinstance(error, UnansweredError):
        return str(error)
    if isinstance(error, aiohttp.ClientConnectorError):
        return cut(f"cannot connect: {error.os_error.strerror or error.os_error}")
    if isinstance(error, httpx.ConnectError):
        return cut(f"cannot connect: {error}")
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return "no answer in time"
    if isinstance(error, ValidationError):
        return cut(f"the answer is not understood: {misfits(error, document='it')}")
    return cut(f"{type(error).__name__}: {error}")
