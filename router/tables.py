"""The tables held, one per fleet: who may replace one, and the steps from an offer to its acknowledgement.

Fenced by token, checked whole, on disk, then in force: an offer that is answered with a `TableReply` has passed all of
that; any other changed nothing. Offers are taken one at a time. Never touches a request in flight.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, assert_never

from llmgw import table as tables
from llmgw.fencing import Fence, compare, owner_of
from llmgw.ids import ModelName, ReplicaId
from llmgw.table import Table
from llmgw.wire import ErrorCode, ErrorReply, HeldTable, RouterTable, TablePatch, TableReply, Token
from router.check import name_conflicts, patch_problems, table_problems, told
from router.disk import Disk, SetAside
from router.routing import Routing, build
from router.traffic import Traffic
from router.uses import Key, Use

Offer = RouterTable | TablePatch


@dataclass(frozen=True, slots=True)
class Held:
    """A fleet's table in force, and the highest token heard for it."""

    token: Token
    table: Table


@dataclass(frozen=True, slots=True)
class Refused:
    """Why an offer is not taken, with the HTTP status that says so."""

    status: int
    reply: ErrorReply


@dataclass(frozen=True, slots=True)
class Repeat:
    """What was offered is what is held: answered again, changes nothing."""

    held: Held


@dataclass(frozen=True, slots=True)
class _Ready:
    """An offer that is on disk, and the snapshot that puts it in force."""

    held: Held
    routing: Routing


class Others(Protocol):
    """The other processes of this router, which serve what this one decides."""

    def make(self, fleet: str, id_: ReplicaId, model: ModelName, now: float) -> Use:
        """Counts of a new endpoint, shared with them."""
        ...

    def tidy(self, keys: set[Key]) -> None:
        """Only these endpoints are still counted."""
        ...

    async def follow(self, offer: Offer) -> None:
        """When it returns the offer is in force in every one of them."""
        ...


class Nobody:
    """There is this process alone."""

    make = staticmethod(Use)

    def tidy(self, keys: set[Key]) -> None: ...

    async def follow(self, offer: Offer) -> None: ...


class Tables:
    """`turn`: held while a table is taken, so that whoever holds it sees tables that stay."""

    def __init__(self, disk: Disk, traffic: Traffic, others: Others | None = None) -> None:
        self._disk = disk
        self._traffic = traffic
        self._others: Others = Nobody() if others is None else others
        self.turn = asyncio.Lock()
        self._held: Mapping[str, Held] = {}
        self.refusals: Counter[ErrorCode] = Counter()
        self.changed_at: dict[str, float] = {}

    @property
    def held(self) -> Mapping[str, Held]:
        return self._held

    def summary(self) -> dict[str, HeldTable]:
        return {fleet: HeldTable(token=h.token, digest=h.table.digest) for fleet, h in self._held.items()}

    def load(self) -> list[SetAside]:
        """Put in force what is on disk. Blocking; before the router serves. Tells the files that were set aside."""
        held: dict[str, Held] = {}
        aside = []
        for found in self._disk.read():
            if isinstance(found, SetAside):
                aside.append(found)
                continue
            token, table = found
            others = {fleet: other.table for fleet, other in held.items()}
            if conflicts := name_conflicts(token.fleet, table, others):
                aside.append(self._disk.set_aside(self._disk.path_of(token.fleet), told(conflicts)))
            else:
                held[token.fleet] = Held(token, table)
        if held:
            now = self._traffic.clock()
            routing = build({fleet: h.table for fleet, h in held.items()}, now, make=self._others.make)
            self._enforce(held, routing, held)
        return aside

    async def offer(self, offer: Offer) -> TableReply | Refused:
        """Take a table or a patch, or say why not. Goes on to its end even where the caller goes away meanwhile,
        so that disk and memory never differ. Raises OSError when the disk fails; nothing has changed then."""
        return await asyncio.shield(asyncio.ensure_future(self._take(offer)))

    async def _take(self, offer: Offer) -> TableReply | Refused:
        async with self.turn:
            self._others.tidy({use.key for use in self._traffic.everything_used()})
            verdict = await asyncio.to_thread(
                self._prepare, offer, dict(self._traffic.withdrawn), self._traffic.clock()
            )
            match verdict:
                case Refused():
                    self.refusals[verdict.reply.code] += 1
                    return verdict
                case Repeat():
                    pass
                case _Ready():
                    await self._others.follow(offer)
                    fleet = offer.token.fleet
                    self._enforce({**self._held, fleet: verdict.held}, verdict.routing, [fleet])
                case _:
                    assert_never(verdict)
            return self._reply(verdict.held)

    def _reply(self, held: Held) -> TableReply:
        fleet = held.token.fleet
        draining = tuple(use.id for use in self._traffic.withdrawn.values() if use.fleet == fleet)
        return TableReply(token=held.token, digest=held.table.digest, draining=draining)

    def _enforce(self, held: Mapping[str, Held], routing: Routing, changed: Iterable[str]) -> None:
        self.changed_at |= dict.fromkeys(changed, self._traffic.clock())
        self._held = held
        self._traffic.install(routing)

    def _prepare(self, offer: Offer, withdrawn: Mapping[Key, Use], now: float) -> _Ready | Repeat | Refused:
        """Everything that takes time, in a thread: judge, digest, snapshot, disk. The turn is held meanwhile."""
        fleet = offer.token.fleet
        in_force = {other: held.table for other, held in self._held.items()}
        judged = judge(offer, self._held.get(fleet), in_force)
        if not isinstance(judged, Table):
            return judged
        routing = build({**in_force, fleet: judged}, now, self._traffic.routing, withdrawn, self._others.make)
        if self._disk.is_lost():
            self._disk.make_anew()
            for held in self._held.values():
                self._disk.write(held.token, held.table)
        self._disk.write(offer.token, judged)
        return _Ready(Held(offer.token, judged), routing)


