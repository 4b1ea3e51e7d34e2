"""How long things took that a plan brings to their end: what the worker's histograms are fed with. Decides nothing."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from llmgw.plan import Plan
from llmgw.world import World


class Span(StrEnum):
    READY = "ready"  # from the decision to place a replica until it is published
    DRAIN = "drain"  # from the wish to stop, when it is withdrawn, until the Stop is told
    STOP = "stop"  # from that wish until the agent has proven it gone
    WAKE = "wake"  # from the wish to wake a model until its first endpoint


@dataclass(frozen=True, slots=True)
class Lasted:
    span: Span
    seconds: float


def ended_by(world: World, plan: Plan, now_s: float) -> Iterator[Lasted]:
    """Every span that ends with `plan`, made for `world` at `now_s`."""
    assigned = {a.replica: a for a in plan.assign}
    for endpoint in plan.put_endpoints:
        assignment = assigned.get(endpoint.id) or world.assignments.get(endpoint.id)
        if endpoint.id not in world.table.endpoints and assignment is not None and not assignment.adopted:
            yield Lasted(Span.READY, max(0.0, now_s - assignment.created_s))
    for assignment in plan.assign:
        before = world.assignments.get(assignment.replica)
        was_told = before is not None and before.stop is not None and before.stop.commanded
        if assignment.stop is not None and assignment.stop.commanded and not was_told:
            yield Lasted(Span.DRAIN, max(0.0, now_s - assignment.stop.since_s))
    for replica in plan.gone:
        gone = world.assignments.get(replica)
        if gone is not None and gone.stop is not None and gone.stop.commanded:
            yield Lasted(Span.STOP, max(0.0, now_s - gone.stop.since_s))
    yield from _woken(world, plan, now_s)


def _woken(world: World, plan: Plan, now_s: float) -> Iterator[Lasted]:
    had = {e.models[0] for e in world.table.endpoints.values() if e.models}
    has = {e.models[0] for e in plan.put_endpoints if e.models}
    for model, asked_s in sorted(world.wishes.wakes.items()):
        if model in has - had:
            yield Lasted(Span.WAKE, max(0.0, now_s - asked_s))
