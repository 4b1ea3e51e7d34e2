"""Publishing: from the decision until the router no longer picks an endpoint, beside a floor taken in the same run; and
a table of 8,000 endpoints told to real routers of three kinds, whole and by difference.

Both are counted from the moment at which the history has the order, so that what is compared is the way from a decision
to its effect. The floor is a workflow that does nothing but one activity with one PUT. Bytes are counted where they
leave.
`python -m bench.publish [--nodes 20] [--rounds 30] [--strict]`
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle

from bench.fleet.sizes import whole_device_models
from bench.latency import ANSWER_S, EDITED, QUIET_S
from bench.report import Target, Telling, finished, options, report, spread, telling
from bench.stage import Scale, Stage, now_ms, staged
from bench.traffic.pushes import all_large_pushes

MOST = 1.5
MOST_DELTA_BYTES = 2048
ENDPOINTS = 8000
LARGE_ROUNDS = 3
SAID = ("native", "haproxy")
"""Kinds that are told a difference in words; Envoy reads the file of a whole model."""
WITHDRAWS = b'"drop_endpoints":["'


async def withdrawals(nodes: int, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds from decision to withdrawn, and the floor's."""
    samples: list[float] = []
    floor: list[float] = []
    async with staged(Scale(nodes=nodes)) as stage:
        queue = stage.add_floor()
        noop = await stage.client.start_workflow("Floor", id=queue, task_queue=queue)
        whole = [*whole_device_models(nodes * 4 - 1), EDITED]
        await stage.apply(stage.catalog(whole))
        await stage.steady(300.0, QUIET_S)
        for _ in range(rounds):
            floor.append(await _floor(stage, noop))
            gone = stage.moments.next(
                lambda target, d: target == "router/r0" and bool(getattr(d, "drop_endpoints", ()))
            )
            await stage.fleet.signal_catalog(stage.catalog(whole[:-1]))
            at_ms = await asyncio.wait_for(gone, ANSWER_S)
            await stage.steady(quiet_s=QUIET_S)
            samples.append(_wall_ms(at_ms) - await _ordered_ms(stage.fleet.handle, "publish", WITHDRAWS))
            await stage.fleet.signal_catalog(stage.catalog(whole))
            await stage.steady(quiet_s=QUIET_S)
    return samples, floor


async def _floor(stage: Stage, noop: WorkflowHandle[Any, Any]) -> float:
    knocked = stage.moments.next(lambda target, _: target == "floor")
    await noop.signal("go", f"{stage.base}/floor/go")
    at_ms = await asyncio.wait_for(knocked, ANSWER_S)
    return _wall_ms(at_ms) - await _ordered_ms(noop, "put_once")


async def _ordered_ms(handle: WorkflowHandle[Any, Any], activity: str, holding: bytes = b"") -> float:
    """When the last such activity was ordered, by the history."""
    events = [e async for e in handle.fetch_history_events()]
    return _time_ms([e for e in events if _orders(e, activity, holding)][-1])


def _orders(event: HistoryEvent, activity: str, holding: bytes) -> bool:
    if event.event_type != EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
        return False
    order = event.activity_task_scheduled_event_attributes
    return order.activity_type.name == activity and holding in order.input.payloads[0].data


def _time_ms(event: HistoryEvent) -> float:
    return event.event_time.seconds * 1000 + event.event_time.nanos / 1e6


def _wall_ms(at_ms: float) -> float:
    """A moment of the stage's clock on the clock of the histories; both run on this machine."""
    return time.time() * 1000 - (now_ms() - at_ms)


async def run(sizes: Sequence[int], rounds: int, how: Telling) -> int:
    large = await all_large_pushes(ENDPOINTS, LARGE_ROUNDS)
    figures: dict[str, object] = {f"{ENDPOINTS} endpoints, {kind}": told for kind, told in large.items()}
    floors: dict[str, object] = {}
    ratios: dict[str, float] = {}
    targets = [
        Target(f"bytes of a difference of one replica, {kind}", large[kind]["delta"]["bytes"], MOST_DELTA_BYTES)
        for kind in SAID
        if kind in large
    ]
    for nodes in sizes:
        samples, floor = await withdrawals(nodes, rounds)
        floors[f"{nodes} nodes"] = spread(floor)
        figures[f"decided to withdrawn, {nodes} nodes"] = spread(samples)
        ratio = spread(samples)["p50_ms"] / spread(floor)["p50_ms"]
        ratios[f"decided to withdrawn, {nodes} nodes"] = ratio
        targets.append(Target(f"decided to withdrawn at {nodes} nodes, p50 / floor", ratio, MOST))
    return report("publish", figures=figures, floor=floors, ratios=ratios, targets=targets, how=how)


if __name__ == "__main__":
    given = options(__doc__, nodes=[20], rounds=30)
    finished(asyncio.run(run(given.nodes, given.rounds, telling(given))))
