"""Several processes behind one port: the keeper starts the followers that serve clients, and sees to it that all of
them serve the same table.

A follower that ends is started again; one that does not follow in time is killed, since it would serve what is no
longer in force. Never serves a client itself.
"""

import asyncio
import itertools
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

import structlog
from pydantic import BaseModel, ValidationError

from llmgw.ids import ModelName, ReplicaId
from llmgw.misfit import misfits
from llmgw.wire import RouterTable
from router.app import Router
from router.board import SLOTS, Board
from router.channel import WORDS, Done, Follow, Reload, Serve, Tell, Told, Wanted, documents, framed
from router.counts import Counts, EndpointCounts, added, ended
from router.follower import INLINE_BYTES, Place
from router.tables import Offer
from router.uses import Key, Slots, Use

FOLLOW_LIMIT_S = 2.0
"""Within the plane's own limit for a call: a follower that hangs must not make the router unreachable."""
TELL_LIMIT_S = 2.0
START_LIMIT_S = 30.0
FIRST_REST_S, LONGEST_REST_S = 0.1, 5.0
DRAIN_LOOK_S = 0.02

_log = structlog.get_logger("llmgw.router")


NOTHING = Counts()


@dataclass(eq=False)
class _Process:
    """A follower's process. `serving`: it takes connections, and counts for an acknowledgement."""

    number: int
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    sent: int = -1
    serving: bool = False
    done: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    told: dict[int, asyncio.Future[Counts]] = field(default_factory=dict)
    last: Counts = NOTHING

    def say(self, document: bytes) -> None:
        if not self.writer.is_closing():
            self.writer.write(document)