def judge(offer: Offer, held: Held | None, others: Mapping[str, Table]) -> Table | Repeat | Refused:
    """The table an offer makes, or why it makes none. Pure.

    A patch whose target is already held is taken whatever its base: the answer to an earlier one was lost.
    """
    match compare(offer.token, held.token if held else None):
        case Fence.FOREIGN:
            return _foreign(held)
        case Fence.STALE:
            return _stale(held, "a newer token is held")
        case Fence.SAME if held is not None and held.table.digest == offer.digest:
            return Repeat(held)
        case Fence.SAME:
            return _stale(held, "this token came with another table before")
        case Fence.NEWER:
            pass
    made = _made(offer, held)
    if isinstance(made, Refused):
        return made
    if conflicts := name_conflicts(offer.token.fleet, made, others):
        return Refused(409, ErrorReply(code=ErrorCode.NAME_CONFLICT, message=told(conflicts)))
    return made


def _made(offer: Offer, held: Held | None) -> Table | Refused:
    match offer:
        case RouterTable():
            problems = table_problems(offer.models, offer.endpoints)
            made = tables.build(offer.models, offer.endpoints)
        case TablePatch():
            if held is None or held.table.digest not in (offer.base, offer.digest):
                return _base_differs(held)
            if held.table.digest == offer.digest:
                return held.table
            made = tables.apply(held.table, offer)
            problems = patch_problems(offer, made)
        case _:
            assert_never(offer)
    if not problems and made.digest != offer.digest:
        problems = [f"the content has digest {made.digest}, not {offer.digest} as the document says"]
    return Refused(422, ErrorReply(code=ErrorCode.INVALID, message=told(problems))) if problems else made


def _foreign(held: Held | None) -> Refused:
    assert held is not None  # noqa: S101 - only a held token can be foreign
    owner = owner_of(held.token)
    message = f"fleet {owner.fleet!r} of this router belongs to installation {owner.installation!r}"
    return Refused(403, ErrorReply(code=ErrorCode.FOREIGN_OWNER, message=message, owner=owner, held=held.token))


def _stale(held: Held | None, message: str) -> Refused:
    assert held is not None  # noqa: S101 - nothing is older than no token
    reply = ErrorReply(code=ErrorCode.STALE_TOKEN, message=message, held=held.token, digest=held.table.digest)
    return Refused(409, reply)


def _base_differs(held: Held | None) -> Refused:
    digest = held.table.digest if held else None
    message = "no table is held for this fleet: send it whole" if held is None else "the base is not the table held"
    token = held.token if held else None
    return Refused(409, ErrorReply(code=ErrorCode.BASE_DIFFERS, message=message, held=token, digest=digest))
