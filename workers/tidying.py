"""Gives memory back that a busy time has left behind: a cold start of 1,000 nodes makes and drops gigabytes of values.

Runs that ended leave cycles which the collector looks for seldom, and C's allocator keeps the pages of what was freed.
Both is seen to after much work: in a quiet moment where there is one, since it stops the process for some tenths of a
second in a large fleet; and when a run has been continued, before the next makes as much. Decides nothing, and changes
no value.
"""

import asyncio
import contextlib
import ctypes
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from activities import handover

LOOK_S = 1.0
QUIET = 0.1
"""Of one core."""
DUE_S, OVERDUE_S = 3.0, 30.0
"""CPU seconds of work after which a quiet moment is used, and none is waited for."""
M_ARENA_MAX, ARENAS = -8, 1
"""glibc's `mallopt`: without it each thread gets an arena of its own, and what one has freed no other can use."""
M_MMAP_THRESHOLD, LARGE_BYTES = -3, 64 * 1024
"""What is as large gets pages of its own, which go back as soon as it is freed: payloads, tables, what is packed."""


def _process_s() -> float:
    return time.process_time()


def _wall_s() -> float:
    return time.monotonic()


def _tidied() -> None:
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library: it keeps what it keeps
        ctypes.CDLL(None).malloc_trim(0)


def allot() -> None:
    """One arena for all threads, and large pieces apart: from now on, so before threads are started."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_ARENA_MAX, ARENAS)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


@dataclass
class Tidying:
    """Looks at what the process has used."""

    tidy: Callable[[], None] = _tidied
    used_s: Callable[[], float] = _process_s
    now_s: Callable[[], float] = _wall_s
    ended: Callable[[], int] = handover.ended
    _tidied_at_s: float = field(default=0.0, init=False)
    _looked: tuple[float, float] = field(default=(0.0, 0.0), init=False)

    def __post_init__(self) -> None:
        self._tidied_at_s, self._looked = self.used_s(), (self.used_s(), self.now_s())

    def look(self) -> None:
        """Tidy up where it is time."""
        used_s, now_s = self.used_s(), self.now_s()
        before_used_s, before_s = self._looked
        self._looked = used_s, now_s
        work_s = used_s - self._tidied_at_s
        is_quiet = used_s - before_used_s < QUIET * (now_s - before_s)
        if work_s >= OVERDUE_S or (work_s >= DUE_S and (is_quiet or self.ended())):
            self.tidy()
            self._tidied_at_s = self.used_s()


async def keep_tidy(tidying: Tidying) -> None:
    """Look each second, for as long as the process works."""
    while True:
        await asyncio.sleep(LOOK_S)
        tidying.look()
