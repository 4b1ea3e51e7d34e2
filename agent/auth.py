"""Who may speak to the agent: bearer tokens, several so that they can be rotated.

Pure ASGI, so that held streams pass untouched. It never logs a token and compares every one in constant time.
"""

import hmac
from collections.abc import Callable, Iterable
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from llmgw.wire import ErrorCode, ErrorReply

OPEN_PATHS = frozenset({"/healthz", "/metrics", "/openapi.json"})
TokenSource = Callable[[], tuple[str, ...]]


def read_tokens(path: Path) -> tuple[str, ...]:
    """One token per line; blank lines and lines starting with # are skipped. Raises OSError."""
    lines = (line.strip() for line in path.read_text().splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def split_tokens(text: str) -> tuple[str, ...]:
    """Tokens of a variable: apart by commas, blanks or new lines."""
    return tuple(text.replace(",", " ").split())


def token_source(path: Path) -> TokenSource:
    """The tokens in the file, read again when it changes: a rotation needs no restart.

    A file that cannot be read any more leaves the last tokens in force.
    """
    seen: tuple[float, tuple[str, ...]] = (path.stat().st_mtime, read_tokens(path))

    def tokens() -> tuple[str, ...]:
        nonlocal seen
        try:
            changed = path.stat().st_mtime
            if changed != seen[0] and (fresh := read_tokens(path)):
                seen = (changed, fresh)
        except OSError:
            pass
        return seen[1]

    return tokens


def is_known(offered: str, tokens: Iterable[str]) -> bool:
    """Whether `offered` is one of the tokens; takes as long whichever it is."""
    matches = [hmac.compare_digest(offered.encode(), token.encode()) for token in tokens]
    return any(matches)


class BearerDoor:
    """Lets a request in when it carries a known token, or asks for nothing that needs one."""

    def __init__(self, app: ASGIApp, tokens: TokenSource) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._may_enter(scope):
            await self._app(scope, receive, send)
            return
        text = "send Authorization: Bearer <a token that this service knows>"
        reply = ErrorReply(code=ErrorCode.UNAUTHORIZED, message=text)
        refusal = Response(
            reply.model_dump_json(exclude_none=True),
            status_code=401,
            media_type="application/json",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await refusal(scope, receive, send)

    def _may_enter(self, scope: Scope) -> bool:
        kind, _, offered = Headers(scope=scope).get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and is_known(offered.strip(), self._tokens())
