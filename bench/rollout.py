"""A whole fleet from nothing: how long until every start was accepted, and until everything is ready and published.

The floor is a workflow that fans out one activity with one POST to each node, in the same run.
`python -m bench.rollout [--nodes 125] [--rounds 3] [--strict]`
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from bench.fleet.sizes import full
from bench.report import Target, Telling, finished, options, report, spread, telling
from bench.stage import Scale, Stage, now_ms, staged

ACCEPTED, PUBLISHED = 1.5, 3.0
DEVICES = 8
"""And as many replicas, on each node."""


async def once(nodes: int) -> tuple[float, float, float]:
    """Floor, all accepted, all published, in ms."""
    async with staged(Scale(nodes=nodes)) as stage:
        queue = stage.add_floor()
        await stage.apply(stage.catalog([]))
        await stage.steady(60.0, 1.0)
        floor = await _floor(stage, queue, nodes)
        wanted = nodes * DEVICES
        begun = now_ms()
        await stage.fleet.signal_catalog(at_once(stage.catalog(full(nodes))))
        accepted = await _moment(lambda: sum(len(n.starts) for n in stage.skin.nodes.values()) >= wanted)
        (router,) = stage.skin.routers.values()
        published = await _moment(lambda: len(router.table.endpoints) >= wanted)
        return floor, accepted - begun, published - begun


def at_once(catalog: Mapping[str, Any]) -> Mapping[str, Any]:
    """The floor tells each node once. Engines that load by twos would be told by twos, each time when two are ready."""
    return {**catalog, "policy": {**catalog["policy"], "max_loading_per_node": DEVICES}}


async def _floor(stage: Stage, queue: str, nodes: int) -> float:
    for name in ("warm", "measured"):
        begun = now_ms()
        await stage.client.execute_workflow(
            "FanOut", args=[f"{stage.base}/floor", nodes], id=f"{queue}-{name}", task_queue=queue
        )
    return now_ms() - begun


async def _moment(holds: Callable[[], bool]) -> float:
    async with asyncio.timeout(120):
        while not holds():  # noqa: ASYNC110 - the simulated side has no event for it
            await asyncio.sleep(0.002)
    return now_ms()


async def run(nodes: int, rounds: int, how: Telling) -> int:
    rows = [await once(nodes) for _ in range(rounds)]
    floor, accepted, published = (spread(column) for column in zip(*rows, strict=True))
    ratios = {
        "accepted / floor": accepted["p50_ms"] / floor["p50_ms"],
        "published / floor": published["p50_ms"] / floor["p50_ms"],
    }
    targets = [Target(name, ratios[name], most) for name, most in zip(ratios, (ACCEPTED, PUBLISHED), strict=True)]
    figures = {"nodes": nodes, "replicas": nodes * DEVICES, "accepted": accepted, "published": published}
    return report("rollout", figures=figures, floor=floor, ratios=ratios, targets=targets, how=how)


if __name__ == "__main__":
    given = options(__doc__, nodes=125, rounds=3)
    finished(asyncio.run(run(given.nodes, given.rounds, telling(given))))
