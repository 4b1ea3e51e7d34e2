"""Lanes over a bad network: one call at a time to a target, whose packets may be late, be lost, or lose their answer.

A packet that is later than the limit still arrives, after its lane has given it up: that is what tokens are for.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from llmgw import batches, record
from llmgw.calls import CallOutcome, DispatchAnswer, DispatchCall, PublishAnswer, PublishCall
from llmgw.ids import NodeId, RouterId
from llmgw.wire import BatchReply, ErrorReply, RouterTable, TablePatch, TableReply
from llmgw.world import World

if TYPE_CHECKING:
    from sim.fleet import SimFleet

LIMIT_S = 3.0
LOST = "no answer in time"


@dataclass
class _Packet:
    """Something under way: `arrive` when it is there, `answer` when its answer is back."""

    arrives_s: float
    arrive: Callable[[], None]
    answered_s: float
    answer: Callable[[], None]
    has_arrived: bool = False


@dataclass(eq=False)
class Lane(ABC):
    fleet: "SimFleet"
    target: str
    dirty: bool = False
    packet: _Packet | None = None
    late: list[_Packet] = field(default_factory=list)

    @property
    def is_busy(self) -> bool:
        return self.packet is not None or bool(self.late)

    @property
    def next_s(self) -> float:
        """When something of this lane happens next."""
        moments = [p.arrives_s for p in self.late]
        if self.packet is not None:
            moments.append(self.packet.answered_s if self.packet.has_arrived else self.packet.arrives_s)
            moments.append(self.packet.answered_s)
        return min((m for m in moments if m > self.fleet.now_s), default=math.inf)

    @property
    def is_current(self) -> bool:
        """Whether the run that started this lane still goes on."""
        return self.fleet.lanes.get(self.target) is self

    def kick(self) -> None:
        self.dirty = True
        if self.packet is None:
            self._send()
        self.work()

    def work(self) -> None:
        """Whatever has become due."""
        now_s = self.fleet.now_s
        for late in [p for p in self.late if p.arrives_s <= now_s]:
            self.late.remove(late)
            late.arrive()
        if (packet := self.packet) is None:
            return
        if not packet.has_arrived and packet.arrives_s <= now_s:
            packet.has_arrived = True
            packet.arrive()
            if self.target in self.fleet.double:
                self.late.append(replace(packet, arrives_s=now_s + 2.0))
        if packet.answered_s <= now_s and self.fleet.paused_s is None:
            self.packet = None
            if not packet.has_arrived:
                self.late.append(packet)
            if self.is_current:
                packet.answer()
                if self.dirty:
                    self._send()
                    self.work()

    def _send(self) -> None:
        self.dirty = False
        self.packet = self.next_packet()

    def times(self) -> tuple[float, float, bool]:
        """When a packet sent now arrives, when its lane goes on, and whether an answer can be back by then."""
        there_s, back_s = self.fleet.delay(), self.fleet.delay()
        now_s = self.fleet.now_s
        in_time = there_s + back_s <= LIMIT_S and self.target not in self.fleet.cut
        return now_s + there_s, now_s + (there_s + back_s if in_time else LIMIT_S), in_time

    @property
    def is_cut(self) -> bool:
        return self.target in self.fleet.cut

    @property
    def loses_reply(self) -> bool:
        return self.target in self.fleet.cut or self.target in self.fleet.lose_replies

    @abstractmethod
    def next_packet(self) -> _Packet | None:
        """What the target lacks now, on its way; its token is used up."""


class NodeLane(Lane):
    def __init__(self, fleet: "SimFleet", target: str, node: NodeId) -> None:
        super().__init__(fleet, target)
        self.node = node

    def next_packet(self) -> _Packet | None:
        call = batches.for_node(self.fleet.world, self.node)
        if call is None:
            return None
        self.fleet.world = record.sending(self.fleet.world, call, self.fleet.clock_s)
        arrives_s, answered_s, in_time = self.times()
        reply: list[BatchReply | ErrorReply] = []

        def arrive() -> None:
            if not self.is_cut:
                reply.append(self.fleet.nodes[self.node].commands(batches.command_batch(call), self.fleet.now_s))
                self.fleet.check()

        def answer() -> None:
            got = _answer_of(call, reply[0]) if reply and in_time and not self.loses_reply else None
            self._record(call, got or DispatchAnswer(outcome=CallOutcome.FAILED, text=LOST))

        return _Packet(arrives_s, arrive, answered_s, answer)

    def _record(self, call: DispatchCall, answer: DispatchAnswer) -> None:
        """Of nodes that took their commands only the last one calls for a decision, as in the workflow."""
        self.fleet.world = record.answered(self.fleet.world, call, answer, self.fleet.clock_s)
        others = (lane for lane in self.fleet.lanes.values() if isinstance(lane, NodeLane) and lane is not self)
        if not answer.is_plain() or all(lane.packet is None for lane in others):
            self.fleet.due = True


class RouterLane(Lane):
    def __init__(self, fleet: "SimFleet", target: str, router: RouterId) -> None:
        super().__init__(fleet, target)
        self.router = router

    def next_packet(self) -> _Packet | None:
        call = batches.for_router(self.fleet.world, self.fleet.log, self.router)
        if call is None:
            return None
        self.fleet.world = record.pushing(self.fleet.world, call, self.fleet.clock_s)
        arrives_s, answered_s, in_time = self.times()
        reply: list[PublishAnswer] = []
        sent = self.fleet.world

        def arrive() -> None:
            if not self.is_cut:
                reply.append(self._publish(call, sent))
                self.fleet.check()

        def answer() -> None:
            got = reply[0] if reply and in_time and not self.loses_reply else None
            lost = PublishAnswer(outcome=CallOutcome.FAILED, text=LOST)
            self.fleet.world = record.published(self.fleet.world, call, got or lost, self.fleet.clock_s)
            self.fleet.due = True

        return _Packet(arrives_s, arrive, answered_s, answer)

    def _publish(self, call: PublishCall, sent: World) -> PublishAnswer:
        """The difference where its base is held, else the whole table as it was when the call left."""
        router = self.fleet.routers[self.router]
        reply: TableReply | ErrorReply | None = None
        if call.delta is not None:
            reply = router.patch(TablePatch(token=call.token, **call.delta.model_dump()))
        if reply is None or (isinstance(reply, ErrorReply) and reply.code == "base_differs"):
            models, endpoints = tuple(sent.table.models.values()), tuple(sent.table.endpoints.values())
            whole = RouterTable(token=call.token, digest=sent.table.digest, models=models, endpoints=endpoints)
            reply = router.put(whole)
        if isinstance(reply, ErrorReply):
            return PublishAnswer(outcome=_outcome(reply), held=reply.held, text=reply.message)
        return PublishAnswer(
            outcome=CallOutcome.ANSWERED, revision=call.revision, digest=reply.digest, draining=reply.draining
        )


def _answer_of(call: DispatchCall, reply: BatchReply | ErrorReply) -> DispatchAnswer:
    if isinstance(reply, ErrorReply):
        return DispatchAnswer(outcome=_outcome(reply), held=reply.held, owner=reply.owner, text=reply.message)
    return batches.answer_of(call, reply)


def _outcome(reply: ErrorReply) -> CallOutcome:
    known = {"stale_token": CallOutcome.STALE, "foreign_owner": CallOutcome.FOREIGN}
    return known.get(reply.code, CallOutcome.FAILED)
