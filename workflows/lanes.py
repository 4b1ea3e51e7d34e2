"""Lanes: at most one outstanding activity per router and per node, started only when the plan says so.

A lane holds a *dirty* flag and never a piece of a plan: what to send is computed at the moment of sending. A dead
target delays nobody else. Workflow code: no `finally`, no context manager acts here (DESIGN §7).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

K = TypeVar("K")

MAX_BUSY = 200
"""Outstanding activities of a fleet, all lanes together."""


class Lanes(Generic[K]):
    """`send` sends once whatever the key's target lacks, and records the answer; it never raises."""

    def __init__(self, send: Callable[[K], Awaitable[None]], slots: asyncio.Semaphore) -> None:
        self._send = send
        self._slots = slots
        self._dirty: set[K] = set()
        self._tasks: dict[K, asyncio.Task[None]] = {}
        self._closed = False

    @property
    def busy(self) -> bool:
        return bool(self._tasks)

    def kick(self, key: K) -> None:
        """Something for this target changed. While it is busy, the newest state goes next."""
        if self._closed:
            return
        self._dirty.add(key)
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._run(key))

    def close(self) -> None:
        """No new work; what is under way ends by itself."""
        self._closed = True

    async def _run(self, key: K) -> None:
        while key in self._dirty and not self._closed:
            await self._slots.acquire()
            self._dirty.discard(key)
            await self._send(key)
            self._slots.release()
        del self._tasks[key]
