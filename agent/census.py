"""One look at a time, shared: whoever asks while one runs gets the next, which began after they asked.

A proof needs a look taken after the last signal; fifty stops at once need no fifty looks.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import structlog

from agent.marks import MARKER
from agent.proc import Census, take_census

Found = TypeVar("Found")

AGAIN_S = 0.5

log = structlog.get_logger("agent")


class SharedLook(Generic[Found]):
    """`look` is awaited once for all who asked before it began. It must not raise."""

    def __init__(self, look: Callable[[], Awaitable[Found]], name: str) -> None:
        self._look = look
        self._name = name
        self._waiting: list[asyncio.Future[Found]] = []
        self._looker: asyncio.Task[None] | None = None

    async def take(self) -> Found:
        """What a look begun after this call has found."""
        future: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if self._looker is None or self._looker.done():
            self._looker = asyncio.create_task(self._serve(), name=self._name)
        return await future

    async def _serve(self) -> None:
        while self._waiting:
            served, self._waiting = self._waiting, []
            found = await self._look()
            for future in served:
                if not future.done():
                    future.set_result(found)


class CensusTaker(SharedLook[Census]):
    """All processes of this machine. Where the kernel does not tell all of them, whoever asks waits until it does:
    a part of the list would prove the rest gone."""

    def __init__(self) -> None:
        super().__init__(self._take, "census")
        self.problem = ""
        """Why there is none at present."""

    async def _take(self) -> Census:
        while True:
            try:
                found = await asyncio.to_thread(take_census, MARKER)
            except OSError as error:
                if not self.problem:
                    log.critical("processes cannot be counted: nothing is taken for gone", problem=str(error))
                self.problem = f"processes cannot be counted, so nothing is taken for gone: {error}"[:300]
                await asyncio.sleep(AGAIN_S)
            else:
                self.problem = ""
                return found
