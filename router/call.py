"""One client request on its way through the router: what is known of it for its answer, its counts and its log line.

Never holds a prompt, a key, or anything of a body but the model's name.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from router.uses import Use

_access = structlog.get_logger("llmgw.router.access")

CLIENT_GONE = 499


@dataclass(slots=True)
class Call:
    """Times are seconds of the loop's clock. `model` is set only to names the tables know."""

    clock: Callable[[], float]
    path: str
    request_id: str
    started: float = field(init=False)
    model: str | None = None
    use: Use | None = None
    attempts: int = 0
    status: int = CLIENT_GONE
    cause: str | None = None
    first_byte_s: float | None = None
    sent_bytes: int = 0

    def __post_init__(self) -> None:
        self.started = self.clock()

    def log(self) -> None:
        _access.info(
            "request",
            path=self.path,
            request_id=self.request_id,
            model=self.model,
            fleet=self.use.fleet if self.use else None,
            replica=self.use.id if self.use else None,
            status=self.status,
            cause=self.cause,
            attempts=self.attempts,
            first_byte_s=None if self.first_byte_s is None else round(self.first_byte_s, 4),
            duration_s=round(self.clock() - self.started, 4),
            sent_bytes=self.sent_bytes,
        )
