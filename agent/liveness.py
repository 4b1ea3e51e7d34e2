"""What an engine's own figures say of its use and of its health: idle, at work, or hung. Pure.

Hung = requests in flight while no counter of the engine moves. A health page that answers, or does not, is no proof:
engines were seen that answered it for an hour with a dead core, and others that did not while they worked.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from llmgw.wire import EngineUsage, LaunchSpec, MetricNames

_COUNTERS = ("_total", "_count", "_sum")
_ASKING = ("http", "received", "waiting", "queue", "arrival")
"""Counters with these in their names move when somebody asks, also while nothing is done."""


@dataclass(frozen=True)
class Activity:
    """An engine's figures. Moments are on the caller's clock."""

    in_flight: int
    tokens: float
    moved_s: float
    """When it was last in use."""
    work: Mapping[str, float]
    """Its counters of work done."""
    worked_s: float
    """When these last moved, or it had nothing to do."""
    seen_s: float
    """When they were read: what could not be read since, as by an engine that is too busy to answer, proves nothing."""

    def usage(self, now_s: float) -> EngineUsage:
        idle = 0.0 if self.in_flight else max(0.0, now_s - self.moved_s)
        return EngineUsage(in_flight=self.in_flight, idle_s=round(idle, 3))

    def why_hung(self, limit_s: float | None) -> str:
        """Why it counts as hung; empty while it does not."""
        if limit_s is None or not self.in_flight or self.seen_s - self.worked_s < limit_s:
            return ""
        return f"hung: no token progress with {self.in_flight} running requests for {limit_s:g} s"


def next_activity(
    before: Activity | None, figures: Mapping[str, float], launch: LaunchSpec, now_s: float
) -> Activity | None:
    """The activity after `figures` were read at `now_s`; None when the engine does not tell its running gauge."""
    names = launch.metrics
    if names.running is None or names.running not in figures:
        return before
    in_flight = round(figures[names.running] + figures.get(names.waiting or "", 0.0))
    tokens = figures.get(names.tokens_total or "", 0.0)
    work = work_done(figures, names)
    idle = before is not None and in_flight == 0 and before.tokens == tokens and before.in_flight == 0
    # Without any counter there is nothing to judge by.
    still = before is not None and before.in_flight > 0 and in_flight > 0 and bool(work) and before.work == work
    return Activity(
        in_flight=in_flight,
        tokens=tokens,
        moved_s=before.moved_s if idle and before is not None else now_s,
        work=work,
        worked_s=before.worked_s if still and before is not None else now_s,
        seen_s=now_s,
    )


def work_done(figures: Mapping[str, float], names: MetricNames) -> dict[str, float]:
    """The engine's counters that only work moves: tokens, steps, batches. Prefill moves some before any token does."""
    family = _family(names.tokens_total or names.running or "")
    return {
        name: value
        for name, value in figures.items()
        if name == names.tokens_total
        or (
            family
            and name.startswith(family)
            and name.endswith(_COUNTERS)
            and not any(word in name for word in _ASKING)
        )
    }


def _family(name: str) -> str:
    """`vllm:` of `vllm:num_requests_running`, `tgi_` of `tgi_batch_current_size`."""
    prefix, colon, _ = name.partition(":")
    return prefix + colon if colon else name.partition("_")[0] + "_"
