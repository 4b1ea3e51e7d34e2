"""Latency of the plane, beside a floor taken in the same run.

signal `replace-catalog` -> withdrawn at the router; signal -> start accepted by the agent; agent reports ready ->
router has it. The floor is a workflow that does nothing but one activity with one PUT per signal; its rounds are
interleaved with the plane's. Both workers are processes of their own.
`python -m bench.latency [--nodes 20 125 1000] [--rounds 50] [--strict]`
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from temporalio.client import WorkflowHandle

from bench.fleet.sizes import LARGE, whole_device_models
from bench.report import Target, Telling, finished, options, report, spread, telling
from bench.stage import Scale, Stage, now_ms, staged
from llmgw.wire import CommandBatch

QUIET_S = 0.4
"""Longer than the window in which observations are gathered: each sample begins in a quiet fleet."""
ANSWER_S = 30.0
MOST = {20: 1.5, 125: 1.8, LARGE: 2.5}
"""How many times the floor, by nodes."""

Samples = dict[str, list[float]]


def models(nodes: int) -> list[dict[str, Any]]:
    """Four replicas to a node; with 1,000 nodes eight. The last model is the one that is taken out and put back."""
    if nodes >= LARGE:
        return [*whole_device_models(nodes // 5, 40)[:-1], *whole_device_models(nodes // 5, 39)[-1:], EDITED]
    return [*whole_device_models(nodes * 4 - 1), EDITED]


EDITED = {**whole_device_models(1)[0], "name": "edited"}


async def measure(nodes: int, rounds: int) -> tuple[Samples, list[float]]:
    """Samples in ms by name, and the floor's."""
    samples: Samples = {"withdrawn": [], "start_accepted": [], "published": []}
    floor: list[float] = []
    async with staged(Scale(nodes=nodes)) as stage:
        queue = stage.add_floor()
        noop = await stage.client.start_workflow("Floor", id=queue, task_queue=queue)
        whole = models(nodes)
        await stage.apply(stage.catalog(whole))
        await stage.steady(300.0, QUIET_S)
        for _ in range(rounds):
            floor.append(await _floor(stage, noop))
            await asyncio.sleep(QUIET_S)  # else the end of the floor's own round is in the next sample
            await _round(stage, whole, samples)
    return samples, floor


async def _floor(stage: Stage, noop: WorkflowHandle[Any, Any]) -> float:
    knocked = stage.moments.next(lambda target, _: target == "floor")
    begun = now_ms()
    await noop.signal("go", f"{stage.base}/floor/go")
    return await asyncio.wait_for(knocked, ANSWER_S) - begun


async def _round(stage: Stage, whole: Sequence[Mapping[str, Any]], samples: Samples) -> None:
    """Take the last model out, and put it back."""
    (router,) = stage.skin.routers.values()
    all_ = len(router.table.endpoints)
    # By what the router holds: it may be told a difference or, by a new run of the workflow, the whole table.
    gone = stage.moments.next(lambda target, _: target == "router/r0" and len(router.table.endpoints) < all_)
    begun = now_ms()
    await stage.fleet.signal_catalog(stage.catalog(whole[:-1]))
    samples["withdrawn"].append(await asyncio.wait_for(gone, ANSWER_S) - begun)
    await stage.steady(quiet_s=QUIET_S)
    accepted = stage.moments.next(_starts)
    routed = stage.moments.next(lambda target, _: target == "router/r0" and len(router.table.endpoints) == all_)
    begun = now_ms()
    await stage.fleet.signal_catalog(stage.catalog(whole))
    at = await asyncio.wait_for(accepted, ANSWER_S)
    samples["start_accepted"].append(at - begun)
    # The simulated engines are ready at once: the report leaves with the acceptance.
    samples["published"].append(await asyncio.wait_for(routed, ANSWER_S) - at)
    await stage.steady(quiet_s=QUIET_S)


def _starts(_: str, document: BaseModel) -> bool:
    return isinstance(document, CommandBatch) and any(command.kind == "start" for command in document.commands)


async def run(sizes: Sequence[int], rounds: int, how: Telling) -> int:
    figures: dict[str, object] = {}
    floors: dict[str, object] = {}
    ratios: dict[str, float] = {}
    targets: list[Target] = []
    for nodes in sizes:
        samples, floor = await measure(nodes, rounds)
        base = spread(floor)
        floors[f"{nodes} nodes"] = base
        figures[f"{nodes} nodes"] = {name: spread(times) for name, times in samples.items()}
        for name, times in samples.items():
            ratio = spread(times)["p50_ms"] / base["p50_ms"]
            ratios[f"{name} at {nodes} nodes"] = ratio
            targets.append(Target(f"{name} at {nodes} nodes, p50 / floor", ratio, MOST.get(nodes, MOST[LARGE])))
    return report("latency", figures=figures, floor=floors, ratios=ratios, targets=targets, how=how)


if __name__ == "__main__":
    given = options(__doc__, nodes=[20, 125, LARGE], rounds=50)
    finished(asyncio.run(run(given.nodes, given.rounds, telling(given))))
