"""What this worker has counted since it started: plans, commands, pushes, inputs, and how long things took.

Fed by an interceptor around the activities, so that no activity knows of it. Each plan and each call is made by one
worker: sums over all workers are right. Labels come from closed lists alone, never from a catalog: nothing goes stale.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities import handover
from llmgw.calls import CallOutcome, DispatchAnswer, DispatchCall, PublishAnswer
from llmgw.lasting import Span, ended_by
from llmgw.plan import Plan
from llmgw.wire import Outcome
from workflows import names

QUICK_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
SLOW_S = (0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600)


class Meters:
    """One per worker process."""

    def __init__(self, fleet: str) -> None:
        self.registry = CollectorRegistry()
        self._fleet = fleet
        self.plans = self._counter("llmgw_plans_total", "Plans made, by result: made or safe_mode", "result")
        self.plan_seconds = self._histogram("llmgw_plan_duration_seconds", "How long a plan takes to make", QUICK_S)
        self.inputs = self._counter("llmgw_inputs_total", "Catalogs and orders judged", "kind", "judgement")
        self.commands = self._counter("llmgw_commands_total", "Commands told to nodes", "kind", "result")
        self.pushes = self._counter("llmgw_pushes_total", "Tables told to routers", "form", "result")
        self.push_seconds = self._histogram(
            "llmgw_push_duration_seconds", "From sending a table to its answer", QUICK_S
        )
        self.spans: Mapping[Span, Histogram] = {
            Span.READY: self._histogram(
                "llmgw_replica_ready_seconds", "From the decision to place a replica until it is published", SLOW_S
            ),
            Span.DRAIN: self._histogram(
                "llmgw_replica_drain_seconds", "From withdrawing a replica until its stop is told", SLOW_S
            ),
            Span.STOP: self._histogram(
                "llmgw_replica_stop_seconds", "From withdrawing a replica until it is proven gone", SLOW_S
            ),
            Span.WAKE: self._histogram(
                "llmgw_model_wake_seconds", "From the wish to wake a model until its first endpoint", SLOW_S
            ),
        }

    def count(self, counter: Counter, *labels: str, by: int = 1) -> None:
        counter.labels(self._fleet, *labels).inc(by)

    def observe(self, histogram: Histogram, seconds: float) -> None:
        histogram.labels(self._fleet).observe(seconds)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, ["fleet", *labels], registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        made = Histogram(name, text, ["fleet"], buckets=buckets, registry=self.registry)
        made.labels(self._fleet)  # there from the start, so that a rate can be taken of the first
        return made


# --- what is counted of each activity ------------------------------------------------------------------------------


def _plan(meters: Meters, args: tuple[Any, ...], plan: Plan, seconds: float) -> None:
    meters.observe(meters.plan_seconds, seconds)
    meters.count(meters.plans, "safe_mode" if plan.safe_mode else "made")
    for verdict in plan.verdicts:
        meters.count(meters.inputs, verdict.kind, verdict.judgement)
    handed = handover.get(args[0])
    for lasted in ended_by(handed.world, plan, handed.now_s):
        meters.observe(meters.spans[lasted.span], lasted.seconds)


def _dispatch(meters: Meters, args: tuple[Any, ...], answer: DispatchAnswer, seconds: float) -> None:
    del seconds
    call: DispatchCall = args[0]
    kinds = {**{s.replica: "start" for s in call.starts}, **{s.replica: "stop" for s in call.stops}}
    refusals = {r.subject: r.refusal.code for r in answer.refused if r.refusal is not None}
    for subject, kind in kinds.items():
        meters.count(meters.commands, kind, _result(answer.outcome, refusals.get(subject)))
    results = {task.task: task.result for task in answer.tasks}
    for task, command in call.tasks.items():
        result = results.get(task)
        refused = (
            result.refusal.code if result is not None and result.outcome is Outcome.REFUSED and result.refusal else None
        )
        meters.count(meters.commands, command.kind, _result(answer.outcome, refused))


def _result(outcome: CallOutcome, refused: str | None) -> str:
    """`accepted`, the agent's code of refusal, or how the whole call went."""
    if outcome is not CallOutcome.ANSWERED:
        return str(outcome)
    return "accepted" if refused is None else str(refused)


def _publish(meters: Meters, args: tuple[Any, ...], answer: PublishAnswer, seconds: float) -> None:
    del args
    meters.observe(meters.push_seconds, seconds)
    meters.count(meters.pushes, "whole" if answer.full else "difference", str(answer.outcome))


COUNTED: Mapping[str, Callable[[Meters, tuple[Any, ...], Any, float], None]] = {
    names.PLAN: _plan,
    names.DISPATCH: _dispatch,
    names.PUBLISH: _publish,
}


class Metering(Interceptor):
    """Counts what the activities answer; never changes it, and never fails them."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Around(next, self._meters)


class _Around(ActivityInboundInterceptor):
    def __init__(self, following: ActivityInboundInterceptor, meters: Meters) -> None:
        super().__init__(following)
        self._meters = meters

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        began_s = time.monotonic()
        answer = await super().execute_activity(input)
        counted = COUNTED.get(activity.info().activity_type)
        if counted is not None:
            try:
                counted(self._meters, tuple(input.args), answer, time.monotonic() - began_s)
            except Exception:
                activity.logger.exception("what this activity did is not counted")
        return answer
