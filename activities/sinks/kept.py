"""The sink of all routers that keep no token: the workers keep it for them, in a file (`activities.sinks.book`).

A kind gives two things: how its router is told, and what it holds. Everything else is here: fencing, the base of a
difference, what is leaving and when it is idle, and telling the state as our own router would. Never used by the
native kind, which refuses old tokens itself.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias, assert_never

from activities.outward import RefusedError
from activities.sinks import waking
from activities.sinks.addresses import resolve
from activities.sinks.book import Book, Place, changed_models, leaving_after
from activities.sinks.sink import Engines, Heard, RouterError
from activities.sinks.tellings import Tellings
from llmgw import table as tables
from llmgw.calls import Delta, PublishCall
from llmgw.fencing import Fence, compare
from llmgw.ids import ModelName, ReplicaId
from llmgw.observation import Target
from llmgw.router_kinds import kind_of
from llmgw.sentences import names_shown
from llmgw.table import Table, TableChange
from llmgw.wire import (
    EndpointUse,
    EngineUsage,
    ErrorCode,
    ErrorReply,
    HeldTable,
    RouterState,
    RouterTable,
    TableReply,
    Token,
)

TELL_LIMIT_S = 2.2
"""Under the lane's own limit of 3 s, of which reading the table takes some. What takes longer goes on by itself."""
LOOK_EVERY_S = 1.0
LOOK_WHILE_LEAVING_S = 0.25
LOOK_SHARE = 10
"""A look that takes long is made less often: at most this share of the time goes into it."""
ENGINES_EVERY_S = 20.0
"""How often engines are asked for the use of endpoints whose router tells nothing."""
FORGOTTEN_AFTER_S = 3600.0
"""A withdrawn endpoint of which nothing more is heard is forgotten then."""
DIFFERS = "differs"
"""In place of a digest: the router holds something that no table of ours is."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a router holds, beside its book."""

    instance: str
    """The process that answers; another one may hold less."""
    differs: str = ""
    """What it holds otherwise than the book says, in words; empty: exactly the book."""
    use: Mapping[ReplicaId, EngineUsage] | None = field(default_factory=dict)
    """What the router tells of the use of its endpoints, leaving ones too. One it cannot tell of is left out. None: no
    request ever goes through it."""
    let_go_after_s: float = 0.0
    """For a leaving endpoint that the router cannot tell of: how long the router may go on picking it."""


Scope: TypeAlias = frozenset[str] | None
"""Models; None: all."""


class Control(Protocol):
    """One router of a kind."""

    async def tell(self, book: Book, before: Book | None) -> None:
        """Make the router hold `book`: withdrawn endpoints are no longer picked when this returns. `before`: what it
        is known to hold; None: whatever it holds. Raises `RouterError`. Told again, it goes on where it was."""
        ...

    async def look(self, book: Book, changed: Scope = None) -> Look:
        """What the router holds now, of the models of `changed` at least. Raises `RouterError` when it does not
        answer."""
        ...

    async def sweep(self, book: Book, idle: frozenset[ReplicaId]) -> frozenset[ReplicaId]:
        """Take leaving endpoints that are idle out of the router; those of which nothing is left there."""
        ...


@dataclass(frozen=True, slots=True)
class _Told:
    """What a router was told, and what it then held."""

    book: Book
    look: Look


