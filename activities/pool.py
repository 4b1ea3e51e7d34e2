"""The process-wide pool of held streams, one to every agent and router of a fleet.

It outlives the `observe` activity that drains it (`activities.pools`): a returned change must not re-open a thousand
connections. It only reads, so two pools at once are harmless. Silence is measured on the pool's own clock, which
counts only time in which the process really ran: a paused process finds nobody silent.
"""

import asyncio
import contextlib
import logging
import os
import socket
import time
import uuid
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import aiohttp
import httpx
from pydantic import ValidationError

from activities import engines
from activities.complaints import Complaints
from activities.cutting import node_seen, router_seen
from activities.outward import in_words
from activities.settings import Outward
from activities.sinks.sink import RouterError, Watching
from llmgw import alike
from llmgw.calls import cut
from llmgw.echo import ECHO_S, TABLE_ECHO_S, is_echo, is_taken_table
from llmgw.ids import NodeId, ReplicaId, RouterId
from llmgw.misfit import misfits
from llmgw.observation import (
    NodeSeen,
    Observation,
    RouterSeen,
    SilenceSeen,
    Target,
    Targets,
    TroubleSeen,
)
from llmgw.pace import Pace
from llmgw.packing import Weigher
from llmgw.silence import silence_level
from llmgw.wire import BEAT_S, EngineUsage, Inventory, NodeReport, RouterState
from llmgw.world import SilenceLevel

PART_BYTES = 160 * 1024
"""Of one observation in the history, where a large one is packed: the reports of some 250 full nodes."""
MOST_PLAIN_BYTES = 2 * 1024 * 1024
"""And before it is packed: the workflow's task has to read it."""
TICK_S = 0.5
LONGEST_TICK_S = 1.0
"""A longer gap between two ticks means that the process did not run: the rest of it does not count."""
FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 2.0
TOLD_FAILURES = 3
"""A restart within a second is nobody's business; a stream that keeps failing is told."""
MAX_LINE_BYTES = 4 * 1024 * 1024
CONNECTS_AT_ONCE = 64

_KINDS = {"node": "agent", "router": "router of llmgw"}
log = logging.getLogger(__name__)

Fact: TypeAlias = NodeSeen | RouterSeen | SilenceSeen | TroubleSeen


def identity() -> str:
    """Who is acting: host and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass
class _Stream:
    """One target's stream: what was last heard, and when on the pool's clock."""

    target: Target
    task: asyncio.Task[None] | None = None
    instance: str = ""
    revision: int = -1
    heard_s: float = 0.0
    level: SilenceLevel = SilenceLevel.HEARD
    inventory: Inventory | None = None
    boot: str = ""
    understood: int = 0
    """Documents that were understood, and beats after them."""
    failures: int = 0
    complaints: Complaints = field(default_factory=Complaints)
    since: Mapping[ReplicaId, float] = field(default_factory=dict)
    """When each replica came into the state it was last reported in, on the pool's clock."""

    @property
    def name(self) -> str:
        return self.target.id.partition("/")[2]

    @property
    def kind(self) -> str:
        """node or router."""
        return self.target.id.partition("/")[0]


