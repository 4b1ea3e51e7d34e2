"""What the router says of itself: `GET /v1/state`, a held stream of `RouterState` documents, one a line.

Level, not edge: whoever connects, or missed something, gets the whole state as it is now. Never says anything per
request.
"""

import asyncio
import contextlib
from collections.abc import Callable

from aiohttp import web

from llmgw.wire import BEAT_S, Asked, EndpointUse, RouterState
from router.tables import Tables
from router.traffic import Traffic

GAP_S = 0.05
"""The first change after quiet goes out at once; those that follow are gathered this long."""


class StateStream:
    """`instance`: another one at every start; revisions are ordered within one instance only."""

    def __init__(self, router: str, instance: str, version: str, tables: Tables, traffic: Traffic) -> None:
        self._router = router
        self._instance = instance
        self._version = version
        self._tables = tables
        self._traffic = traffic
        self._closing = asyncio.Event()

    def now(self) -> Callable[[], RouterState]:
        """The state at this moment, ages included; the document is made when it is called, in any thread: with
        thousands of endpoints that takes longer than requests should wait."""
        traffic, now = self._traffic, self._traffic.clock()
        uses = [candidate.use for candidate in traffic.routing.candidates.values()]
        uses += traffic.withdrawn.values()
        sampled = [(use.id, use.in_flight, use.idle_s(now), use.withdrawn, use.key) for use in uses]
        idle = traffic.idle
        asked = [(name, held, now - at) for name, (held, at) in traffic.asks.wanted().items()]
        tables, revision = self._tables.summary(), traffic.changes.revision

        def document() -> RouterState:
            return RouterState(
                router=self._router,
                instance=self._instance,
                revision=revision,
                tables=tables,
                use=tuple(
                    EndpointUse(
                        id=id_,
                        in_flight=busy,
                        idle_s=round(idle_s, 3),
                        withdrawn=gone,
                        fleet=key[0],
                        idle=key in idle,
                    )
                    for id_, busy, idle_s, gone, key in sampled
                ),
                asked=tuple(
                    Asked(model=name, waiting=held, asked_s=0.0 if held else round(age_s, 3))
                    for name, held, age_s in asked
                ),
                version=self._version,
            )

        return document

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Held until the reader goes away: a document per change, an empty line each BEAT_S of quiet.

        A reader that names this instance and its present revision is told nothing until the next change.
        """
        known = self._known(request)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while not self._closing.is_set():
                if await self._traffic.changes.after(known, BEAT_S):
                    document, known = self.now(), self._traffic.changes.revision
                    await response.write(await asyncio.to_thread(_line, document))
                    await self._gap()
                else:
                    await response.write(b"\n")
        return response

    def close(self) -> None:
        """End every held stream: the router goes away."""
        self._closing.set()
        self._traffic.changes.note()

    def _known(self, request: web.Request) -> int:
        revision = request.query.get("revision", "")
        if request.query.get("instance") != self._instance or not revision.isdecimal():
            return -1
        return int(revision)

    async def _gap(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), GAP_S)


def _line(document: Callable[[], RouterState]) -> bytes:
    return document().model_dump_json().encode() + b"\n"
