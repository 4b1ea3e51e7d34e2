"""Requests in flight and last use per endpoint, shared by the processes of one router.

A mapped file of cells, one for each endpoint and process; each cell is written by its process alone, so nothing locks,
and a count is the sum of a row. Aligned numbers of 4 and 8 bytes are written whole. Never grows; never on disk under a
name.
"""

import mmap
import os
import tempfile
from pathlib import Path

SLOTS = 1 << 17
"""Endpoints that can be counted at once; unused cells take no memory."""


class Board:
    """`me`: the number of this process, -1 for one that only reads."""

    def __init__(self, handle: int, processes: int, me: int = -1) -> None:
        cells = SLOTS * processes
        self.handle = handle
        self._processes = processes
        self._me = me
        whole = memoryview(mmap.mmap(handle, cells * 12))
        self._busy = whole[: cells * 4].cast("i")
        self._used = whole[cells * 4 :].cast("d")

    @classmethod
    def create(cls, folder: Path, processes: int) -> "Board":
        """A new board, all zero. Its file has no name, and goes with the last process that maps it. Raises OSError."""
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(SLOTS * processes * 12)
            return cls(os.dup(file.fileno()), processes)

    def begin(self, slot: int) -> None:
        self._busy[slot * self._processes + self._me] += 1

    def end(self, slot: int, now: float) -> None:
        cell = slot * self._processes + self._me
        self._busy[cell] -= 1
        self._used[cell] = now

    def in_flight(self, slot: int) -> int:
        """Over all processes."""
        first = slot * self._processes
        return sum(self._busy[first : first + self._processes])

    def last_used(self, slot: int) -> float:
        """End of the last request in any process; 0 when there was none."""
        first = slot * self._processes
        return max(self._used[first : first + self._processes])

    def clear_slot(self, slot: int) -> None:
        """Give a slot to another endpoint: nothing of the former one may be left in flight."""
        for cell in range(slot * self._processes, (slot + 1) * self._processes):
            self._busy[cell] = 0
            self._used[cell] = 0.0

    def clear_process(self, process: int, slots: int) -> None:
        """A process has ended, and its connections with it; `slots`: how many may have been used."""
        for slot in range(slots):
            if self._busy[cell := slot * self._processes + process]:
                self._busy[cell] = 0
