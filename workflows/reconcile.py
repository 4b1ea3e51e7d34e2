"""ReconcileWorkflow: one execution per fleet, the only owner of its state.

Gather, decide, act: signals and updates only record; `observe` brings what changed; `plan` decides in a local
activity; lanes tell routers and nodes. This file holds order and retries and no rule of the world: workflow code is
frozen by every history in flight, so it branches on plans and activity results only. Never raises out of a handler,
never acts in a `finally`.

One coroutine gives every command. What happens is queued as news (`workflows.news`) and taken up between plans: a local
activity's result may come together with other events when it happens, and comes before them at replay, so nothing may
depend on their order. For the same reason no timer and no activity is ever cancelled.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
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
    from workflows.news import News, is_ordered
    from workflows.order_handlers import OrderHandlers
    from workflows.queries import Queries

CALL_LIMIT = timedelta(seconds=3)
ONCE = RetryPolicy(maximum_attempts=1)
PLAN_RETRY = RetryPolicy(maximum_attempts=2, initial_interval=timedelta(milliseconds=100))
OBSERVE_RETRY = RetryPolicy(initial_interval=timedelta(seconds=0.2), maximum_interval=timedelta(seconds=2))
PLAN_EVENTS, ORDER_EVENTS, CATALOG_EVENTS = 4, 4, 40
"""What each adds to a history; a catalog counts for its size (256 KB at most) as well."""
RETRY_PLAN_S = 10.0
BARRIER_S = 0.001

T = TypeVar("T")


@workflow.defn(name=names.WORKFLOW)
class ReconcileWorkflow(OrderHandlers, Queries):
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
        # Carried over by a version with another number of arguments, none of them is decoded by its type.
        self.state = FleetState(Seed.model_validate(seed), Parts(catalog, assignments, routes, rest, kept), _now_s())
        self._nodes: Lanes[NodeId] = Lanes()
        self._routers: Lanes[RouterId] = Lanes()
        self._news = News()
        self._wanted = True
        self._cancelled = False
        self._observing = False
        self._alarms: list[float] = []
        self._waiting: dict[int, asyncio.Future[Verdict]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._events = 0
        """About how many events this run has made, counted by what it did: the length of the history, asked at the same
        place, may differ between what happens and its replay."""
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
                if not is_ordered() and self._is_long():
                    await self._continue()
            except asyncio.CancelledError:
                self._cancelled = True
                self.state.end()
                self._wanted = True
        if self._cancelled:
            raise asyncio.CancelledError("the fleet has ended: everything is withdrawn, drained and stopped")

    # --- the loop ---

    async def _step(self) -> None:
        """Take up the news, give the commands that are due, decide; then wait for more."""
        if self._take_up_news() and is_ordered() and self._is_long():
            await self._continue()
        self._watch()
        self._run_lanes()
        if self._wanted:
            await self._decide()
        else:
            await workflow.wait_condition(lambda: self._wanted or bool(self._news))

    def _spawn(self, waiting: Coroutine[Any, Any, None]) -> None:
        """Wait for something beside the loop; it only appends to the news."""
        task = asyncio.create_task(waiting)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _note(self, happened: Callable[[], None], *, is_input: bool = False) -> None:
        self._news.add(workflow.info().get_current_history_length(), happened, is_input=is_input)

    def _take_up_news(self) -> bool:
        """Whether there were any."""
        news = self._news.next() if is_ordered() else self._news.everything()
        for happened in news:
            happened()
            self._wanted = True
        return bool(news)

    async def _decide(self) -> None:
        """One plan, merged and set going."""
        self._wanted = False
        self._events += PLAN_EVENTS
        plan = await self._plan()
        if plan is None:
            return
        self.state.merge(plan, _now_s())
        for router in plan.push:
            self._routers.kick(router)
        for node in plan.kick:
            self._nodes.kick(node)
        self._run_lanes()
        if plan.wake_at_s is not None:
            self._arm(plan.wake_at_s)
        if plan.more:
            self._wanted = True
        self._show(plan.phase)
        await self._answer()

    async def _answer(self) -> None:
        """Let updates whose verdict is there answer now, before any further command."""
        for arrival in sorted(self._waiting.keys() & self.state.verdicts.keys()):
            self._waiting.pop(arrival).set_result(self.state.verdicts[arrival])
        for _ in range(3):
            await asyncio.sleep(0)  # yields only: no timer

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
                summary=self.state.deciding(),
            )
            return plan
        except ActivityError as error:
            # Uncaught it would end the workflow. The next event, or the timer, tries again.
            self.state.plan_failed(cut(f"the plan could not be made: {error.cause or error}"))
            self._arm(_now_s() + RETRY_PLAN_S)
            return None

    def _arm(self, at_s: float) -> None:
        """A timer, unless one is set that rings no later. A later one may ring for nothing: that is harmless."""
        if not any(armed_s <= at_s for armed_s in self._alarms):
            self._alarms.append(at_s)
            self._events += 2
            self._spawn(self._ring(at_s))

    async def _ring(self, at_s: float) -> None:
        await workflow.sleep(max(0.001, at_s - _now_s()), summary="the next moment at which anything may change")
        self._note(lambda: self._alarms.remove(at_s))

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
        self._events += 3
        self._spawn(self._watched(handle))

    async def _watched(self, handle: "workflow.ActivityHandle[Observation]") -> None:
        observation: Observation | None
        try:
            observation = await handle
        except ActivityError:
            observation = None  # it is started anew
        self._note(lambda: self._observed(observation))

    def _observed(self, observation: Observation | None) -> None:
        self._observing = False
        if observation is not None:
            self.state.observed(observation, _now_s())

    # --- lanes ---

    def _run_lanes(self) -> None:
        """Routers first: a withdrawal is what others wait for."""
        for router in self._routers.due(MAX_BUSY - self._busy()):
            self._tell_router(router)
        for node in self._nodes.due(MAX_BUSY - self._busy()):
            self._tell_node(node)

    def _busy(self) -> int:
        return self._nodes.busy + self._routers.busy

    def _tell_node(self, node: NodeId) -> None:
        call = self.state.next_dispatch(node, _now_s())
        if call is None:
            return
        self._nodes.begin(node)
        failed = DispatchAnswer(outcome=CallOutcome.FAILED, text="no answer in time")

        def answered(answer: DispatchAnswer | None) -> None:
            self._nodes.end(node)
            self.state.dispatched(call, answer or failed, _now_s())

        self._call(names.DISPATCH, call, DispatchAnswer, batches.summary_of(self.state.world, call), answered)

    def _tell_router(self, router: RouterId) -> None:
        call = self.state.next_publish(router, _now_s())
        if call is None:
            return
        self._routers.begin(router)
        failed = PublishAnswer(outcome=CallOutcome.FAILED, text="no answer in time")

        def answered(answer: PublishAnswer | None) -> None:
            self._routers.end(router)
            self.state.published(call, answer or failed, _now_s())

        self._call(names.PUBLISH, call, PublishAnswer, batches.summary_of_push(call), answered)

    def _call(self, name: str, call: object, kind: type[T], summary: str, answered: Callable[[T | None], None]) -> None:
        """One attempt, 3 s; None when nothing came back. A retry would re-send old content."""
        handle: workflow.ActivityHandle[T] = workflow.start_activity(
            name, call, result_type=kind, start_to_close_timeout=CALL_LIMIT, retry_policy=ONCE, summary=summary
        )
        self._events += 3
        self._spawn(self._called(handle, answered))

    async def _called(self, handle: "workflow.ActivityHandle[T]", answered: Callable[[T | None], None]) -> None:
        answer: T | None
        try:
            answer = await handle
        except ActivityError:
            answer = None
        self._note(lambda: answered(answer))

    # --- carrying over ---

    def _is_long(self) -> bool:
        return self._events > self.state.seed.max_history

    async def _continue(self) -> None:
        """Give running calls 3 s, answer everybody who waits, and go on in a new run."""
        await self._calls_end()
        while await self._somebody_waits():
            await self._judge_only()
        handover.drop(workflow.info().run_id)
        seed, parts = self.state.carried()
        workflow.continue_as_new(
            args=[seed, parts.catalog, parts.assignments, parts.routes, parts.rest, parts.kept],
            memo=dict(workflow.memo()),
        )

    async def _somebody_waits(self) -> bool:
        """Whether anything is left to judge. A plan's result may come together with another input; the moment after
        which none is waited for has to be one that comes in the order of the history: a timer's."""
        if is_ordered():
            await workflow.sleep(BARRIER_S, summary="inputs that came meanwhile are judged first")
        while self._take_up_news():
            pass
        return bool(self.state.world.inbox) or not workflow.all_handlers_finished()

    async def _calls_end(self) -> None:
        """Wait for running calls, but not for ever: tokens and levels make it safe to abandon them."""
        grace = asyncio.create_task(workflow.sleep(CALL_LIMIT, summary="running calls may end"))
        while self._busy() and not grace.done():
            await workflow.wait_condition(lambda: grace.done() or bool(self._news))
            self._take_up_news()

    async def _judge_only(self) -> None:
        """Plan for the sake of the verdicts; what it wants told is derived anew by the next run."""
        plan = await self._plan()
        if plan is not None:
            self.state.merge(plan, _now_s())
        await self._answer()

    def _show(self, phase: str) -> None:
        """What Temporal's UI shows without opening a payload."""
        workflow.set_current_details(views.fleet_table(self.state.world, _now_s()))
        attributes = self._shown.changes(phase, self.state.world.generation, self.state.recent)
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
        now_s = _now_s()

        def refused() -> None:
            self._events += ORDER_EVENTS
            self.state.refuse(name, text, now_s)

        if is_ordered():
            self._note(refused, is_input=True)
        else:
            refused()

    def _take(self, kind: InputKind, name: str, args: tuple[Any, ...]) -> int:
        """Give it its place among the news; its arrival number."""
        arrived = self.state.arrived(kind, name, args, _now_s())

        def taken() -> None:
            self._events += CATALOG_EVENTS if kind is InputKind.CATALOG else ORDER_EVENTS
            self.state.take(arrived)

        if is_ordered():
            self._note(taken, is_input=True)
        else:
            taken()
            self._wanted = True
        return arrived.arrival

    async def _verdict(self, arrival: int) -> Verdict:
        self._waiting[arrival] = asyncio.get_running_loop().create_future()
        return await self._waiting[arrival]


def _now_s() -> float:
    return workflow.now().timestamp()
