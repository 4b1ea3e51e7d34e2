"""How much one client may ask: a bound on a request's body, and on requests a second. Before anything is parsed.

Pure ASGI, so that held streams pass untouched. Who is refused is told when to come again.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llmgw.wire import ErrorCode, ErrorReply

MOST_CLIENTS = 1024
DROPPED_BYTES = 64 * 1024 * 1024
BURST_S = 2.0
"""After a quiet time a client may ask for so many seconds' worth at once."""


@dataclass
class _Bucket:
    tokens: float
    at_s: float


class Rate:
    """Token buckets per client; the clients not heard for longest are forgotten first."""

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """0 when the request may pass, and then it is counted; else how long to wait."""
        now_s = self._clock()
        most = max(1.0, self._per_s * BURST_S)
        bucket = self._buckets.pop(client, None) or _Bucket(most, now_s)
        self._buckets[client] = bucket
        while len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)
        bucket.tokens = min(most, bucket.tokens + (now_s - bucket.at_s) * self._per_s)
        bucket.at_s = now_s
        if bucket.tokens < 1.0:
            return (1.0 - bucket.tokens) / self._per_s
        bucket.tokens -= 1.0
        return 0.0


class Limits:
    """Answers 429 above the rate and 413 above the size; everything else goes on to `app`."""

    def __init__(self, app: ASGIApp, rate: Rate, body_bytes: int) -> None:
        self._app = app
        self._rate = rate
        self._body_bytes = body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = scope.get("client") or ("", 0)
        if (wait_s := self._rate.wait_s(client[0])) > 0:
            again = {"Retry-After": str(int(wait_s) + 1)}
            await _refuse(429, ErrorCode.TOO_MANY, "too many requests from this address", again)(scope, receive, send)
            return
        told = Headers(scope=scope).get("content-length", "")
        if told.isdigit() and int(told) > self._body_bytes:
            await self._too_large(scope, receive, send)
        else:
            await self._counted(scope, receive, send)

    async def _too_large(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Most clients read no answer before they have sent everything: so much of it is taken and thrown away."""
        dropped, more = 0, True
        while more and dropped < DROPPED_BYTES:
            message = await receive()
            dropped += len(message.get("body", b""))
            more = message.get("more_body", False)
        text = f"a request's body is at most {self._body_bytes} bytes"
        await _refuse(413, ErrorCode.TOO_LARGE, text, {"Connection": "close"})(scope, receive, send)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A body that does not tell its size is counted as it comes."""
        come, over, begun = 0, False, False

        async def counted() -> Message:
            nonlocal come, over
            message = await receive()
            come += len(message.get("body", b""))
            if come > self._body_bytes:
                over = True
                return {"type": "http.disconnect"}
            return message

        async def answer(message: Message) -> None:
            nonlocal begun
            if not over or begun:
                begun = True
                await send(message)

        try:
            await self._app(scope, counted, answer)
        except Exception:
            if not over:
                raise
        if over and not begun:
            await self._too_large(scope, receive, send)


def _refuse(status: int, code: ErrorCode, message: str, headers: dict[str, str]) -> Response:
    body = ErrorReply(code=code, message=message).model_dump_json(exclude_none=True)
    return Response(body, status_code=status, media_type="application/json", headers=headers)
