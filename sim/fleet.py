"""The real core in a simulated fleet: observe, decide, merge and lanes as the workflow runs them, over model nodes
and routers, with a clock that only moves when nothing is left to do.

Every step checks what must hold at every moment (`sim.promises`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from llmgw import batches, record, table_log
from llmgw.calls import CallOutcome, DispatchAnswer, DispatchCall, PublishAnswer, PublishCall
from llmgw.catalog import Catalog
from llmgw.decide import decide
from llmgw.ids import NodeId, RouterId
from llmgw.merge import accepted_catalog, merge
from llmgw.observation import Observation, SilenceSeen
from llmgw.plan import Plan, Verdict
from llmgw.silence import silence_level
from llmgw.table import TableChange
from llmgw.table_log import Step
from llmgw.wire import BatchReply, CommandBatch, CommandResult, ErrorReply, Outcome, RouterTable, Start, TablePatch
from llmgw.world import Input, InputKind, SilenceLevel, World
from sim.node import SimNode
from sim.router import SimRouter

MAX_PASSES = 60
"""More passes without the clock moving means that the loop spins."""


@dataclass
class SimFleet:
    nodes: dict[NodeId, SimNode]
    routers: dict[RouterId, SimRouter]
    world: World
    now_s: float = 1_000.0
    cut: set[str] = field(default_factory=set)
    """Targets that hear and say nothing (a partition)."""
    lose_replies: set[str] = field(default_factory=set)
    """Targets that do what they are told and whose answers are lost."""
    log: tuple[Step, ...] = ()
    told: dict[str, object] = field(default_factory=dict)
    heard_s: dict[str, float] = field(default_factory=dict)
    levels: dict[str, SilenceLevel] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)
    checks: list[Callable[["SimFleet"], None]] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    arrivals: int = 0
    wake_s: float | None = None
    passes: int = 0

    # --- people ---

    def send(self, kind: InputKind, name: str, *args: object) -> Verdict:
        """Give an input and run the pass that judges it."""
        self.arrivals += 1
        given = Input(self.arrivals, kind, name, list(args), self.now_s)
        self.world = replace(self.world, inbox=(*self.world.inbox, given))
        self.settle()
        return next(v for v in self.verdicts if v.arrival == given.arrival)

    def catalog(self, raw: Mapping[str, object]) -> Verdict:
        return self.send(InputKind.CATALOG, "replace-catalog", dict(raw))

    def order(self, name: str, **fields: object) -> Verdict:
        return self.send(InputKind.ORDER, name, fields)

    # --- the loop ---

    def settle(self) -> None:
        """Observe, plan and tell until nothing is left to do at this moment."""
        for _ in range(MAX_PASSES):
            news = self._observe()
            plan = decide(self.world, self.now_s)
            if plan == Plan(wake_at_s=plan.wake_at_s) and not news:
                self.wake_s = plan.wake_at_s
                return
            self._merge(plan)
            self._tell(plan)
            self.check()
        raise AssertionError("the loop spins without the clock moving:\n" + "\n".join(self.story[-30:]))

    def run(self, seconds: float, step_s: float = 1.0) -> None:
        """Let time pass."""
        end_s = self.now_s + seconds
        while self.now_s < end_s - 1e-9:
            self.now_s = min(end_s, self.now_s + step_s)
            for node in self.nodes.values():
                node.advance(self.now_s)
            self.settle()

    def _merge(self, plan: Plan) -> None:
        self.passes += 1
        accepted = accepted_catalog(plan.verdicts)
        catalog = None
        if accepted is not None:
            raw = next(i.raw for i in self.world.inbox if i.arrival == accepted.arrival)
            catalog = Catalog.model_validate(raw[0] if isinstance(raw, list) else raw)
        before = self.world
        self.world = merge(before, plan, self.now_s, catalog)
        if plan.changes_table:
            change = TableChange(plan.put_models, plan.drop_models, plan.put_endpoints, plan.drop_endpoints)
            self.log = table_log.append(self.log, Step(self.world.table_revision, before.table.digest, change))
        self.verdicts += plan.verdicts
        self.story += [f"{event.at_s:.0f} {event.subject}: {event.text}" for event in plan.events]

    # --- seeing ---

    def _observe(self) -> bool:
        reports = [n.report() for id_, n in self.nodes.items() if self._hears(f"node/{id_}")]
        states = [r.state() for id_, r in self.routers.items() if self._hears(f"router/{id_}")]
        new_nodes = tuple(r for r in reports if self._is_news(f"node/{r.node}", r))
        new_routers = tuple(s for s in states if self._is_news(f"router/{s.router}", s))
        silences = tuple(self._silences())
        if not (new_nodes or new_routers or silences):
            return False
        observation = Observation(pool="sim", cursor=0, nodes=new_nodes, routers=new_routers, silence=silences)
        self.world = record.observed(self.world, observation, self.now_s)
        return True

    def _hears(self, target: str) -> bool:
        if target in self.cut:
            return False
        self.heard_s[target] = self.now_s
        return True

    def _is_news(self, target: str, value: object) -> bool:
        if self.told.get(target) == value:
            return False
        self.told[target] = value
        return True

    def _silences(self) -> Iterable[SilenceSeen]:
        targets = [*(f"node/{n}" for n in self.nodes), *(f"router/{r}" for r in self.routers)]
        policy = None if self.world.catalog is None else self.world.catalog.policy
        limits = (10.0, 60.0) if policy is None else (policy.suspect_after_s, policy.lost_after_s)
        for target in targets:
            since_s = self.heard_s.setdefault(target, self.now_s)
            others = sum(1 for t in targets if t != target and self.heard_s.get(t, self.now_s) > since_s)
            level = silence_level(self.now_s - since_s, others, len(targets) - 1, *limits)
            if level is not self.levels.get(target, SilenceLevel.HEARD):
                self.levels[target] = level
                yield SilenceSeen(target=target, level=level, silent_s=self.now_s - since_s)

    # --- telling ---

    def _tell(self, plan: Plan) -> None:
        for router in plan.push:
            push = batches.for_router(self.world, self.log, router)
            if push is not None:
                self.world = record.pushing(self.world, push, self.now_s)
                self.world = record.published(self.world, push, self._publish(push), self.now_s)
        for node in plan.kick:
            call = batches.for_node(self.world, node)
            if call is not None:
                self.world = record.sending(self.world, call, self.now_s)
                self.world = record.answered(self.world, call, self._dispatch(call), self.now_s)

    def _publish(self, call: PublishCall) -> PublishAnswer:
        target, router = f"router/{call.router}", self.routers[call.router]
        lost = PublishAnswer(outcome=CallOutcome.FAILED, text="no answer in time")
        if target in self.cut:
            return lost
        reply = None
        if call.delta is not None:
            reply = router.patch(TablePatch(token=call.token, **call.delta.model_dump()))
        if reply is None or (isinstance(reply, ErrorReply) and reply.code == "base_differs"):
            models, endpoints = self.world.table.models.values(), self.world.table.endpoints.values()
            digest = self.world.table.digest
            whole = RouterTable(token=call.token, digest=digest, models=tuple(models), endpoints=tuple(endpoints))
            reply = router.put(whole)
        if target in self.lose_replies:
            return lost
        if isinstance(reply, ErrorReply):
            return PublishAnswer(outcome=CallOutcome(_outcome(reply)), held=reply.held, text=reply.message)
        revision = self.world.table_revision
        return PublishAnswer(
            outcome=CallOutcome.ANSWERED, revision=revision, digest=reply.digest, draining=reply.draining
        )

    def _dispatch(self, call: DispatchCall) -> DispatchAnswer:
        target, node = f"node/{call.node}", self.nodes[call.node]
        lost = DispatchAnswer(outcome=CallOutcome.FAILED, text="no answer in time")
        if target in self.cut:
            return lost
        reply = node.commands(_batch(call), self.now_s)
        self.check()
        if target in self.lose_replies:
            return lost
        if isinstance(reply, BatchReply):
            refused = tuple(r for r in reply.results if isinstance(r, CommandResult) and r.outcome is Outcome.REFUSED)
            return DispatchAnswer(outcome=CallOutcome.ANSWERED, refused=refused, held=reply.token)
        return DispatchAnswer(outcome=CallOutcome(_outcome(reply)), held=reply.held, owner=reply.owner)

    def check(self) -> None:
        for promise in self.checks:
            promise(self)


def _outcome(reply: ErrorReply) -> str:
    return {"stale_token": "stale", "foreign_owner": "foreign"}.get(reply.code, "failed")


def _batch(call: DispatchCall) -> CommandBatch:
    starts = tuple(
        Start(
            replica=o.replica,
            model=o.model,
            fingerprint=o.fingerprint,
            attempt=o.attempt,
            launch=call.specs[o.spec],
            claims=o.claims,
            host_memory_mib=o.host_memory_mib,
        )
        for o in call.starts
    )
    return CommandBatch(token=call.token, node=call.node, commands=(*call.stops, *starts))
