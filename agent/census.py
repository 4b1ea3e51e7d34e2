"""One census at a time, shared: whoever asks while one runs gets the next, which began after they asked.

A proof needs a look taken after the last signal; fifty stops at once need no fifty looks.
"""

import asyncio

from agent.marks import MARKER
from agent.proc import Census, take_census


class CensusTaker:
    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[Census]] = []
        self._taker: asyncio.Task[None] | None = None

    async def take(self) -> Census:
        """A census begun after this call."""
        future: asyncio.Future[Census] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if self._taker is None or self._taker.done():
            self._taker = asyncio.create_task(self._serve(), name="census")
        return await future

    async def _serve(self) -> None:
        while self._waiting:
            served, self._waiting = self._waiting, []
            census = await asyncio.to_thread(take_census, MARKER)
            for future in served:
                if not future.done():
                    future.set_result(census)
