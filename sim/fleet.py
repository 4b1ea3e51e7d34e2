"""The real core in a simulated fleet: observe, decide, merge and lanes as the workflow runs them, over model nodes
and routers. Time jumps to the next moment at which anything can happen; packets may be late, lost, or lose their
answers.

Every step checks what must hold at every moment (`sim.promises`).
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from llmgw import accepted, carry, clock, record, table_log
from llmgw.carry import Parts, Seed
from llmgw.decide import decide
from llmgw.ids import NodeId, ReplicaId, RouterId
from llmgw.merge import accepted_catalog, merge
from llmgw.plan import Judgement, Plan, Verdict
from llmgw.table_log import Step
from llmgw.wire import Token
from llmgw.world import HeldCatalog, Input, InputKind, World
from sim.lanes import Lane, NodeLane, RouterLane
from sim.node import SimNode
from sim.router import SimRouter
from sim.watching import Eyes

NOTHING = Plan()
MAX_AHEAD = 12
"""Plans of one that goes on before anybody is told what they have so far, as in the workflow."""
MAX_PASSES = 200
"""More passes without the clock moving means that the loop spins."""


@dataclass
class Memory:
    """What the checks have seen before."""

    commanded: set[ReplicaId] = field(default_factory=set)
    """Stops that were commanded."""
    assigned: dict[ReplicaId, str] = field(default_factory=dict)
    """Every replica that ever was decided, and its node's boot then."""
    published: frozenset[ReplicaId] = frozenset()
    wished: frozenset[ReplicaId] = frozenset()
    """Replicas that were wished away."""
    displaced: set[ReplicaId] = field(default_factory=set)
    """Replicas that gave their place to another."""


