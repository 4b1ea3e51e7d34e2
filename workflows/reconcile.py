"""ReconcileWorkflow: one execution per fleet, the only owner of its state.

Gather, decide, act: signals and updates only record; `observe` brings what changed; `plan` decides in a local
activity; lanes tell routers and nodes. This file holds order and retries and no rule of the world: workflow code is
frozen by every history in flight, so it branches on plans and activity results only. Never raises out of a handler,
never acts in a `finally`.

One coroutine gives every command. What happens is queued as news, and taken up with the result of a plan, which tells
what it has seen (`workflows.news`): a local activity's result may come together with other events when it happens, and
before them at replay, so nothing may depend on their order. For the same reason no timer and no activity is ever
cancelled.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from activities import handover
from llmgw import batches, views
from llmgw.calls import CallOutcome, DispatchAnswer, PublishAnswer, cut
from llmgw.carry import Parts, Seed
from llmgw.ids import NodeId, RouterId
from llmgw.observation import Observation
from llmgw.plan import Plan
from workflows import names, visibility
from workflows.fleet_state import FleetState
from workflows.inputs import Inputs
from workflows.lanes import MAX_BUSY, MAX_BUSY_BYTES, Lanes
from workflows.news import Happened, Preview, Weight
from workflows.queries import Queries

CALL_LIMIT = timedelta(seconds=3)
ONCE = RetryPolicy(maximum_attempts=1)
PLAN_RETRY = RetryPolicy(maximum_attempts=2, initial_interval=timedelta(milliseconds=100))
OBSERVE_RETRY = RetryPolicy(initial_interval=timedelta(seconds=0.2), maximum_interval=timedelta(seconds=2))
PLAN_EVENTS = 4
"""What a plan adds to a history, about."""
RETRY_PLAN_S = 10.0
MAX_PARTS = 7
"""Of an observation in several parts, without a decision in between."""
MAX_AHEAD, MAX_AHEAD_BUSY = 12, 2
"""Plans of one that goes on (`more`) before nodes are told what they have so far. While calls are under way, fewer: the
server keeps 100 events at most for a workflow that is at work, or takes its task away."""
BARRIER_S = 0.001
MAX_ROUNDS = 2
"""Of judging what keeps coming before a run is continued."""

T = TypeVar("T")


@workflow.defn(name=names.WORKFLOW)
class ReconcileWorkflow(Inputs, Queries):
    @workflow.init
    def __init__(
        self,
        seed: Seed,
        catalog: bytes = b"",
        assignments: bytes = b"",
        routes: bytes = b"",
        rest: bytes = b"",
        kept: bytes = b"",
    ) -> None:
        Inputs.__init__(self)
        # Carried over by a version with another number of arguments, none of them is decoded by its type.
        self.state = FleetState(Seed.model_validate(seed), Parts(catalog, assignments, routes, rest, kept), _now_s())
        self.first_arrival = self.state.arrivals
        self._nodes: Lanes[NodeId] = Lanes()
        self._routers: Lanes[RouterId] = Lanes()
        self._wanted = True
        self._cancelled = False
        self._observing = False
        self._parts = 0
        """Of an observation, taken up since the last decision."""
        self._waits = 0
        """Numbers what is waited for, in the order of the commands."""
        self._alarms: list[float] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._shown = visibility.Shown()

    @workflow.run
    async def run(
        self,
        seed: Seed,
        catalog: bytes = b"",
        assignments: bytes = b"",
        routes: bytes = b"",
        rest: bytes = b"",
        kept: bytes = b"",
    ) -> None:
        """Reconcile until the fleet ends. Cancelling ends it: withdraw, drain, stop, then closed."""
        del seed, catalog, assignments, routes, rest, kept
        while not self.state.ended:
            try:
                await self._step()
            except asyncio.CancelledError:
                self._cancelled = True
                self.state.end()
                self._wanted = True
        if self._cancelled:
            raise asyncio.CancelledError("the fleet has ended: everything is withdrawn, drained and stopped")

    # --- the loop ---

    async def _step(self) -> None:
        """Wait for something that calls for a decision; decide, and give the commands that are due."""
        if not self._wanted and not self.news:
            await workflow.wait_condition(lambda: bool(self.news))
        if self._is_long():
            await self._continue()
        plan = await self._decide()
        self._watch()
        self._run_lanes()
        if plan is not None and plan.more:
            self._go_on()

    def _spawn(self, awaited: Awaitable[T], happened: Callable[[T | None], Happened]) -> None:
        """Wait for something beside the loop; it becomes news, under a number that is its own from now on. None: what
        was called has failed."""
        self._waits += 1
        task = asyncio.create_task(self._waited(self._waits, awaited, happened))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _waited(self, number: int, awaited: Awaitable[T], happened: Callable[[T | None], Happened]) -> None:
        result: T | None
        try:
            result = await awaited
        except ActivityError:
            result = None
        self.news.add(number, happened(result))

    async def _decide(self) -> Plan | None:
        """Plan, again while a plan goes on; the last one, None when there is none.

        What a task commands leaves only when it ends, with the plans that are made in it; so those come first, and each
        node is told all of it at once. A withdrawal does not wait for that.
        """
        plan: Plan | None = None
        for _ in range(MAX_AHEAD_BUSY if self._busy() else MAX_AHEAD):
            plan = await self._merged()
            if plan is None or not plan.more or plan.drop_endpoints:
                break
        return plan

    async def _merged(self) -> Plan | None:
        """One plan, merged into what it was made on; its lanes are due."""
        self.length += PLAN_EVENTS
        plan = await self._plan()
        if plan is None or not plan.decided:
            return plan
        self._wanted = False
        self.state.merge(plan, _now_s())
        for router in plan.push:
            self._routers.kick(router)
        for node in plan.kick:
            self._nodes.kick(node)
        if plan.wake_at_s is not None:
            self._arm(plan.wake_at_s)
        self._show(plan.phase)
        await self.answer()
        return plan

    def _go_on(self) -> None:
        """The next plan is made in the next task, after what this one commands has left."""
        self.length += 2
        self._spawn(workflow.sleep(BARRIER_S, summary="the plan goes on"), lambda _: Happened())

    async def _plan(self) -> Plan | None:
        """A plan, with the news that it has seen taken up."""
        run_id, now_s = workflow.info().run_id, _now_s()
        preview = self.news.preview(self.state, now_s)
        handed = handover.Handed(preview.state.world, now_s, preview.seen, self._calls_for_a_decision())
        handover.put(run_id, handed)
        try:
            plan: Plan = await workflow.execute_local_activity(
                names.PLAN,
                run_id,
                result_type=Plan,
                start_to_close_timeout=timedelta(seconds=10),
                retry_policy=PLAN_RETRY,
                summary=preview.state.deciding() if handed.decides else "take up answers",
            )
        except ActivityError as error:
            # Uncaught it would end the workflow.
            self.state.plan_failed(cut(f"the plan could not be made: {error.cause or error}"))
            await workflow.sleep(RETRY_PLAN_S, summary="the plan is tried again")
            self._wanted = True
            return None
        if not self.news.has(plan.seen):
            await workflow.wait_condition(lambda: self.news.has(plan.seen))
        self._take_up(plan, preview)
        return plan

    def _calls_for_a_decision(self) -> bool:
        """Of nodes that took their commands, the last one does; of an observation its last part, but for a flood that
        never ends."""
        weights = self.news.weights()
        is_last = 0 < weights[Weight.ANSWER] >= self._nodes.busy
        is_flood = self._parts + weights[Weight.PART] > MAX_PARTS
        return self._wanted or weights[Weight.PLAN] > 0 or is_last or is_flood

    def _take_up(self, plan: Plan, preview: Preview) -> None:
        """What the plan has seen: the preview itself, unless this is a replay that knows of more by now."""
        happened = self.news.take(plan.seen)
        if preview.seen == plan.seen:
            self.state = preview.state
        else:
            self.state.at(_now_s())
            self._record(happened)
        self._settle(happened)
        parts = sum(one.weight is Weight.PART for one in happened)
        self._parts = 0 if plan.decided else self._parts + parts

    def _take_up_all(self) -> None:
        """Without a plan: at the end of a run, where nothing but the end depends on it."""
        happened = self.news.take_all()
        self.state.at(_now_s())
        self._record(happened)
        self._settle(happened)

    def _record(self, happened: Sequence[Happened]) -> None:
        for one in happened:
            one.record(self.state)

    def _settle(self, happened: Sequence[Happened]) -> None:
        for one in happened:
            one.settle()

    def _arm(self, at_s: float) -> None:
        """A timer, unless one is set that rings no later. A later one may ring for nothing: that is harmless."""
        if not any(armed_s <= at_s for armed_s in self._alarms):
            self._alarms.append(at_s)
            self.length += 2
            ring = workflow.sleep(max(0.001, at_s - _now_s()), summary="the next moment at which anything may change")
            self._spawn(ring, lambda _: Happened(settle=lambda: self._alarms.remove(at_s)))

    # --- observing ---

    def _watch(self) -> None:
        """Have one observer at work. It learns by itself when the targets change."""
        if self._observing:
            return
        self._observing = True
        handle: workflow.ActivityHandle[Observation] = workflow.start_activity(
            names.OBSERVE,
            self.state.observe_call(),
            result_type=Observation,
            start_to_close_timeout=timedelta(days=365),
            heartbeat_timeout=timedelta(seconds=2.5),
            retry_policy=OBSERVE_RETRY,
            summary=self.state.watching(),
        )
        self.length += 3

        def observed(observation: Observation | None) -> Happened:
            now_s = _now_s()
            if observation is None:
                return Happened(settle=self._look_again)  # it is started anew
            weight = Weight.PART if observation.more else Weight.PLAN
            return Happened(lambda state: state.observed(observation, now_s), self._look_again, weight)

        self._spawn(handle, observed)

    def _look_again(self) -> None:
        self._observing = False

    # --- lanes ---

    def _run_lanes(self) -> None:
        """Routers first: a withdrawal is what others wait for."""
        for router in self._routers.due(MAX_BUSY - self._busy()):
            self._tell_router(router)
        for node in self._nodes.due(MAX_BUSY - self._busy()):
            if self._routers.busy_bytes + self._nodes.busy_bytes < MAX_BUSY_BYTES:
                self._tell_node(node)
            else:
                self._nodes.kick(node)  # its turn comes when another's call has ended

    def _busy(self) -> int:
        return self._nodes.busy + self._routers.busy

    def _tell_node(self, node: NodeId) -> None:
        call = self.state.next_dispatch(node, _now_s())
        if call is None:
            return
        self._nodes.begin(node, len(call.model_dump_json()))
        failed = DispatchAnswer(outcome=CallOutcome.FAILED, text="no answer in time")

        def answered(answer: DispatchAnswer | None) -> Happened:
            now_s, weight = _now_s(), Weight.ANSWER if answer is not None and answer.is_plain() else Weight.PLAN
            return Happened(
                lambda state: state.dispatched(call, answer or failed, now_s), lambda: self._nodes.end(node), weight
            )

        self._call(names.DISPATCH, call, DispatchAnswer, batches.summary_of(self.state.world, call), answered)

    def _tell_router(self, router: RouterId) -> None:
        call = self.state.next_publish(router, _now_s())
        if call is None:
            return
        self._routers.begin(router, len(call.model_dump_json()))
        failed = PublishAnswer(outcome=CallOutcome.FAILED, text="no answer in time")

        def answered(answer: PublishAnswer | None) -> Happened:
            now_s = _now_s()
            return Happened(
                lambda state: state.published(call, answer or failed, now_s), lambda: self._routers.end(router)
            )

        self._call(names.PUBLISH, call, PublishAnswer, batches.summary_of_push(call), answered)

    def _call(
        self, name: str, call: object, kind: type[T], summary: str, answered: Callable[[T | None], Happened]
    ) -> None:
        """One attempt, 3 s; None when nothing came back. A retry would re-send old content."""
        handle: workflow.ActivityHandle[T] = workflow.start_activity(
            name, call, result_type=kind, start_to_close_timeout=CALL_LIMIT, retry_policy=ONCE, summary=summary
        )
        self.length += 3
        self._spawn(handle, answered)

    # --- carrying over ---

    def _is_long(self) -> bool:
        return self.length > self.state.seed.max_history

    async def _continue(self) -> None:
        """Give running calls 3 s, answer everybody who waits, and go on in a new run."""
        await self._calls_end()
        for rounds in itertools.count():
            if not await self._somebody_waits(rounds):
                break
            await self._judge_only()
        handover.drop(workflow.info().run_id)
        seed, parts = self.state.carried()
        workflow.continue_as_new(
            args=[seed, parts.catalog, parts.assignments, parts.routes, parts.rest, parts.kept],
            memo=dict(workflow.memo()),
        )

    async def _somebody_waits(self, rounds: int) -> bool:
        """Whether anything is left to judge. A plan's result may come together with another input; the moment after
        which none is waited for has to be one that comes in the order of the history: a timer's. Where inputs never
        cease it would never come: then signals are carried over unjudged, and updates are asked to come again."""
        self.closed = rounds >= MAX_ROUNDS
        await workflow.sleep(BARRIER_S, summary="inputs that came meanwhile are judged first")
        self._take_up_all()
        left = bool(self.state.world.inbox) and not self.closed
        return left or not workflow.all_handlers_finished()

    async def _calls_end(self) -> None:
        """Wait for running calls, but not for ever: tokens and levels make it safe to abandon them."""
        grace = asyncio.create_task(workflow.sleep(CALL_LIMIT, summary="running calls may end"))
        while self._busy() and not grace.done():
            await workflow.wait_condition(lambda: grace.done() or bool(self.news))
            self._take_up_all()

    async def _judge_only(self) -> None:
        """Plan for the sake of the verdicts; what it wants told is derived anew by the next run."""
        self._wanted = True
        plan = await self._plan()
        if plan is not None:
            self.state.merge(plan, _now_s())
        await self.answer()

    def _show(self, phase: str) -> None:
        """What Temporal's UI shows without opening a payload."""
        workflow.set_current_details(views.fleet_table(self.state.world, _now_s()))
        attributes = self._shown.changes(phase, self.state.world.generation, self.state.recent)
        if attributes and self.state.seed.search_attributes:
            workflow.upsert_search_attributes(attributes)


def _now_s() -> float:
    return workflow.now().timestamp()
