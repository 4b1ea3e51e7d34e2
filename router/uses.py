"""What is counted per endpoint: requests in flight, last use, health, answers. Survives table changes, not restarts.

One event loop owns these counts; nothing here locks, waits or decides.
"""

from collections import Counter
from dataclasses import dataclass, field

from llmgw.ids import ModelName, ReplicaId

EJECT_S = 2.0
EJECT_LIMIT_S = 15.0

Key = tuple[str, ReplicaId]
"""(fleet, replica id): ids are unique within one fleet only."""


@dataclass(slots=True, eq=False)
class Use:
    """Counts of one endpoint. Times are seconds of one monotonic clock."""

    fleet: str
    id: ReplicaId
    model: ModelName
    last_used: float
    """End of the last request; the moment it was first published before that."""
    in_flight: int = 0
    withdrawn: bool = False
    turn: float = 0.0
    """Finish tag of its last pick, see ties in `router.routing`."""
    failures: int = 0
    """Failed connects in a row."""
    ejected_until: float = 0.0
    failed_at: float = float("-inf")
    ejections: int = 0
    aborts: int = 0
    """Answers that broke off after their first byte."""
    answers: Counter[int] = field(default_factory=Counter)
    """By HTTP status; 499 where the client went away first."""

    @property
    def key(self) -> Key:
        return self.fleet, self.id

    def take(self, now: float) -> None:
        """A request is on its way. After a failed connect it is a probe: others stay away until it is known better."""
        self.in_flight += 1
        if self.failures:
            self.ejected_until = max(self.ejected_until, now + EJECT_S)

    def eject(self, picked_at: float, now: float) -> None:
        """A connect failed: rest for a while that doubles with each failure in a row, up to a limit.

        Requests that were picked together fail together and count once.
        """
        if picked_at < self.failed_at:
            return
        self.failed_at = now
        self.failures += 1
        self.ejections += 1
        self.ejected_until = now + min(EJECT_LIMIT_S, EJECT_S * 2.0 ** min(self.failures - 1, 10))

    def connected(self) -> None:
        if self.failures:
            self.failures = 0
            self.ejected_until = 0.0

    def idle_s(self, now: float) -> float:
        return 0.0 if self.in_flight else max(0.0, now - self.last_used)
