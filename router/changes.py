"""A revision that rises with each change, and a way to wait for the next one."""

import asyncio


class Changes:
    def __init__(self) -> None:
        self.revision = 0
        self._moved = asyncio.Event()

    def note(self) -> None:
        self.revision += 1
        self._moved.set()
        self._moved = asyncio.Event()

    async def after(self, revision: int, limit_s: float) -> bool:
        """Wait until the revision is another than `revision`; False when `limit_s` passed first."""
        if self.revision != revision:
            return True
        try:
            await asyncio.wait_for(self._moved.wait(), limit_s)
        except TimeoutError:
            return False
        return True