@dataclass
class Pool:
    """Held streams of one fleet and the facts they brought, each with the sequence number of its last change."""

    fleet: str
    outward: Outward
    session: aiohttp.ClientSession
    watching: Mapping[str, Watching] = field(default_factory=dict)
    """By kind: the sinks of routers that have to be looked at, since they do not tell their state."""
    clock: Callable[[], float] = time.monotonic
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    revision: int = 0
    suspect_after_s: float = 10.0
    lost_after_s: float = 60.0

    def __post_init__(self) -> None:
        self._streams: dict[str, _Stream] = {}
        self._facts: dict[tuple[str, str], tuple[int, Fact]] = {}
        self._inventory_seq: dict[str, int] = {}
        self._inventory_told: dict[str, int] = {}
        self._ages_told: dict[str, int] = {}
        """Of the present reader, who began at 0: with which cursor it asked when the inventory was last told."""
        self._seq = 0
        self._urgent = 0
        """Sequence number of the last change that is more than an echo of our own commands."""
        self._echo = 0
        """And of the last echo that more than a router's answer has told."""
        self._changed = asyncio.Event()
        self._pressing = asyncio.Event()
        self._pace = Pace()
        self._ran_s = 0.0
        self._ticked_s = self.clock()
        self.stale = asyncio.Event()
        """Set when the targets may have changed."""
        self._gate = asyncio.Semaphore(CONNECTS_AT_ONCE)
        self._ticker = asyncio.create_task(self._tick(), name=f"silence of {self.fleet}")

    # --- whom to observe ---

    def aim(self, targets: Mapping[str, Target], limits: Targets) -> None:
        """Observe exactly these from now on; streams to unchanged targets stay open."""
        self.revision = limits.revision
        self.suspect_after_s, self.lost_after_s = limits.suspect_after_s, limits.lost_after_s
        for id_, stream in list(self._streams.items()):
            if targets.get(id_) != stream.target:
                self._drop(id_)
        for id_, target in targets.items():
            if id_ not in self._streams:
                stream = self._streams[id_] = _Stream(target, heard_s=self._ran_s)
                stream.task = asyncio.create_task(self._hold(stream), name=f"stream {id_}")

    def _drop(self, id_: str) -> None:
        stream = self._streams.pop(id_)
        if stream.task is not None:
            stream.task.cancel()
        for key in [key for key in self._facts if key[1] == id_]:
            del self._facts[key]

    async def close(self) -> None:
        self._ticker.cancel()
        for id_ in list(self._streams):
            self._drop(id_)
        await self.session.close()

    # --- draining ---

    async def take(self, cursor: int) -> Observation:
        """What changed since `cursor`, waiting until there is something. After quiet it comes at once."""
        while self._seq <= cursor:
            self._changed.clear()
            await self._changed.wait()
        await self._more_than_echoes(cursor)
        await asyncio.sleep(self._pace.wait_s(self.clock()))
        self._pace.take(self.clock())
        return self._part(cursor)

    async def _more_than_echoes(self, cursor: int) -> None:
        """What only our own commands made visible waits for the news that follow, but not for ever."""
        began_s = self.clock()
        while self._urgent <= cursor:
            limit_s = ECHO_S if self._echo > cursor else TABLE_ECHO_S
            if (left_s := began_s + limit_s - self.clock()) <= 0:
                return
            self._pressing.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._pressing.wait(), left_s)

    def _part(self, cursor: int) -> Observation:
        due = sorted(((seq, key[1], fact) for key, (seq, fact) in self._facts.items() if seq > cursor), key=_by_seq)
        if cursor == 0:
            self._inventory_told.clear()
            self._ages_told.clear()
        taken: list[Fact] = []
        weigher, reached = Weigher(), cursor
        for seq, target, fact in due:
            part = self._with_inventory(target, fact, cursor)
            weigher.add(part.model_dump_json().encode())
            if taken and not (weigher.plain_bytes <= MOST_PLAIN_BYTES and weigher.fits(PART_BYTES)):
                break
            # Ages are few bytes, and grow: not weighed, so that a part that is asked for again is cut where it was.
            taken.append(self._with_ages(target, part, cursor))
            if isinstance(part, NodeSeen) and part.inventory is not None:
                self._inventory_told[target] = cursor
            if isinstance(part, NodeSeen):
                self._ages_told.setdefault(target, cursor)
            reached = seq
        more = len(taken) < len(due)
        return Observation(
            pool=self.id,
            cursor=reached if more else self._seq,
            more=more,
            nodes=tuple(f for f in taken if isinstance(f, NodeSeen)),
            routers=tuple(f for f in taken if isinstance(f, RouterSeen)),
            silence=tuple(f for f in taken if isinstance(f, SilenceSeen)),
            troubles=tuple(f for f in taken if isinstance(f, TroubleSeen)),
            acting=identity(),
        )

    def _with_inventory(self, target: str, fact: Fact, cursor: int) -> Fact:
        """A node's inventory travels only when it changed since the cursor, or was not told yet: what changed lately
        comes in a later part of a snapshot, whose cursor is beyond the inventory."""
        if not isinstance(fact, NodeSeen):
            return fact
        if self._inventory_seq.get(target, 0) <= cursor and self._inventory_told.get(target, cursor) < cursor:
            return fact
        return fact.model_copy(update={"inventory": self._streams[target].inventory})

    def _with_ages(self, target: str, fact: Fact, cursor: int) -> Fact:
        """How long each replica has been in its state travels with the first that is told of a node: a workflow that
        begins anew remembers none of it."""
        if not isinstance(fact, NodeSeen) or self._ages_told.get(target, cursor) < cursor:
            return fact
        since, now_s = self._streams[target].since, self.clock()
        ages_s = tuple(max(0, int(now_s - since.get(row.replica, now_s))) for row in fact.replicas)
        return fact.model_copy(update={"ages_s": ages_s}) if any(ages_s) else fact

    def _tell(self, kind: str, target: str, fact: Fact) -> None:
        known = self._facts.get((kind, target))
        self._seq += 1
        self._facts[kind, target] = (self._seq, fact)
        self._changed.set()
        before = known[1] if known is not None else None
        if not is_echo(before, fact):
            self._urgent = self._seq
        elif not is_taken_table(before, fact):
            self._echo = self._seq
        else:
            return
        self._pressing.set()

    # --- one stream ---

    async def _hold(self, stream: _Stream) -> None:
        """Whatever is at the other end, and whatever it says: tried again."""
        retry_s = FIRST_RETRY_S
        while True:
            understood = stream.understood
            try:
                sink = self.watching.get(stream.target.kind)
                await (self._read(stream) if sink is None else self._watch(stream, sink))
                trouble = "the stream ended"
            except (RouterError, aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                trouble = _in_words(error)
            except Exception as error:
                log.warning("the stream of %s broke", stream.target.id, exc_info=True)
                trouble = _in_words(error)
            if stream.understood > understood:
                retry_s = FIRST_RETRY_S  # it worked for a while: a restart is answered at once
                stream.failures = 0
            stream.failures += 1
            if stream.failures >= TOLD_FAILURES:
                self._trouble(stream, trouble)
            await asyncio.sleep(retry_s)
            retry_s = min(LONGEST_RETRY_S, retry_s * 2)

    async def _read(self, stream: _Stream) -> None:
        params = {"instance": stream.instance, "revision": str(stream.revision)}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=3.0, sock_read=3 * BEAT_S)
        async with contextlib.AsyncExitStack() as stack:
            async with self._gate:  # a restart of everything must not open a thousand connections in one instant
                answer = await stack.enter_async_context(
                    self.session.get(
                        f"{stream.target.url}/v1/state",
                        params=params,
                        headers=self.outward.headers(),
                        timeout=timeout,
                        ssl=self.outward.tls or True,
                        allow_redirects=False,
                    )
                )
            if answer.status != 200:
                said = await answer.content.read(200)
                raise ValueError(f"{answer.status}: {said.decode(errors='replace')}")
            async for line in answer.content:
                if line.strip():
                    self._heard(stream, self._absorb(stream, line))
                elif stream.revision >= 0:
                    self._beat(stream)

    async def _watch(self, stream: _Stream, sink: Watching) -> None:
        """Look at a router that does not tell its state by itself."""
        try:
            async with contextlib.aclosing(sink.watch(self.fleet, stream.target, self._use_of)) as looks:
                async for heard in looks:
                    stream.understood += 1
                    self._heard(stream, heard.trouble)
                    if heard.state is not None:
                        self._router(stream, heard.state)
        except httpx.HTTPError as error:
            raise RouterError(in_words(error)) from error

    async def _use_of(self, replicas: Collection[ReplicaId]) -> Mapping[ReplicaId, EngineUsage]:
        """What engines say of their own use, asked anew at the agents that report them."""
        nodes = {s.target.url: s.target.id for s in self._streams.values() if s.target.id.startswith("node/")}
        reports = {url: self._facts.get(("seen", id_), (0, None))[1] for url, id_ in nodes.items()}
        known = {url: report if isinstance(report, NodeSeen) else None for url, report in reports.items()}
        return await engines.use_of(self.session, self.outward, known, replicas)

    def _heard(self, stream: _Stream, trouble: str = "") -> None:
        stream.heard_s = self._ran_s + min(LONGEST_TICK_S, self.clock() - self._ticked_s)
        self._trouble(stream, cut(trouble))
        if stream.level is not SilenceLevel.HEARD:
            self._level(stream, SilenceLevel.HEARD)

    def _trouble(self, stream: _Stream, text: str) -> None:
        known = self._facts.get(("trouble", stream.target.id))
        if (known is None and not text) or (known is not None and known[1] == _trouble_of(stream, text)):
            return
        self._tell("trouble", stream.target.id, _trouble_of(stream, text))

    def _beat(self, stream: _Stream) -> None:
        """Nothing new from one that was understood once: what else answers at its address says nothing of it."""
        stream.understood += 1
        self._heard(stream)

    def _absorb(self, stream: _Stream, line: bytes) -> str:
        """What is wrong with a document, where it is not understood; empty otherwise. It is a trouble of that target,
        and nothing else. ValueError for what is no document at all: something else answers at that address."""
        try:
            if stream.kind == "node":
                self._node(stream, NodeReport.model_validate_json(line))
            else:
                self._router(stream, RouterState.model_validate_json(line))
        except ValidationError as error:
            if error.errors(include_url=False)[0]["type"] in ("json_invalid", "model_type"):
                raise ValueError(f"it is no {_KINDS[stream.kind]}: it says {_shown(line)}") from error
            return f"its report is not understood: {misfits(error, document='it')}"
        stream.understood += 1
        return ""

    def _node(self, stream: _Stream, report: NodeReport) -> None:
        stream.instance, stream.revision = report.instance, report.revision
        target = stream.target.id
        fact = node_seen(NodeId(stream.name), report)
        stream.complaints.hear(fact.problems)
        stream.since = {row.replica: self.clock() - row.state_age_s for row in report.replicas}
        if report.inventory != stream.inventory or report.boot_id != stream.boot:
            stream.inventory, stream.boot = alike.inventory(NodeId(stream.name), report.inventory), report.boot_id
            self._inventory_seq[target] = self._seq + 1
            self._tell_node(stream, fact, alone=False)
            return
        known = self._facts.get(("seen", target))
        words = {"revision": fact.revision, "problems": fact.problems}
        if known is None or known[1].model_copy(update=words) != fact:
            self._tell_node(stream, fact, alone=False)
        elif stream.complaints.is_due(self.clock()):
            self._tell_node(stream, fact, alone=True)

    def _tell_node(self, stream: _Stream, fact: NodeSeen, *, alone: bool) -> None:
        """`alone`: only what its agent complains of is new."""
        stream.complaints.note_told(self.clock(), alone=alone)
        self._tell("seen", stream.target.id, fact)

    def _router(self, stream: _Stream, state: RouterState) -> None:
        stream.instance, stream.revision = state.instance, state.revision
        fact = router_seen(RouterId(stream.name), self.fleet, state)
        known = self._facts.get(("seen", stream.target.id))
        if known is None or known[1].model_copy(update={"revision": fact.revision}) != fact:
            self._tell("seen", stream.target.id, fact)

    # --- silence ---

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = self.clock()
            self._ran_s += min(LONGEST_TICK_S, now - self._ticked_s)
            self._ticked_s = now
            self.judge_silence()
            self.tell_complaints(now)

    def tell_complaints(self, now: float) -> None:
        """What agents say is wrong with their nodes, where telling it had to wait."""
        for stream in self._streams.values():
            fact = self._facts.get(("seen", stream.target.id), (0, None))[1] if stream.complaints.is_due(now) else None
            if isinstance(fact, NodeSeen):
                fresh = fact.model_copy(update={"problems": stream.complaints.newest})
                self._tell_node(stream, fresh, alone=True)

    def judge_silence(self) -> None:
        """Tell each target whose level changed; the witness rule is `llmgw.silence`'s."""
        heard = sorted(stream.heard_s for stream in self._streams.values())
        for stream in self._streams.values():
            silent_s = self._ran_s - stream.heard_s
            if silent_s < self.suspect_after_s and stream.level is SilenceLevel.HEARD:
                continue
            witnesses = len(heard) - bisect_right(heard, stream.heard_s)
            level = silence_level(silent_s, witnesses, len(heard) - 1, self.suspect_after_s, self.lost_after_s)
            if level is not stream.level:
                self._level(stream, level)

    def _level(self, stream: _Stream, level: SilenceLevel) -> None:
        stream.level = level
        silent_s = round(self._ran_s - stream.heard_s, 1)
        self._tell("silence", stream.target.id, SilenceSeen(target=stream.target.id, level=level, silent_s=silent_s))


def _by_seq(item: tuple[int, str, Fact]) -> int:
    return item[0]


def _trouble_of(stream: _Stream, text: str) -> TroubleSeen:
    return TroubleSeen(target=stream.target.id, text=text)


def _shown(line: bytes) -> str:
    return repr(line[:60].decode(errors="replace").strip())


def _in_words(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return cut(f"cannot connect: {error.os_error.strerror or error.os_error}")
    if isinstance(error, TimeoutError):
        return "no beat in time"
    return cut(str(error) or type(error).__name__)
