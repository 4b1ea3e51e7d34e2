"""The answers a router gives by itself to clients, in OpenAI's error shape. What an engine answers is never touched."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from aiohttp import web

from llmgw.wire import ModelState

NAMES_SHOWN = 20


class Miss(StrEnum):
    """Why a request reached no engine, or got no answer from it; a label of metrics and of the access log."""

    NO_TABLE = "no_table"
    UNKNOWN_MODEL = "unknown_model"
    NOT_READY = "not_ready"
    WAITED = "waited"
    CROWDED = "crowded"
    UNREACHABLE = "unreachable"
    BROKEN = "broken"
    BAD_REQUEST = "bad_request"
    TOO_LARGE = "too_large"
    TOO_SLOW = "too_slow"
    UNAUTHORIZED = "unauthorized"
    UNKNOWN_PATH = "unknown_path"


@dataclass(frozen=True, slots=True)
class Answer:
    """An error for a client: `code` is stable, `message` is for people."""

    miss: Miss
    status: int
    message: str
    code: str
    type: str = "invalid_request_error"
    param: str | None = None
    retry_after_s: int | None = None
    state: ModelState | None = None
    ends: bool = False
    """Nothing more can be read on this connection."""

    def response(self) -> web.Response:
        error: dict[str, str | None] = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        if self.state is not None:
            error["state"] = self.state.value
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        body = json.dumps({"error": error}, ensure_ascii=False)
        return web.Response(status=self.status, text=body, content_type="application/json", headers=headers)


def no_table() -> Answer:
    """Nothing is known yet about any model, so nothing may be called unknown: clients take 404 as final."""
    message = "this router has not been given a table yet"
    return Answer(Miss.NO_TABLE, 503, message, "no_table", "service_unavailable", retry_after_s=5)


def unknown_model(name: str, known: Collection[str]) -> Answer:
    message = f"the model {name[:200]!r} does not exist; {_listed(known)}"
    return Answer(Miss.UNKNOWN_MODEL, 404, message, "model_not_found", param="model")


_NOT_READY: Mapping[ModelState, tuple[str, str]] = {
    ModelState.ASLEEP: ("model_asleep", "sleeps; this request has asked for it to be woken"),
    ModelState.STARTING: ("model_starting", "is starting and has no ready replica yet"),
    ModelState.UNAVAILABLE: ("model_unavailable", "has no replica, and none is on its way"),
    ModelState.READY: ("model_not_ready", "has no endpoint in this router's table at this moment"),
}
"""State of a known model without an endpoint -> the error's code, and what is said of the model."""

_IN_VAIN = {Miss.WAITED: ", and did not become ready in time", Miss.CROWDED: ", and many requests wait for it already"}


def not_ready(name: str, state: ModelState, retry_after_s: int, miss: Miss = Miss.NOT_READY) -> Answer:
    """`miss` also tells whether it was waited for in vain, or there were too many who wait."""
    code, why = _NOT_READY[state]
    message = f"the model {name!r} {why}{_IN_VAIN.get(miss, '')}; try again in {retry_after_s} s"
    return Answer(miss, 503, message, code, "service_unavailable", "model", retry_after_s, state)


def unreachable(name: str) -> Answer:
    message = f"no replica of the model {name!r} accepts connections at this moment"
    return Answer(Miss.UNREACHABLE, 503, message, "model_unreachable", "service_unavailable", "model", retry_after_s=2)


def broken(name: str, reason: str) -> Answer:
    message = f"the replica of the model {name!r} broke off before it answered: {reason}"
    return Answer(Miss.BROKEN, 502, message[:300], "bad_gateway", "server_error", "model")


def bad_body(message: str, known: Collection[str] | None = None) -> Answer:
    """`known`: the names to choose from, where the body lacks one."""
    told = message if known is None else f"{message}; {_listed(known)}"
    return Answer(Miss.BAD_REQUEST, 400, told, "invalid_body", param=None if known is None else "model")


def unreadable() -> Answer:
    message = "the request body is not encoded as its Content-Encoding or Transfer-Encoding says"
    return Answer(Miss.BAD_REQUEST, 400, message, "unreadable_body", ends=True)


async def last(request: web.Request, response: web.Response) -> web.Response:
    """Send an answer and end the connection: after a body that was not understood nobody knows where the next request
    begins. It has been sent when this returns."""
    response.force_close()
    await response.prepare(request)
    await response.write_eof()
    request.protocol.force_close()
    return response


def too_large(limit_bytes: int) -> Answer:
    message = f"the request body is larger than this router's limit of {limit_bytes / 1048576:g} MiB"
    return Answer(Miss.TOO_LARGE, 413, message, "body_too_large")


def too_slow(limit_s: float) -> Answer:
    message = f"the request body did not arrive within this router's limit of {limit_s:g} s"
    return Answer(Miss.TOO_SLOW, 408, message, "body_too_slow", ends=True)


def unauthorized() -> Answer:
    message = "send one of this router's API keys as a bearer token in the Authorization header"
    return Answer(Miss.UNAUTHORIZED, 401, message, "invalid_api_key")


def unknown_path(paths: Collection[str]) -> Answer:
    message = "this router serves POST " + ", ".join(paths) + " and GET /v1/models"
    return Answer(Miss.UNKNOWN_PATH, 404, message, "unknown_path")


def _listed(known: Collection[str]) -> str:
    names = sorted(known)
    if not names:
        return "no model is known"
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return "known are " + ", ".join(names[:NAMES_SHOWN]) + more
