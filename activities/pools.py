"""The pools of this process, by fleet. An unused pool stays open for `LINGER_S`, then its streams are closed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp

from activities.pool import MAX_LINE_BYTES, Pool
from activities.settings import Outward
from activities.sinks.kinds import watching

LINGER_S = 30.0


@dataclass
class _Entry:
    pool: Pool
    users: int = 0
    closer: asyncio.TimerHandle | None = None


@dataclass
class Pools:
    outward: Outward
    unwatched: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when an execution for which this process observed is no more: it was continued in a new run, or closed."""
    _open: dict[str, _Entry] = field(default_factory=dict)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def using(self, fleet: str) -> AsyncIterator[Pool]:
        """The fleet's pool, kept open at least as long as somebody uses it."""
        entry = self._open.get(fleet)
        if entry is None:
            entry = self._open[fleet] = _Entry(Pool(fleet, self.outward, _session(), watching(self.outward)))
        if entry.closer is not None:
            entry.closer.cancel()
            entry.closer = None
        entry.users += 1
        try:
            yield entry.pool
        finally:
            entry.users -= 1
            if entry.users == 0:
                entry.closer = asyncio.get_running_loop().call_later(LINGER_S, self._close_unused, fleet)

    def poke(self, fleet: str) -> None:
        """The fleet's targets are about to change: its observer looks them up at once."""
        entry = self._open.get(fleet)
        if entry is not None:
            entry.pool.stale.set()

    def _close_unused(self, fleet: str) -> None:
        task = asyncio.ensure_future(self._open.pop(fleet).pool.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for entry in self._open.values():
            if entry.closer is not None:
                entry.closer.cancel()
            await entry.pool.close()
        self._open.clear()


def _session() -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=60)
    return aiohttp.ClientSession(connector=connector, read_bufsize=MAX_LINE_BYTES // 2)