class KeptSink:
    def __init__(self, control: Callable[[Place], AbstractAsyncContextManager[Control]]) -> None:
        self._control = control
        self._tellings = Tellings[_Told]()

    async def patch(self, call: PublishCall) -> TableReply:
        """Apply the difference to what the book holds."""
        if call.delta is None:
            raise ValueError("a patch needs a delta")
        return await self._acknowledged(call, call.delta)

    async def put(self, call: PublishCall, table: RouterTable) -> TableReply:
        """Bring the router to `table`, whatever it holds."""
        return await self._acknowledged(call, table)

    async def _acknowledged(self, call: PublishCall, offer: Delta | RouterTable) -> TableReply:
        place = Place.of_call(call)
        told, earlier = await self._tellings.told(
            place.book_path, offer.digest, lambda: self._tell(place, call, offer), TELL_LIMIT_S
        )
        book = await _renewed(place, call.token, told.book) if earlier else told.book
        draining = tuple(id_ for id_ in sorted(book.leaving) if _in_flight(told.look, id_) != 0)
        return TableReply(token=book.token, digest=book.digest, draining=draining)

    async def _tell(self, place: Place, call: PublishCall, offer: Delta | RouterTable) -> _Told:
        async with place.writing(TELL_LIMIT_S) as mine, self._control(place) as control:
            if not mine:
                raise RouterError("another worker is telling it")
            before = place.read()
            _refuse(call.token, before)
            table = _made(offer, before)
            book = await _next(call, table, before, anew=isinstance(offer, RouterTable))
            known = before if await _is_base(place, before, offer, control) else None
            place.write(book)  # first: from now on nothing older is taken
            await control.tell(book, known)
            look = await control.look(book, None if known is None else changed_models(known, book))
            if look.differs:
                raise RouterError(f"it does not hold what it was told: {look.differs}")
            place.note_held(book)
        return _Told(book, look)

    async def watch(self, fleet: str, target: Target, engines: Engines) -> AsyncGenerator[Heard, None]:
        """Look at the router as long as it answers; take idle endpoints out of it, which is harmless twice."""
        place, asked = Place.of_target(target), _Asked(engines)
        read = _Reader(place)
        async with self._control(place) as control:
            revision = 0
            while True:
                begun = time.monotonic()
                async with place.writing(0.0) as mine:
                    # Somebody tells it right now: what it holds in between says nothing.
                    heard = await self._look(fleet, place, read.book(), control, asked, revision) if mine else Heard()
                yield heard
                revision += 1
                busy = heard.state is None or any(u.withdrawn for u in heard.state.use)
                pause_s = LOOK_WHILE_LEAVING_S if busy else LOOK_EVERY_S
                await asyncio.sleep(max(pause_s, LOOK_SHARE * (time.monotonic() - begun)))

    async def _look(
        self, fleet: str, place: Place, book: Book | None, control: Control, asked: "_Asked", revision: int
    ) -> Heard:
        if book is None:
            return Heard(RouterState(instance="", revision=revision), "the workers' file for it is missing: told anew")
        look = await control.look(book)
        if book.settings != dict(place.settings):
            look = replace(look, differs="its settings were changed since it was told")
        use = {} if look.use is None else await asked.complete(book, look.use, look.let_go_after_s)
        now_s = time.time()
        idle = frozenset(
            id_
            for id_, gone in book.leaving.items()
            if look.use is None or use[id_].in_flight == 0 or now_s - gone.at_s > FORGOTTEN_AFTER_S
        )
        if idle and (swept := await control.sweep(book, idle)):
            place.write(book.without(swept))
        held = book.held if not look.differs else HeldTable(token=book.token, digest=DIFFERS)
        state = RouterState(
            router=place.router,
            instance=look.instance,
            revision=revision,
            tables={book.token.fleet: held},
            use=tuple(
                EndpointUse(
                    id=id_,
                    in_flight=1 if used.in_flight is None else used.in_flight,
                    idle_s=used.idle_s or 0.0,
                    withdrawn=id_ in book.leaving,
                    fleet=fleet,
                    idle=_is_idle(book, id_, used),
                )
                for id_, used in sorted(use.items())
            ),
        )
        return Heard(state, _trouble(book, look))


