"""Tellings that outlive their calls: where a router takes longer than a call may, the next call finds it going on.

So a slow machine gets there in several calls, of which none begins anew. Never more than one a router in this process;
among processes the lock of the workers' file sees to that.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from activities.sinks.sink import RouterError

MOST_S = 60.0
"""How long a telling may go on by itself."""
FRESH_S = 10.0
"""The outcome of a telling that ended between two calls counts that long: afterwards the router may hold anything."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Going(Generic[T]):
    digest: str
    task: asyncio.Task[tuple[T, float]]


class Tellings(Generic[T]):
    """By router, which its file names: the telling that goes on, or the last one that ended."""

    def __init__(self) -> None:
        self._going: dict[Path, _Going[T]] = {}
        self._failed: dict[Path, str] = {}

    async def told(self, router: Path, digest: str, tell: Callable[[], Awaitable[T]], limit_s: float) -> tuple[T, bool]:
        """What `tell` answers; or, True, what a telling of the same table does that an earlier call began.

        Raises what that raises, and `RouterError` when it goes on beyond `limit_s`.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + limit_s
        going = self._going.get(router)
        if going is not None:
            await self._wait(going.task, until_s, router)
            self._forget(router, going)
            if going.digest == digest and (answer := _fresh(going.task)) is not None:
                return answer, True
        going = _Going(digest, asyncio.create_task(_timed(tell)))
        self._going[router] = going
        going.task.add_done_callback(lambda ended: self._ended(router, ended))
        await self._wait(going.task, until_s, router)
        self._forget(router, going)
        return going.task.result()[0], False

    def _forget(self, router: Path, going: _Going[T]) -> None:
        """What was answered once says nothing later."""
        if self._going.get(router) is going:
            del self._going[router]

    async def _wait(self, task: asyncio.Task[tuple[T, float]], until_s: float, router: Path) -> None:
        await asyncio.wait({task}, timeout=max(0.0, until_s - asyncio.get_running_loop().time()))
        if not task.done():
            said = f"; before that: {self._failed[router]}" if router in self._failed else ""
            raise RouterError(f"it is still being told, which takes longer than a call may{said}")

    def _ended(self, router: Path, task: asyncio.Task[tuple[T, float]]) -> None:
        self._failed.pop(router, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed[router] = str(error)


async def _timed(tell: Callable[[], Awaitable[T]]) -> tuple[T, float]:
    try:
        async with asyncio.timeout(MOST_S):
            return await tell(), asyncio.get_running_loop().time()
    except TimeoutError:
        raise RouterError(f"it did not do as it was told within {MOST_S:g} s") from None


def _fresh(task: asyncio.Task[tuple[T, float]]) -> T | None:
    """The answer of a telling that has just ended well."""
    if task.cancelled() or task.exception() is not None:
        return None
    answer, at_s = task.result()
    return answer if asyncio.get_running_loop().time() - at_s < FRESH_S else None
