"""What is counted per endpoint: requests in flight, last use, health, answers. Survives table changes, not restarts.

One event loop owns these counts, those on a shared board aside; nothing here locks, waits or decides.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from llmgw.ids import ModelName, ReplicaId
from router.board import Board

EJECT_S = 2.0
EJECT_LIMIT_S = 15.0

Key = tuple[str, ReplicaId]
"""(fleet, replica id): ids are unique within one fleet only."""


@dataclass(slots=True, eq=False)
class Use:
    """Counts of one endpoint. Times are seconds of the machine's monotonic clock."""

    fleet: str
    id: ReplicaId
    model: ModelName
    last_used: float
    """End of the last request; the moment it was first published before that."""
    board: Board | None = None
    """Where other processes of this router count as well, under `slot`."""
    slot: int = -1
    mine: int = 0
    """Requests in flight of this process."""
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

    @property
    def in_flight(self) -> int:
        """Requests from their pick to their end, in every process of this router."""
        return self.mine if self.board is None else self.board.in_flight(self.slot)

    def take(self, now: float) -> None:
        """A request is on its way. After a failed connect it is a probe: others stay away until it is known better."""
        self.mine += 1
        if self.board is not None:
            self.board.begin(self.slot)
        if self.failures:
            self.ejected_until = max(self.ejected_until, now + EJECT_S)

    def release(self, now: float) -> None:
        """A request that was taken is over."""
        self.mine -= 1
        self.last_used = now
        if self.board is not None:
            self.board.end(self.slot, now)

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
        if self.in_flight:
            return 0.0
        used = self.last_used if self.board is None else max(self.last_used, self.board.last_used(self.slot))
        return max(0.0, now - used)


MakeUse: TypeAlias = Callable[[str, ReplicaId, ModelName, float], Use]
"""Counts for an endpoint that is new: (fleet, id, model, now)."""


class Slots:
    """Which endpoint is counted where on a board."""

    def __init__(self, board: Board, most: int) -> None:
        self._board = board
        self._most = most
        self._free: list[int] = []
        self.of: dict[Key, int] = {}
        self.used = 0

    def make(self, fleet: str, id_: ReplicaId, model: ModelName, now: float) -> Use:
        """Raises OSError where more endpoints are counted than a board can hold."""
        slot = self.of.get((fleet, id_))
        if slot is None:
            slot = self.of[fleet, id_] = self._next()
        return Use(fleet, id_, model, now, self._board, slot)

    def keep(self, keys: set[Key]) -> None:
        """Give up the slots of all other endpoints, of which nothing is in flight."""
        for key in [key for key in self.of if key not in keys]:
            self._free.append(self.of.pop(key))

    def _next(self) -> int:
        if self._free:
            slot = self._free.pop()
            self._board.clear_slot(slot)
            return slot
        if self.used >= self._most:
            raise OSError(f"more than {self._most} endpoints at once cannot be counted")
        self.used += 1
        return self.used - 1
