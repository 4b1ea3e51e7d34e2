"""Lanes: at most one outstanding call per router and per node, begun only when the plan says so.

A lane holds a *dirty* flag and never a piece of a plan: what to send is computed at the moment of sending. A dead
target delays nobody else. Holds no task and gives no command: the workflow's one loop does.
"""

from typing import Generic, TypeVar

K = TypeVar("K")

MAX_BUSY = 200
"""Outstanding calls of a fleet, all lanes together."""
MAX_BUSY_BYTES = 1 << 20
"""What their inputs may have together. All of them may be begun in one workflow task, and over 4 MiB of commands in one
task end the workflow."""


class Lanes(Generic[K]):
    def __init__(self) -> None:
        self._dirty: dict[K, None] = {}
        self._under_way: dict[K, int] = {}

    @property
    def busy(self) -> int:
        return len(self._under_way)

    @property
    def busy_bytes(self) -> int:
        """Inputs of the calls under way."""
        return sum(self._under_way.values())

    def kick(self, key: K) -> None:
        """Something for this target changed. While it is busy, the newest state goes next."""
        self._dirty[key] = None

    def due(self, free: int) -> list[K]:
        """Targets whose turn it is, at most `free`, the longest waiting first. They are clean from now on."""
        found = [key for key in self._dirty if key not in self._under_way][: max(0, free)]
        for key in found:
            del self._dirty[key]
        return found

    def begin(self, key: K, size: int) -> None:
        """`size`: bytes of the call's input."""
        self._under_way[key] = size

    def end(self, key: K) -> None:
        self._under_way.pop(key, None)