class Keeper:
    """`others` of a router's tables. `listening`: the bound socket, which every follower inherits."""

    def __init__(self, listening: socket.socket, board: Board, argv: Sequence[str], processes: int) -> None:
        self._listening = listening
        self._board = board
        self._argv = argv
        self._count = processes
        self._slots = Slots(board, SLOTS)
        self._numbers = itertools.count()
        self._living: dict[int, _Process] = {}
        self._departed = Counts()
        self._serving = asyncio.Event()
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []

    # --- what tables ask of the others ---

    def make(self, fleet: str, id_: ReplicaId, model: ModelName, now: float) -> Use:
        return self._slots.make(fleet, id_, model, now)

    def tidy(self, keys: set[Key]) -> None:
        self._slots.keep(keys)

    async def follow(self, offer: Offer) -> None:
        """In force in every process that serves. One that fails to is killed, and no longer serves."""
        number, document = self._order(offer)
        waiting: dict[_Process, asyncio.Future[None]] = {}
        for one in list(self._living.values()):
            one.sent = number
            if one.serving:
                waiting[one] = one.done[number] = asyncio.get_running_loop().create_future()
            one.say(document)
        if waiting:
            await asyncio.wait(waiting.values(), timeout=FOLLOW_LIMIT_S)
        for one, done in waiting.items():
            one.done.pop(number, None)
            if not done.done():
                await self._put_down(one)

    def _order(self, offer: Offer) -> tuple[int, bytes]:
        endpoints = offer.endpoints if isinstance(offer, RouterTable) else offer.put_endpoints
        fleet, number = offer.token.fleet, next(self._numbers)
        slots = {endpoint.id: self._slots.of[fleet, endpoint.id] for endpoint in endpoints}
        return number, framed(Follow(number=number, offer=offer, slots=slots))

    async def _put_down(self, one: _Process) -> None:
        _log.error("a process did not take a table in time: it is killed and started anew", process=one.number)
        if one.process.returncode is None:
            one.process.kill()
        await one.process.wait()
        self._board.clear_process(one.number, self._slots.used)

    # --- life ---

    async def start(self, router: Router, control_port: int) -> None:
        """Start every follower. Raises OSError when they do not serve in time."""
        for number in range(self._count):
            self._tasks.append(asyncio.create_task(self._keep(number, router, control_port)))
        self._tasks.append(asyncio.create_task(self._watch_drains(router)))
        try:
            await asyncio.wait_for(self._serving.wait(), START_LIMIT_S)
        except TimeoutError:
            raise OSError(f"its processes do not serve after {START_LIMIT_S:g} s; see their log lines") from None

    async def _keep(self, number: int, router: Router, control_port: int) -> None:
        rest_s = FIRST_REST_S
        while True:
            began = asyncio.get_running_loop().time()
            code = await self._live(number, router, control_port)
            if self._closing:
                return
            _log.error("a process has ended and is started anew", process=number, exit_code=code)
            lived = asyncio.get_running_loop().time() - began > LONGEST_REST_S
            rest_s = FIRST_REST_S if lived else min(LONGEST_REST_S, rest_s * 2)
            await asyncio.sleep(rest_s)

    async def _live(self, number: int, router: Router, control_port: int) -> int | None:
        """One life of a follower; its exit code, None where there was none."""
        try:
            one = await self._launch(number, router, control_port)
        except OSError as error:
            _log.error("a process cannot be started", process=number, problem=error.strerror)
            return None
        try:
            await self._listen(one, router)
        except ValidationError as error:
            _log.error("a process is not understood", process=number, problem=misfits(error)[:200])
            one.process.kill()
        code = await one.process.wait()
        self._forget(one, router)
        return code

    async def _launch(self, number: int, router: Router, control_port: int) -> _Process:
        ours, theirs = socket.socketpair()
        place = Place(number, self._count, self._listening.fileno(), theirs.fileno(), self._board.handle, control_port)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "router.follower", *place.arguments(), *self._argv),
            pass_fds=(place.listening, place.channel, place.board),
        )
        theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours)
        one = _Process(number, process, reader, writer)
        async with router.tables.turn:  # nothing is taken between what it is sent now and what all are sent later
            self._living[number] = one
            for held in router.tables.held.values():
                table = RouterTable(
                    token=held.token,
                    digest=held.table.digest,
                    models=tuple(held.table.models.values()),
                    endpoints=tuple(held.table.endpoints.values()),
                )
                one.sent, document = self._order(table)
                one.say(document)
            if one.sent < 0:
                self._let_serve(one)
        return one

    def _let_serve(self, one: _Process) -> None:
        one.serving = True
        one.say(framed(Serve()))
        if len(self._living) == self._count and all(p.serving for p in self._living.values()):
            self._serving.set()

    async def _listen(self, one: _Process, router: Router) -> None:
        """What a follower says, until it is gone."""
        async for body in documents(one.reader):
            is_long = len(body) > INLINE_BYTES
            word = await asyncio.to_thread(WORDS.validate_json, body) if is_long else WORDS.validate_json(body)
            match word:
                case Done(number=number):
                    if (done := one.done.get(number)) is not None and not done.done():
                        done.set_result(None)
                    if not one.serving and number == one.sent:
                        self._let_serve(one)
                case Told(number=number, counts=counts):
                    one.last = counts
                    if (told := one.told.pop(number, None)) is not None and not told.done():
                        told.set_result(counts)
                case Wanted(asked=asked):
                    router.traffic.asks.hear(one.number, asked)
                case _:
                    assert_never(word)

    def _forget(self, one: _Process, router: Router) -> None:
        """Its connections are gone with it."""
        self._living.pop(one.number, None)
        one.writer.close()
        self._board.clear_process(one.number, self._slots.used)
        router.traffic.asks.hear(one.number, {})
        router.traffic.drained()
        self._departed = added([self._departed, ended(one.last)])

    async def _watch_drains(self, router: Router) -> None:
        traffic = router.traffic
        while True:
            await traffic.changes.after(traffic.changes.revision, 1.0)
            while traffic.withdrawn:
                await asyncio.sleep(DRAIN_LOOK_S)
                traffic.drained()

    # --- the rest ---

    async def count(self, router: Router) -> Counts:
        """Counts of all processes, and of those that have ended. One that does not answer counts with its last word."""
        number, waiting = next(self._numbers), {}
        for one in self._living.values():
            waiting[one] = one.told[number] = asyncio.get_running_loop().create_future()
            one.say(framed(Tell(number=number)))
        if waiting:
            await asyncio.wait(waiting.values(), timeout=TELL_LIMIT_S)
        rows = tuple(
            EndpointCounts(fleet=use.fleet, id=use.id, model=use.model, withdrawn=use.withdrawn)
            for use in router.traffic.everything_used()
        )
        known = Counts(endpoints=rows)
        return await asyncio.to_thread(added, [known, self._departed, *(one.last for one in waiting)])

    def tell(self, order: BaseModel) -> None:
        for one in self._living.values():
            one.say(framed(order))

    def reload(self) -> None:
        self.tell(Reload())

    async def close(self, limit_s: float) -> None:
        """No new connections; open requests go on for `limit_s` at most."""
        self._closing = True
        living = list(self._living.values())
        for one in living:
            if one.process.returncode is None:
                one.process.terminate()
        try:
            async with asyncio.timeout(limit_s):
                for one in living:
                    await one.process.wait()
        except TimeoutError:
            for one in living:
                if one.process.returncode is None:
                    one.process.kill()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
