"""Calls to agents and routers over HTTP: one client per target, all sharing one TLS context.

One shared pool with a thousand connections costs 25 ms of CPU a request, a client each 1-2 ms (measured).
"""

from collections import OrderedDict

import httpx
from pydantic import BaseModel, ValidationError

from activities.settings import Outward
from llmgw.calls import CallOutcome, cut
from llmgw.wire import ErrorCode, ErrorReply

MAX_CLIENTS = 2048


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


class Callers:
    """HTTP clients by base URL, the least recently used one closed beyond `MAX_CLIENTS`."""

    def __init__(self, outward: Outward, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.outward = outward
        self._transport = transport
        self._tls = outward.tls or httpx.create_ssl_context()
        self._clients: OrderedDict[str, httpx.AsyncClient] = OrderedDict()

    async def client(self, url: str) -> httpx.AsyncClient:
        if url in self._clients:
            self._clients.move_to_end(url)
            return self._clients[url]
        client = httpx.AsyncClient(
            base_url=url,
            headers=self.outward.headers(),
            timeout=self.outward.call_limit_s,
            verify=self._tls,
            transport=self._transport,
            trust_env=False,
        )
        self._clients[url] = client
        while len(self._clients) > MAX_CLIENTS:
            _, oldest = self._clients.popitem(last=False)
            await oldest.aclose()
        return client

    async def send(self, method: str, url: str, path: str, body: BaseModel) -> bytes:
        """The answer's body. Raises `RefusedError` for an answer that is no success, `httpx.HTTPError` for none."""
        client = await self.client(url)
        response = await client.request(
            method,
            path,
            content=body.model_dump_json(exclude_defaults=False),
            headers={"content-type": "application/json"},
        )
        if response.is_success:
            return response.content
        raise RefusedError(response.status_code, _error_reply(response), _words(response))

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()


def _error_reply(response: httpx.Response) -> ErrorReply | None:
    try:
        return ErrorReply.model_validate_json(response.content)
    except ValidationError:
        return None


def _words(response: httpx.Response) -> str:
    reply = _error_reply(response)
    said = reply.message if reply is not None else response.text[:200]
    return f"{response.status_code} from {response.request.url.host}:{response.request.url.port}: {said}"


def in_words(error: Exception) -> str:
    """A failed call in one short sentence, without request bodies or headers."""
    if isinstance(error, httpx.ConnectError):
        return cut(f"cannot connect: {error}")
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    if isinstance(error, ValidationError):
        return cut(f"the answer is not understood: {error.errors()[0]['msg']}")
    return cut(f"{type(error).__name__}: {error}")
