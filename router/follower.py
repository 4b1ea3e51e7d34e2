"""`python -m router.follower`: one of several processes that serve clients of a router, started by its keeper.

It follows the keeper's tables, counts on the shared board, and passes the control API on. Without its keeper it takes
no more connections and ends once its open requests have. Not to be started by hand.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

import structlog
import uvloop
from aiohttp import ClientSession, TCPConnector, web
from pydantic import BaseModel

from llmgw import table as tables
from llmgw.ids import ModelName, ReplicaId
from llmgw.table import Table
from llmgw.wire import RouterTable, TablePatch
from router import logs
from router.app import CONTROL_PATHS, TICK_S, add_data_plane
from router.auth import Gate
from router.board import Board
from router.channel import ORDERS, Done, Follow, Order, Reload, Serve, Tell, Told, Wanted, documents, framed
from router.counts import lean, taken
from router.relay import Relay
from router.routing import Routing, build
from router.settings import Settings, read
from router.sockets import BACKLOG, stop_listening
from router.traffic import Traffic
from router.uses import Use

_log = structlog.get_logger("llmgw.router")
INLINE_BYTES = 16_384
"""Larger documents are read in a thread, so that no request waits for it."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a follower is given: its number, file handles of the socket for clients, the channel and the board, and
    where the keeper's control API is."""

    number: int
    processes: int
    listening: int
    channel: int
    board: int
    control_port: int

    def arguments(self) -> list[str]:
        values = (self.number, self.processes, self.listening, self.channel, self.board, self.control_port)
        return [str(value) for value in values]


PLACE_ARGUMENTS = 6


@dataclass
class Follower:
    place: Place
    settings: Settings
    writer: asyncio.StreamWriter
    board: Board
    client_gate: Gate
    traffic: Traffic
    runner: web.AppRunner
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    listening: socket.socket | None = None
    _tables: dict[str, Table] = field(default_factory=dict)
    _told: dict[ModelName, tuple[int, float]] = field(default_factory=dict)

    async def obey(self, reader: asyncio.StreamReader) -> None:
        """Orders one after the other, until the keeper is gone."""
        async for body in documents(reader):
            if len(body) > INLINE_BYTES:
                order = await asyncio.to_thread(ORDERS.validate_json, body)
            else:
                order = ORDERS.validate_json(body)
            await self._obey(order)
        self.ending.set()

    async def _obey(self, order: Order) -> None:
        match order:
            case Follow():
                await self._follow(order)
                self._say(Done(number=order.number))
            case Serve():
                self.listening = socket.socket(fileno=self.place.listening)
                await web.SockSite(self.runner, self.listening, backlog=BACKLOG).start()
            case Tell():
                counts = await asyncio.to_thread(taken, self.traffic)
                self._say(Told(number=order.number, counts=lean(counts)))
            case Reload():
                try:
                    self.client_gate.reload()
                except (OSError, ValueError) as error:
                    _log.error("keys not read again: the old ones stay", problem=str(error))
            case _:
                assert_never(order)

    async def _follow(self, order: Follow) -> None:
        fleet = order.offer.token.fleet
        made = _made(order.offer, self._tables.get(fleet))
        if made is self._tables.get(fleet):
            return
        self._tables[fleet] = made
        make = partial(_use, self.board, order.slots)
        built: Routing = await asyncio.to_thread(
            build, dict(self._tables), self.traffic.clock(), self.traffic.routing, dict(self.traffic.withdrawn), make
        )
        self.traffic.install(built)

    async def watch(self) -> None:
        """Tell the keeper what is wanted here, whenever that changes, and let go of what time has ended."""
        revision = -1
        while True:
            await self.traffic.changes.after(revision, TICK_S)
            self.traffic.tick()
            self.traffic.drained()
            revision = self.traffic.changes.revision
            if (wanted := self.traffic.asks.wanted()) != self._told:
                self._told = wanted
                self._say(Wanted(asked=wanted))

    def _say(self, word: BaseModel) -> None:
        self.writer.write(framed(word))


def _made(offer: RouterTable | TablePatch, held: Table | None) -> Table:
    match offer:
        case RouterTable():
            return tables.build(offer.models, offer.endpoints)
        case TablePatch():
            if held is None:
                raise ValueError("the keeper sent a difference to a table that was never sent")
            return held if held.digest == offer.digest else tables.apply(held, offer)
        case _:
            assert_never(offer)


def _use(board: Board, slots: dict[ReplicaId, int], fleet: str, id_: ReplicaId, model: ModelName, now: float) -> Use:
    return Use(fleet, id_, model, now, board, slots[id_])


async def _run(place: Place, settings: Settings) -> None:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=place.channel))
    board = Board(place.board, place.processes, place.number)
    traffic, gate = Traffic(time.monotonic), Gate(settings.api_keys_file)
    app = web.Application(client_max_size=settings.max_body_bytes)
    async with ClientSession(connector=TCPConnector(limit=0), auto_decompress=False) as session:
        relay = Relay(f"http://127.0.0.1:{place.control_port}", session)
        for path in CONTROL_PATHS:
            app.router.add_route("*", path, relay.pass_on)
        add_data_plane(app, settings, traffic, gate)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=settings.drain_limit_s)
        await runner.setup()
        follower = Follower(place, settings, writer, board, gate, traffic, runner)
        _on_signals(follower.ending)
        tasks = [asyncio.create_task(follower.obey(reader)), asyncio.create_task(follower.watch())]
        ending = asyncio.create_task(follower.ending.wait())
        await asyncio.wait([*tasks, ending], return_when=asyncio.FIRST_COMPLETED)
        if follower.listening is not None:
            await stop_listening(runner, follower.listening)
        await runner.cleanup()
        for task in tasks:
            if task.done() and (error := task.exception()) is not None:
                raise error
            task.cancel()


def _on_signals(ending: asyncio.Event) -> None:
    def end() -> None:
        if ending.is_set():
            os._exit(1)
        ending.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)  # the keeper says so itself


def main(argv: Sequence[str]) -> int:
    place = Place(*(int(text) for text in argv[:PLACE_ARGUMENTS]))
    settings = read(argv[PLACE_ARGUMENTS:], os.environ)
    logs.configure()
    uvloop.run(_run(place, settings))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