@dataclass
class SimFleet:
    nodes: dict[NodeId, SimNode]
    routers: dict[RouterId, SimRouter]
    world: World
    now_s: float = 1_000.0
    """Time as it really passes."""
    ahead_s: float = 0.0
    """How far the clock that the plane lives by is ahead of it."""
    eager: bool = True
    """Whether everything is seen at once, and decided anew after whatever is recorded. Else changes are gathered as by
    the observer, decided is what calls for it in the workflow, and a plan that goes on is followed by the next before
    anybody is told. Both must do."""
    delay: Callable[[], float] = lambda: 0.0
    """Seconds that the next packet takes, each way."""
    cut: set[str] = field(default_factory=set)
    """Targets that hear and say nothing (a partition)."""
    lose_replies: set[str] = field(default_factory=set)
    """Targets that do what they are told and whose answers are lost."""
    double: set[str] = field(default_factory=set)
    """Targets that get every packet a second time, late."""
    blind: bool = False
    """A run has begun and nothing was seen in it yet: its first plan comes before its first observation."""
    paused_s: float | None = None
    """Since when the plane is frozen: packets go on, it sees and decides nothing."""
    log: tuple[Step, ...] = ()
    lanes: dict[str, Lane] = field(default_factory=dict)
    late: list[Lane] = field(default_factory=list)
    """Lanes that were abandoned; what they sent may still arrive."""
    story: list[str] = field(default_factory=list)
    checks: list[Callable[["SimFleet"], None]] = field(default_factory=list)
    seen: Memory = field(default_factory=Memory)
    verdicts: list[Verdict] = field(default_factory=list)
    arrivals: int = 0
    catalog_raw: object = None
    wake_s: float | None = None
    decided: World | None = None
    """The world in which the last plan left nothing to decide."""
    due: bool = True
    """Something has happened that calls for a decision."""
    ended: bool = False
    passes: int = 0

    def __post_init__(self) -> None:
        self.eyes = Eyes(self)

    @property
    def clock_s(self) -> float:
        """What the plane takes for the time."""
        return self.now_s + self.ahead_s

    @property
    def now_token(self) -> Token:
        """The newest token that was given."""
        w = self.world
        return Token(installation=w.installation, fleet=w.fleet, epoch=w.epoch, seq=w.seq)

    # --- people ---

    def give(self, kind: InputKind, name: str, *args: object) -> int:
        """Record an input and let the plane judge it, now or when it goes on; its arrival number."""
        self.arrivals += 1
        given = Input(self.arrivals, kind, name, list(args), self.clock_s)
        self.world, self.due = replace(self.world, inbox=(*self.world.inbox, given)), True
        self.settle()
        return given.arrival

    def send(self, kind: InputKind, name: str, *args: object) -> Verdict:
        """Give an input and run the pass that judges it."""
        arrival = self.give(kind, name, *args)
        return next(v for v in self.verdicts if v.arrival == arrival)

    def catalog(self, raw: Mapping[str, object]) -> Verdict:
        return self.send(InputKind.CATALOG, "replace-catalog", dict(raw))

    def order(self, name: str, **fields: object) -> Verdict:
        return self.send(InputKind.ORDER, name, fields)

    # --- the loop ---

    def settle(self) -> None:
        """Observe, plan and tell until nothing is left to do at this moment."""
        if self.paused_s is not None:
            return
        for _ in range(MAX_PASSES):
            if not self.blind:
                self._observe()
                if self._nothing_happened():
                    return
            if not self._decide():
                return
        raise AssertionError("the loop spins without the clock moving")

    def _nothing_happened(self) -> bool:
        """Whether nothing calls for a decision and no moment has come that the plan named: then the plane sleeps. A
        plan that names too late a moment, or leaves something undone, is found out so."""
        is_as_left = self.world is self.decided if self.eager else not self.due
        return is_as_left and (self.wake_s is None or self.clock_s < self.wake_s)

    def _decide(self) -> bool:
        """Plan, and tell whom it concerns; whether anything was decided."""
        blind, routers, nodes = self.blind, dict[RouterId, None](), dict[NodeId, None]()
        for number in range(1 if self.eager else MAX_AHEAD):
            plan = decide(self.world, self.clock_s)
            self.wake_s, self.due = plan.wake_at_s, plan.more
            if self.ended or (not blind and _is_nothing(plan)):
                self.decided = self.world
                if number == 0:
                    return False
                break
            self._merge(plan)
            self.decided = None if plan.more else self.world
            self.check()
            routers.update(dict.fromkeys(plan.push))
            nodes.update(dict.fromkeys(plan.kick))
            if not plan.more or plan.drop_endpoints:
                break
        for router in routers:
            self._lane(f"router/{router}").kick()
        for node in nodes:
            self._lane(f"node/{node}").kick()
        self._work()
        self.blind = self.blind and not blind
        return True

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end_s = self.now_s + seconds
        self.settle()
        while self.now_s < end_s:
            self.now_s = min(end_s, self._next_s())
            for node in self.nodes.values():
                node.advance(self.now_s)
            self._work()
            self.settle()

    def pause(self) -> None:
        self.paused_s = self.now_s if self.paused_s is None else self.paused_s

    def go_on(self) -> None:
        """The observer's clocks stood still with the plane: a silence is what was missed while it listened."""
        if self.paused_s is None:
            return
        missed_s, self.paused_s = self.now_s - self.paused_s, None
        self.eyes.skip(missed_s)
        self.settle()

    def set_clock_back(self, by_s: float) -> None:
        """The plane's clock is corrected. Timers that were set ring after as long as they were set for."""
        self.ahead_s -= by_s
        self.world = clock.set_back(self.world, by_s)
        self.wake_s = None if self.wake_s is None else self.wake_s - by_s
        self.decided, self.due = None, True

    def _next_s(self) -> float:
        """The next moment at which anything can happen."""
        moments = [lane.next_s for lane in (*self.lanes.values(), *self.late)]
        moments += [node.next_s for node in self.nodes.values()]
        moments += self.eyes.moments()
        moments += [self.wake_s - self.ahead_s if self.wake_s is not None else self.now_s + 1_000.0]
        return min(moment for moment in moments if moment > self.now_s)

    def _merge(self, plan: Plan) -> None:
        self.passes += 1
        found = accepted_catalog(plan.verdicts)
        catalog = None
        if found is not None:
            raw = next(i.raw for i in self.world.inbox if i.arrival == found.arrival)
            self.catalog_raw = raw[0] if isinstance(raw, list) else raw
            catalog = accepted.catalog_of(raw)
        before = self.world
        self.world = merge(before, plan, self.clock_s, catalog)
        if plan.table_change:
            step = Step(self.world.table_revision, before.table.digest, plan.table_change)
            self.log = table_log.append(self.log, step)
        for verdict in plan.verdicts:
            self._held(verdict, next((i for i in before.inbox if i.arrival == verdict.arrival), None))
        self.verdicts += plan.verdicts
        self.ended = self.ended or plan.ended
        self.story += [f"{event.at_s:.1f} {event.subject}: {event.text}" for event in plan.events]

    def _held(self, verdict: Verdict, given: Input | None) -> None:
        """What becomes of a catalog that removes too much, as the workflow keeps it."""
        if given is None or verdict.kind is not InputKind.CATALOG:
            return
        if verdict.judgement is Judgement.HELD:
            held = HeldCatalog(verdict.digest, given.raw, self.clock_s, verdict.text)
            same = self.world.held is not None and self.world.held.digest == held.digest
            self.world = self.world if same else replace(self.world, held=held)
        elif verdict.judgement is not Judgement.REFUSED:
            self.world = replace(self.world, held=None)

    def carry_over(self, spoil: Callable[[Parts], Parts] = lambda parts: parts) -> None:
        """Continue as new: only what is carried lives on, and lanes are abandoned. `spoil`: what becomes of it."""
        self.late += [lane for lane in self.lanes.values() if lane.is_busy]
        parts = spoil(_elsewhere(carry.pack(self.world, self.catalog_raw, {})))
        w = self.world
        seed = Seed(
            fleet=w.fleet,
            installation=w.installation,
            epoch=w.epoch,
            seq=w.seq,
            generation=w.generation,
            digest=w.digest,
            next_replica=w.next_replica,
            table_revision=w.table_revision,
            settling_since_s=w.settling_since_s,
            fenced_by=w.fenced_by,
            overtaken_by=w.overtaken_by,
        )
        self._begin(carry.unpack(seed, parts, self.clock_s).world)

    def restore(self, world: World) -> None:
        """Go on with another memory."""
        self.seen = Memory()
        self._begin(world)

    def _begin(self, world: World) -> None:
        """A new run: what was told before is told again."""
        self.world, self.lanes, self.log = world, {}, ()
        self.blind, self.due = True, True
        self.eyes.forget()

    def _observe(self) -> None:
        found = self.eyes.look()
        if found is not None:
            self.world, self.due = record.observed(self.world, found, self.clock_s), True

    # --- telling ---

    def _lane(self, target: str) -> Lane:
        if target not in self.lanes:
            kind, _, id_ = target.partition("/")
            made = NodeLane(self, target, NodeId(id_)) if kind == "node" else RouterLane(self, target, RouterId(id_))
            self.lanes[target] = made
        return self.lanes[target]

    def _work(self) -> None:
        """Deliver what is due."""
        for lane in (*self.lanes.values(), *self.late):
            lane.work()
        self.late = [lane for lane in self.late if lane.is_busy]

    def check(self) -> None:
        """Nothing is held against a run that has seen nothing yet: what it has commanded shows in the next pass too."""
        if self.blind:
            return
        for promise in self.checks:
            promise(self)


def _is_nothing(plan: Plan) -> bool:
    return plan.model_copy(update={"wake_at_s": None, "phase": ""}) == NOTHING


def _elsewhere(parts: Parts) -> Parts:
    """In bytes that this process has not handed on (`llmgw.handed_on`): they are read, as in another one."""
    return replace(parts, assignments=zlib.compress(zlib.decompress(parts.assignments), 1))
