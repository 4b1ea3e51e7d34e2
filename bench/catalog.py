"""A large catalog is replaced: 500 models with 2,000 aliases, all of them others than before, within the size limit.

Measured is the time from the signal until the router holds the table with every new alias. The floor is a workflow
that does one activity with one PUT for the same number of bytes by signal, in turns, in the same run.
`python -m bench.catalog [--models 500] [--rounds 10] [--strict]`
"""

import asyncio
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from temporalio.client import WorkflowHandle

from bench.fleet.sizes import whole_device_models
from bench.report import Target, Telling, finished, options, report, spread, telling
from bench.stage import LIMIT_S, Scale, Stage, now_ms, staged
from llmgw.ids import RouterId

ALIASES = 4
PER_NODE = 8
ABOVE_MS = 1_000.0
ROUTER = RouterId("r0")
QUIET_S = 0.5


def models(count: int, edition: int) -> Sequence[Mapping[str, Any]]:
    """Models of one replica each, with aliases that no other edition has."""
    return [
        {**model, "aliases": [f"{model['name']}-e{edition}-{n}" for n in range(ALIASES)]}
        for model in whole_device_models(count)
    ]


async def replaced_ms(stage: Stage, catalog: Mapping[str, Any], edition: int) -> float:
    told = stage.moments.next(lambda target, _: target == f"router/{ROUTER}" and _is_told(stage, edition))
    begun = now_ms()
    await stage.fleet.signal_catalog(catalog)
    return await asyncio.wait_for(told, LIMIT_S) - begun


def _is_told(stage: Stage, edition: int) -> bool:
    held = stage.skin.routers[ROUTER].table.models
    return all(any(alias.startswith(f"{name}-e{edition}-") for alias in model.aliases) for name, model in held.items())


async def floor_ms(stage: Stage, noop: WorkflowHandle[Any, Any], catalog: Mapping[str, Any]) -> float:
    knocked = stage.moments.next(lambda target, _: target == "floor")
    begun = now_ms()
    await noop.signal("go", args=[f"{stage.base}/floor/go", catalog])
    return await asyncio.wait_for(knocked, LIMIT_S) - begun


async def measure(count: int, rounds: int) -> tuple[list[float], list[float], int, float]:
    """ms of replacing and of the floor, the catalog's size in bytes, and the worker's CPU seconds for a replacement."""
    took: list[float] = []
    floor: list[float] = []
    async with staged(Scale(nodes=-(-count // PER_NODE))) as stage:
        queue = stage.add_floor()
        noop = await stage.client.start_workflow("Floor", id=queue, task_queue=queue)
        await stage.apply(stage.catalog(models(count, 0)))
        await stage.steady(120.0, QUIET_S)
        used_s = stage.workers[0].cpu_s()
        for edition in range(1, rounds + 1):
            catalog = stage.catalog(models(count, edition))
            floor.append(await floor_ms(stage, noop, catalog))
            took.append(await replaced_ms(stage, catalog, edition))
            await stage.steady(quiet_s=QUIET_S)
        cpu_s = (stage.workers[0].cpu_s() - used_s) / rounds
    return took, floor, len(json.dumps(catalog, separators=(",", ":"))), cpu_s


async def run(count: int, rounds: int, how: Telling) -> int:
    took, floor, size, cpu_s = await measure(count, rounds)
    figures = {"models": count, "aliases": count * ALIASES, "bytes": size, "worker_cpu_s": round(cpu_s, 3)}
    above_ms = statistics.median(took) - statistics.median(floor)
    return report(
        "catalog",
        figures={**figures, "replaced": spread(took)},
        floor={"replaced": spread(floor)},
        ratios={"replaced": statistics.median(took) / statistics.median(floor)},
        targets=[Target("replaced, ms above the floor", above_ms, ABOVE_MS)],
        how=how,
    )


if __name__ == "__main__":
    given = options(__doc__, models=500, rounds=10)
    finished(asyncio.run(run(given.models, given.rounds, telling(given))))