class _Reader:
    """The book of a place, read again only where it was written again."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._version: tuple[int, int, int] | None = None
        self._book: Book | None = None

    def book(self) -> Book | None:
        version = self._place.version()
        if version is None or version != self._version:
            self._version, self._book = version, self._place.read()
        return self._book


def _is_idle(book: Book, id_: ReplicaId, used: EngineUsage) -> bool:
    """Whether it was not used for as long as its model wants to know. What nobody can tell of is in use."""
    endpoint = book.endpoints.get(id_)
    model = None if endpoint is None else book.models.get(ModelName(endpoint.models[0]))
    limit_s = None if model is None else model.idle_after_s
    return limit_s is not None and used.in_flight == 0 and used.idle_s is not None and used.idle_s >= limit_s


def _trouble(book: Book, look: Look) -> str:
    said = [f"holds something else: {look.differs}"] if look.differs else []
    if book.left_out:
        reasons = sorted(set(book.left_out.values()))
        said.append(f"left out: {names_shown(sorted(book.left_out))} ({names_shown(reasons)})")
    return "; ".join(said)


# --- fencing and tables --------------------------------------------------------------------------------------------


def _refuse(token: Token, before: Book | None) -> None:
    """`RefusedError` for a token that is older than the book's, or another owner's."""
    held = None if before is None else before.token
    match compare(token, held):
        case Fence.NEWER | Fence.SAME:
            return
        case Fence.STALE:
            raise _refusal(409, ErrorReply(code=ErrorCode.STALE_TOKEN, message="a newer token was told", held=held))
        case Fence.FOREIGN if held is not None and held.fleet != token.fleet:
            raise RouterError(
                f"its file belongs to fleet {held.fleet}: give each fleet a router, or a file, of its own"
            )
        case Fence.FOREIGN:
            raise _refusal(403, ErrorReply(code=ErrorCode.FOREIGN_OWNER, message="another installation's", held=held))
        case never:
            assert_never(never)


def _refusal(status: int, reply: ErrorReply) -> RefusedError:
    return RefusedError(status, reply, reply.message)


def _made(offer: Delta | RouterTable, before: Book | None) -> Table:
    """The table an offer makes. `RefusedError` when it is not the difference to what the book holds."""
    if isinstance(offer, RouterTable):
        return tables.build(offer.models, offer.endpoints)
    differs = ErrorReply(code=ErrorCode.BASE_DIFFERS, message="something else was told last")
    if before is None or before.digest not in (offer.base, offer.digest):
        raise _refusal(409, differs)
    change = TableChange(offer.put_models, offer.drop_models, offer.put_endpoints, offer.drop_endpoints)
    made = before.table if before.digest == offer.digest else tables.apply(before.table, change)
    if made.digest != offer.digest:
        raise _refusal(409, differs)
    return made


async def _is_base(place: Place, before: Book | None, offer: Delta | RouterTable, control: Control) -> bool:
    """Whether the router holds `before`, so that only the difference to it need be told. What was told and never seen
    to be held, as after a call that ran out of time, is no base; for a whole table the router itself is looked at."""
    if before is None or before.settings != dict(place.settings) or not place.is_held(before):
        return False
    return isinstance(offer, Delta) or not (await control.look(before)).differs


async def _renewed(place: Place, token: Token, told: Book) -> Book:
    """The book under the token of a call that found its table told by an earlier one."""
    async with place.writing(TELL_LIMIT_S) as mine:
        held = place.read()
        if not mine or held is None or held.digest != told.digest:
            raise RouterError("another worker is telling it")
        _refuse(token, held)
        book = held.model_copy(update={"token": token})
        place.write(book)
    return book


async def _next(call: PublishCall, table: Table, before: Book | None, *, anew: bool) -> Book:
    """The book for `table`. Addresses are looked up once per endpoint, and all of them anew with a whole table."""
    activator = call.settings.get(waking.SETTING)
    apart = kind_of(call.kind).one_model_per_address
    known, stand_ins = {}, {} if activator is None else waking.stand_ins(table, activator, apart=apart)
    wanted = {**table.endpoints, **stand_ins}
    if before is not None and not anew:
        told = {**before.endpoints, **before.stand_ins}
        same = (id_ for id_, e in wanted.items() if (b := told.get(id_)) and b.url == e.url)
        known = {id_: before.addresses[id_] for id_ in same if id_ in before.addresses}
    found = await resolve(wanted.values(), known, stand_ins)
    book = Book(
        token=call.token,
        digest=table.digest,
        total=table.total,
        models=dict(table.models),
        endpoints=dict(table.endpoints),
        addresses=dict(found.addresses),
        left_out=dict(found.left_out),
        stand_ins=stand_ins,
        settings=call.settings,
    )
    return book.model_copy(update={"leaving": leaving_after(before, book, time.time())})


def _in_flight(look: Look, id_: ReplicaId) -> int | None:
    """Requests in flight as far as the router tells; None: it does not."""
    if look.use is None:
        return 0
    used = look.use.get(id_)
    return None if used is None else used.in_flight


# --- what the router does not tell ---------------------------------------------------------------------------------


class _Asked:
    """Completes what a router tells of use by what the engines say themselves."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._last: Mapping[ReplicaId, EngineUsage] = {}
        self._asked_s = float("-inf")

    async def complete(
        self, book: Book, told: Mapping[ReplicaId, EngineUsage], let_go_after_s: float
    ) -> Mapping[ReplicaId, EngineUsage]:
        """Use of every endpoint, the leaving ones asked each time. Nobody can tell: busy."""
        now_s = time.monotonic()
        silent = [id_ for id_ in book.endpoints if id_ not in told]
        if silent and now_s - self._asked_s >= ENGINES_EVERY_S:
            self._asked_s, self._last = now_s, await self._engines(silent)
        leaving = [id_ for id_ in book.leaving if id_ not in told]
        early = {id_ for id_ in leaving if time.time() - book.leaving[id_].at_s < let_go_after_s}
        said = await self._engines([id_ for id_ in leaving if id_ not in early]) if len(early) < len(leaving) else {}
        found = {id_: self._last.get(id_, EngineUsage()) for id_ in silent}
        found |= {id_: said.get(id_, EngineUsage()) for id_ in leaving}
        return {**found, **told}
