"""What a fleet costs in which nothing happens: 1,000 nodes and 8,000 ready replicas, and a small fleet beside it.

Counted: history events of the workflow, CPU of the worker as a share of one core, its memory. Once in silence, once
with requests through the router (which tells how busy its endpoints are, as a router does).
`python -m bench.idle [--nodes 1000] [--seconds 600] [--requests 50] [--strict]`
"""

import asyncio
import random
from dataclasses import dataclass

from bench.fleet.sizes import full, whole_device_models
from bench.report import Target, Telling, finished, options, report, telling
from bench.stage import Scale, Stage, staged
from llmgw.ids import RouterId

SETTLED_S = 5.0
EVENTS, CORE, RSS_MIB, SMALL_CPU_S_PER_MINUTE = 10, 0.10, 200.0, 0.5


@dataclass(frozen=True, slots=True)
class Cost:
    """What a span of time cost."""

    events: int
    core: float
    """Share of one core."""
    rss_mib: float


async def cost(stage: Stage, seconds: float) -> Cost:
    """What the next `seconds` cost."""
    (worker,) = stage.workers
    run, events = await stage.history()
    used_s = worker.cpu_s()
    await asyncio.sleep(seconds)
    run_after, events_after = await stage.history()
    grown = events_after - events if run_after == run else events_after
    return Cost(grown, (worker.cpu_s() - used_s) / seconds, worker.rss_mib())


async def traffic(stage: Stage, per_s: float) -> None:
    """Requests that begin and end at the router, spread over its endpoints."""
    router = stage.skin.routers[RouterId("r0")]
    endpoints = sorted(router.table.endpoints)
    chance = random.Random(0)
    while True:
        replica = chance.choice(endpoints)
        router.begin(replica)
        await asyncio.sleep(1 / per_s)
        router.end(replica)
        stage.skin.tell("router/r0")


async def measure(nodes: int, seconds: float, per_s: float, small: bool) -> tuple[Cost, Cost]:
    """In silence, and with traffic."""
    async with staged(Scale(nodes=nodes)) as stage:
        await stage.apply(stage.catalog(whole_device_models(10) if small else full(nodes)))
        await stage.steady(300.0, SETTLED_S)
        silent = await cost(stage, seconds)
        requests = asyncio.create_task(traffic(stage, per_s))
        busy = await cost(stage, seconds)
        requests.cancel()
        return silent, busy


async def run(nodes: int, seconds: float, per_s: float, how: Telling) -> int:
    small, _ = await measure(2, min(seconds, 60.0), per_s, small=True)
    silent, busy = await measure(nodes, seconds, per_s, small=False)
    tenths = max(1.0, seconds / 600)
    targets = [
        *(
            Target(f"{name}: {what}", value, most)
            for name, seen in (("silent", silent), ("busy", busy))
            for what, value, most in (
                ("history events in ten minutes", seen.events, EVENTS * tenths),
                ("share of one core", seen.core, CORE),
                ("RSS in MiB", seen.rss_mib, RSS_MIB),
            )
        ),
        Target("small fleet: CPU seconds a minute", small.core * 60, SMALL_CPU_S_PER_MINUTE),
    ]
    figures = {
        "nodes": nodes,
        "replicas": nodes * 8,
        "seconds": seconds,
        **{
            name: {"events": seen.events, "core": round(seen.core, 4), "rss_mib": round(seen.rss_mib, 1)}
            for name, seen in (("silent", silent), ("busy", busy), ("small", small))
        },
    }
    return report("idle", figures=figures, floor={}, ratios={}, targets=targets, how=how)


if __name__ == "__main__":
    given = options(__doc__, nodes=1000, seconds=600.0, requests=50.0)
    finished(asyncio.run(run(given.nodes, given.seconds, given.requests, telling(given))))
