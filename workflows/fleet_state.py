"""The workflow's whole state: the world, what is kept for people, and how both are carried over.

Only replaces and records; every decision is the plan's. One value of it lives per run.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llmgw import accepted, batches, carry, clock, kept_catalogs, members, record, table_log
from llmgw.calls import DispatchAnswer, DispatchCall, ObserveCall, PublishAnswer, PublishCall, cut
from llmgw.carry import Parts, Seed
from llmgw.catalog import Catalog
from llmgw.catalog_input import sent_catalog
from llmgw.ids import NodeId, RouterId
from llmgw.merge import accepted_catalog, merge
from llmgw.observation import Observation
from llmgw.plan import Judgement, Plan, Verdict
from llmgw.recent import Recent
from llmgw.sentences import counted
from llmgw.table_log import Step
from llmgw.world import Event, HeldCatalog, Input, InputKind, World

KEPT_VERDICTS = 20


class FleetState:
    def __init__(self, seed: Seed, parts: Parts, now_s: float) -> None:
        opened = carry.unpack(seed, parts, now_s)
        self.seed = seed
        self.world: World = opened.world
        if (ahead_s := clock.newest_s(self.world) - now_s) > clock.LEAST_S:
            self.world = clock.set_back(self.world, ahead_s)
        self._now_s = now_s
        if seed.settle and opened.world.settling_since_s is None:
            self.world = replace(self.world, settling_since_s=now_s)
        self.catalog_raw = opened.catalog_raw
        self.kept = kept_catalogs.unpack(parts.kept)
        if self.catalog_raw is not None and not self.kept.catalogs and not self.kept.dropped:
            self._keep(None)  # the state was carried by a version that kept none
        self.arrivals = seed.arrivals
        self.log: tuple[Step, ...] = ()
        self.verdicts: dict[int, Verdict] = {}
        kept = Recent.model_validate(opened.extra.get("recent") or {})
        unreadable = {**kept.unreadable, **opened.unreadable}
        self.recent = kept.model_copy(update={"unreadable": unreadable, "shed": opened.shed})
        self.pool = ""
        self.cursor = 0
        self.targets = 1
        self.ended = False

    # --- time ---

    def at(self, now_s: float) -> None:
        """Workflow time as it is, before anything is decided or recorded. Where it was set back since the last time,
        all that is remembered goes back with it. News tell when they happened, which may be long ago by the time they
        are recorded: that is no clock set back."""
        if (ahead_s := self._now_s - now_s) > clock.LEAST_S:
            self.world = clock.set_back(self.world, ahead_s)
        self._now_s = now_s

    # --- inputs ---

    def take(self, arrived: Input) -> None:
        """Record what came, unjudged."""
        self.arrivals = max(self.arrivals, arrived.arrival)
        self.world = replace(self.world, inbox=(*self.world.inbox, arrived))

    def refuse(self, name: str, text: str, now_s: float) -> None:
        """Something came that cannot even be recorded as an input (an unknown signal, an undecodable one)."""
        self.recent = self.recent.with_refusal(name, (text,), now_s)

    # --- plans ---

    def merge(self, plan: Plan, now_s: float) -> None:
        """Apply a plan by key. Revisions of the table are logged, so that routers get differences."""
        inputs = {i.arrival: i for i in self.world.inbox}
        before = self.world
        self.world = merge(before, plan, now_s, self._accepted(plan, inputs))
        self.at(now_s)  # not before: what the plan brings is of the time at which it was made
        if self.world.generation != before.generation:
            self._keep(now_s)
        if plan.table_change:
            step = Step(self.world.table_revision, before.table.digest, plan.table_change)
            self.log = table_log.append(self.log, step)
        for verdict in plan.verdicts:
            self._judged(verdict, inputs.get(verdict.arrival), now_s)
        self.recent = self.recent.with_plan(plan, now_s)
        self.ended = self.ended or plan.ended
        if plan.targets_changed:
            self.targets += 1

    def _keep(self, at_s: float | None) -> None:
        """The catalog in force is one of those that can be gone back to."""
        world = self.world
        self.kept = kept_catalogs.keep(self.kept, self.catalog_raw, world.generation, world.digest, at_s)

    def _accepted(self, plan: Plan, inputs: Mapping[int, Input]) -> Catalog | None:
        """The catalog that the plan put in force, from the raw value that was recorded."""
        verdict = accepted_catalog(plan.verdicts)
        recorded = None if verdict is None else inputs.get(verdict.arrival)
        if recorded is None:
            return None
        try:
            raw = dict(sent_catalog(recorded.raw).raw)
            catalog = accepted.catalog_of(recorded.raw)
        except ValueError as error:
            # Only later, stricter code can refuse what a plan once accepted: at replay that must not raise.
            self.recent = self.recent.with_refusal(recorded.name, (cut(f"no longer understood: {error}"),), 0.0)
            return self.world.catalog
        self.catalog_raw = raw
        return catalog

    def _judged(self, verdict: Verdict, recorded: Input | None, now_s: float) -> None:
        self.verdicts = {**dict(list(self.verdicts.items())[-KEPT_VERDICTS:]), verdict.arrival: verdict}
        if recorded is None or verdict.kind is not InputKind.CATALOG:
            return
        if verdict.judgement in (Judgement.ACCEPTED, Judgement.UNCHANGED):
            self.world = replace(self.world, held=None)
        elif verdict.judgement is Judgement.HELD:
            held = HeldCatalog(verdict.digest, recorded.raw, now_s, verdict.text)
            same = self.world.held is not None and self.world.held.digest == held.digest
            self.world = self.world if same else replace(self.world, held=held)

    def deciding(self) -> str:
        """What the next plan is made for, in words."""
        names = [item.name for item in self.world.inbox]
        return f"judge {', '.join(names[:5])}, then decide" if names else "decide on what changed"

    def plan_failed(self, problem: str) -> None:
        """No plan came back at all: nothing changes but the alarm."""
        self.recent = self.recent.model_copy(update={"safe_mode": problem})

    def end(self) -> None:
        """The fleet ends: from now on every plan withdraws, drains and stops."""
        self.world = replace(self.world, ending=True)

    # --- observation ---

    def observe_call(self) -> ObserveCall:
        return ObserveCall(fleet=self.world.fleet, pool=self.pool, cursor=self.cursor, targets=self.targets)

    def watching(self) -> str:
        """What the observe activity watches, in words."""
        nodes, routers = len(members.nodes(self.world)), len(members.routers(self.world))
        return f"watch {counted(nodes, 'node')} and {counted(routers, 'router')}"

    def observed(self, observation: Observation, at_s: float) -> None:
        if observation.pool != self.pool:
            self.world = record.forget_silence(self.world)
        self.pool, self.cursor = observation.pool, observation.cursor
        past_s = self._past(at_s)
        self.recent = self.recent.with_acting(observation.acting, past_s)
        for node in observation.nodes:
            seen = self.world.seen.get(node.node)
            if seen is not None and seen.instance != node.instance:
                what = "its machine was started anew" if seen.boot != node.boot else "its agent was started anew"
                self.recent = self.recent.with_event(Event(past_s, f"node/{node.node}", what))
        self.world = record.observed(self.world, observation, past_s)

    def _past(self, at_s: float) -> float:
        """When something happened, told by a clock that may have been set back since."""
        return min(at_s, self._now_s)

    # --- lanes ---

    def next_dispatch(self, node: NodeId, now_s: float) -> DispatchCall | None:
        """What this node has to be told now; its token is used up by asking."""
        self.at(now_s)
        call = batches.for_node(self.world, node)
        if call is not None:
            self.world = record.sending(self.world, call, now_s)
        return call

    def dispatched(self, call: DispatchCall, answer: DispatchAnswer, at_s: float) -> None:
        self.world = record.answered(self.world, call, answer, self._past(at_s))
        self.recent = self.recent.with_tasks(call.node, answer.tasks, self._past(at_s))

    def next_publish(self, router: RouterId, now_s: float) -> PublishCall | None:
        """What this router lacks now; its token is used up by asking."""
        self.at(now_s)
        call = batches.for_router(self.world, self.log, router)
        if call is not None:
            self.world = record.pushing(self.world, call, now_s)
        return call

    def published(self, call: PublishCall, answer: PublishAnswer, at_s: float) -> None:
        self.world = record.published(self.world, call, answer, self._past(at_s))

    def moment(self) -> str:
        """The same as long as nothing of the world has changed but by the passing of time."""
        world = self.world
        return f"{self.pool}:{self.cursor}:{self.arrivals}:{world.seq}:{world.table_revision}:{world.next_replica}"

    # --- carrying over ---

    def carried(self) -> tuple[Seed, Parts]:
        """Everything the next run needs."""
        world = self.world
        seed = self.seed.model_copy(
            update={
                "epoch": world.epoch,
                "seq": world.seq,
                "generation": world.generation,
                "digest": world.digest,
                "settle": False,
                "ending": world.ending,
                "arrivals": self.arrivals,
                "next_replica": world.next_replica,
                "table_revision": world.table_revision,
                "settling_since_s": world.settling_since_s,
                "fenced_by": world.fenced_by,
                "overtaken_by": world.overtaken_by,
                "runs": self.seed.runs + 1,
            }
        )
        extra: Mapping[str, Any] = {"recent": self.recent.model_dump(mode="json")}
        parts = carry.pack(world, self.catalog_raw, extra)
        return seed, replace(parts, kept=kept_catalogs.pack(self.kept))
