"""ReconcileWorkflow: one execution per fleet, the only owner of its state.

Gather, decide, act: signals and updates only record; `observe` brings what changed; `plan` decides in a local
activity; lanes tell routers and nodes. This file holds order and retries and no rule of the world: workflow code is
frozen by every history in flight, so it branches on plans and activity results only. Never raises out of a handler,
never acts in a `finally`.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities import handover
    from llmgw import batches, views
    from llmgw.calls import CallOutcome, DispatchAnswer, PublishAnswer, cut
    from llmgw.carry import Parts, Seed
    from llmgw.ids import NodeId, RouterId
    from llmgw.observation import Observation
    from llmgw.plan import Plan, Verdict
    from llmgw.world import InputKind
    from workflows import names, visibility
    from workflows.fleet_state import FleetState
    from workflows.lanes import MAX_BUSY, Lanes
    from workflows.order_handlers import OrderHandlers
    from workflows.queries import Queries

CALL_LIMIT = timedelta(seconds=3)
ONCE = RetryPolicy(maximum_attempts=1)
PLAN_RETRY = RetryPolicy(maximum_attempts=2, initial_interval=timedelta(milliseconds=100))
OBSERVE_RETRY = RetryPolicy(initial_interval=timedelta(seconds=0.2), maximum_interval=timedelta(seconds=2))
MAX_HISTORY_BYTES = 1_000_000
RETRY_PLAN_S = 10.0

T = TypeVar("T")


@workflow.defn(name=names.WORKFLOW)
class ReconcileWorkflow(OrderHandlers, Queries):
    @workflow.init
    def __init__(
        self, seed: Seed, catalog: bytes = b"", assignments: bytes = b"", routes: bytes = b"", rest: bytes = b""
    ) -> None:
        self.state = FleetState(seed, Parts(catalog, assignments, routes, rest), _now_s())
        slots = asyncio.Semaphore(MAX_BUSY)
        self._nodes: Lanes[NodeId] = Lanes(self._tell_node, slots)
        self._routers: Lanes[RouterId] = Lanes(self._tell_router, slots)
        self._wanted = True
        self._stopping = False
        self._cancelled = False
        self._lane_work_at = -1
        self._alarm_s: float | None = None
        self._alarm: asyncio.Task[None] | None = None
        self._observing: workflow.ActivityHandle[Observation] | None = None
        self._shown = visibility.Shown()

    @workflow.run
    async def run(
        self, seed: Seed, catalog: bytes = b"", assignments: bytes = b"", routes: bytes = b"", rest: bytes = b""
    ) -> None:
        """Reconcile until the fleet ends. Cancelling ends it: withdraw, drain, stop, then closed."""
        del seed, catalog, assignments, routes, rest
        watch = asyncio.create_task(self._watch())
        while not self.state.ended:
            try:
                await self._pass()
                if self._is_long():
                    await self._continue()
            except asyncio.CancelledError:
                self._cancelled = True
                self.state.end()
                self._wanted = True
        self._stopping = True
        watch.cancel()
        if self._cancelled:
            raise asyncio.CancelledError("the fleet has ended: everything is withdrawn, drained and stopped")

    # --- the loop ---

    async def _pass(self) -> None:
        await workflow.wait_condition(lambda: self._wanted)
        if self._lane_work_at == workflow.info().get_current_history_length():
            # Lane work of this very task is held until a local activity ends: let it leave first.
            await workflow.sleep(timedelta(milliseconds=1), summary="let commands leave before the next plan")
        await self._decide()

    async def _decide(self) -> None:
        """One plan, merged and set going."""
        self._wanted = False
        plan = await self._plan()
        if plan is None:
            return
        self.state.merge(plan, _now_s())
        for router in plan.push:
            self._routers.kick(router)
        for node in plan.kick:
            self._nodes.kick(node)
        if plan.wake_at_s is not None:
            self._arm(plan.wake_at_s)
        if plan.targets_changed and self._observing is not None:
            self._observing.cancel()
        if plan.more:
            self._wanted = True
        self._show()

    async def _plan(self) -> Plan | None:
        run_id = workflow.info().run_id
        handover.put(run_id, self.state.world, _now_s())
        try:
            plan: Plan = await workflow.execute_local_activity(
                names.PLAN,
                run_id,
                result_type=Plan,
                start_to_close_timeout=timedelta(seconds=10),
                retry_policy=PLAN_RETRY,
            )
            return plan
        except ActivityError as error:
            # Uncaught it would end the workflow. The next event, or the timer, tries again.
            self.state.plan_failed(cut(f"the plan could not be made: {error.cause or error}"))
            self._arm(_now_s() + RETRY_PLAN_S)
            return None

    def _arm(self, at_s: float) -> None:
        """One timer, moved only when its moment gets earlier."""
        if self._alarm_s is not None and self._alarm_s <= at_s:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_s = at_s
        self._alarm = asyncio.create_task(self._ring(at_s))

    async def _ring(self, at_s: float) -> None:
        await workflow.sleep(max(0.001, at_s - _now_s()), summary="the next moment at which anything may change")
        if self._alarm_s == at_s:
            self._alarm_s = None
            self._alarm = None
        self._wanted = True

    # --- observing ---

    async def _watch(self) -> None:
        while not self._stopping:
            call = self.state.observe_call()
            self._observing = workflow.start_activity(
                names.OBSERVE,
                call,
                result_type=Observation,
                start_to_close_timeout=timedelta(days=365),
                heartbeat_timeout=timedelta(seconds=2.5),
                retry_policy=OBSERVE_RETRY,
                summary=self.state.watching(),
            )
            try:
                observation = await self._observing
            except (ActivityError, asyncio.CancelledError):
                continue  # the targets changed: observe the new ones; or the run ends
            self.state.observed(observation, _now_s())
            self._wanted = True

    # --- lanes ---

    async def _tell_node(self, node: NodeId) -> None:
        call = self.state.next_dispatch(node, _now_s())
        if call is None:
            return
        failed = DispatchAnswer(outcome=CallOutcome.FAILED, text="no answer in time")
        summary = batches.summary_of(self.state.world, call)
        answer = await self._call(names.DISPATCH, call, DispatchAnswer, summary)
        self.state.dispatched(call, answer or failed, _now_s())
        self._wanted = True

    async def _tell_router(self, router: RouterId) -> None:
        call = self.state.next_publish(router, _now_s())
        if call is None:
            return
        failed = PublishAnswer(outcome=CallOutcome.FAILED, text="no answer in time")
        answer = await self._call(names.PUBLISH, call, PublishAnswer, batches.summary_of_push(call))
        self.state.published(call, answer or failed, _now_s())
        self._wanted = True

    async def _call(self, name: str, call: object, answer: type[T], summary: str) -> T | None:
        """One attempt, 3 s; None when nothing came back. A retry would re-send old content."""
        self._lane_work_at = workflow.info().get_current_history_length()
        try:
            answered: T = await workflow.execute_activity(
                name,
                call,
                result_type=answer,
                start_to_close_timeout=CALL_LIMIT,
                retry_policy=ONCE,
                summary=summary,
            )
        except ActivityError:
            return None
        return answered

    # --- carrying over ---

    def _is_long(self) -> bool:
        info = workflow.info()
        length = info.get_current_history_length()
        if length < self.state.seed.max_history // 2:
            return False  # a run this short gains nothing by a new one, whatever is suggested
        return (
            info.is_continue_as_new_suggested()
            or length > self.state.seed.max_history
            or info.get_current_history_size() > MAX_HISTORY_BYTES
        )

    async def _continue(self) -> None:
        """Give running lanes 3 s, answer everybody who waits, and go on in a new run."""
        self._stopping = True
        self._nodes.close()
        self._routers.close()
        await self._lanes_end()
        while not workflow.all_handlers_finished():
            await workflow.wait_condition(lambda: bool(self.state.world.inbox) or workflow.all_handlers_finished())
            if self.state.world.inbox:
                await self._decide()
        handover.drop(workflow.info().run_id)
        seed, parts = self.state.carried()
        workflow.continue_as_new(
            args=[seed, parts.catalog, parts.assignments, parts.routes, parts.rest], memo=dict(workflow.memo())
        )

    async def _lanes_end(self) -> None:
        """Wait for running calls, but not for ever: tokens and levels make it safe to abandon them."""
        grace = asyncio.create_task(workflow.sleep(CALL_LIMIT, summary="running calls may end"))
        await workflow.wait_condition(lambda: grace.done() or not (self._nodes.busy or self._routers.busy))
        grace.cancel()

    def _show(self) -> None:
        """What Temporal's UI shows without opening a payload."""
        workflow.set_current_details(views.fleet_table(self.state.world, _now_s()))
        attributes = self._shown.changes(self.state.world, self.state.recent, _now_s())
        if attributes and self.state.seed.search_attributes:
            workflow.upsert_search_attributes(attributes)

    # --- handlers: they record and return ---

    @workflow.signal(name=names.REPLACE_CATALOG, description="Replace the whole catalog: one JSON object")
    def replace_catalog(self, *args: Any) -> None:
        self._take(InputKind.CATALOG, names.REPLACE_CATALOG, args)

    @workflow.update(
        name=names.APPLY_CATALOG,
        description="Replace the whole catalog and answer with its generation, digest and differences, or all problems",
    )
    async def apply_catalog(self, *args: Any) -> Verdict:
        return await self._verdict(self._take(InputKind.CATALOG, names.APPLY_CATALOG, args))

    @workflow.signal(dynamic=True, description="Anything else is refused, visibly")
    def unknown_signal(self, name: str, args: Sequence[RawValue]) -> None:
        del args
        self.note_refusal(name, "no such signal; `temporal workflow metadata` lists them")

    def note_refusal(self, name: str, text: str) -> None:
        """Also called by the guard interceptor for what a handler could not take."""
        self.state.refuse(name, text, _now_s())

    def _take(self, kind: InputKind, name: str, args: tuple[Any, ...]) -> int:
        self._wanted = True
        return self.state.take(kind, name, args, _now_s())

    async def _verdict(self, arrival: int) -> Verdict:
        await workflow.wait_condition(lambda: arrival in self.state.verdicts)
        return self.state.verdicts[arrival]


def _now_s() -> float:
    return workflow.now().timestamp()
