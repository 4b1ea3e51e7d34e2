"""The acting worker is killed, or frozen and thawed, while another stands by: how long until the next decision.

Decided is when the agents have been told the next change: a model is taken out in the moment of the kill. A frozen
worker's late calls must be refused, and the routers' tables may never shrink by more than that model.
`python -m bench.failover [--nodes 20 1000] [--kills 20] [--freezes 2] [--strict]`
"""

import asyncio
import signal
from collections.abc import Sequence

from bench.fleet.sizes import LARGE, full, whole_device_models
from bench.report import Target, Telling, finished, options, report, spread, telling
from bench.stage import Scale, Stage, now_ms, staged
from llmgw.ids import RouterId

FROZEN_S = 20.0
KILLED_MS, KILLED_LARGE_MS, FROZEN_MS = 6_000.0, 7_000.0, 12_000.0
EDITED = whole_device_models(1, prefix="edited")


async def measure(nodes: int, kills: int, freezes: int) -> tuple[list[float], list[float], int]:
    """ms to the next decision after each kill and each freeze, and the fewest endpoints that were ever routed."""
    killed: list[float] = []
    frozen: list[float] = []
    async with staged(Scale(nodes=nodes), workers=2) as stage:
        models = full(nodes) if nodes >= LARGE else whole_device_models(nodes * 4)
        models[-1] = {**models[-1], "replicas": models[-1]["replicas"] - 1} if nodes >= LARGE else models[-1]
        await stage.apply(stage.catalog([*models, *EDITED]))
        await stage.steady(300.0, 1.0)
        watch = Watch(stage)
        watching = asyncio.create_task(watch.run())
        there = True
        for number in range(kills + freezes):
            there = not there
            wanted = stage.catalog([*models, *EDITED] if there else models)
            acting = await _acting(stage)
            if number < kills:
                killed.append(await _next_decision(stage, wanted, acting, signal.SIGKILL, there))
                stage.add_worker()
            else:
                frozen.append(await _next_decision(stage, wanted, acting, signal.SIGSTOP, there))
                await asyncio.sleep(max(0.0, FROZEN_S - frozen[-1] / 1000))
                stage.workers[acting].send(signal.SIGCONT)
            await stage.steady(60.0, 1.0)
        watching.cancel()
        return killed, frozen, watch.fewest


async def _acting(stage: Stage) -> int:
    """Which of our workers observes and so acts for the fleet now."""
    status = await stage.fleet.query("status")
    pid = int(str(status["acting"]).rpartition(":")[2])
    return next(number for number, worker in enumerate(stage.workers) if worker.pid == pid)


async def _next_decision(stage: Stage, wanted: object, acting: int, number: signal.Signals, there: bool) -> float:
    """ms from the signal to the worker until a router was told of the change."""
    router = stage.skin.routers[RouterId("r0")]
    before = len(router.table.endpoints)

    def is_told(target: str, _: object) -> bool:
        held = len(router.table.endpoints)
        return target == "router/r0" and (held > before if there else held < before)

    told = stage.moments.next(is_told)
    begun = now_ms()
    stage.workers[acting].send(number)
    await stage.fleet.signal_catalog(wanted)
    return await asyncio.wait_for(told, 60) - begun


class Watch:
    """The fewest endpoints that the router ever had."""

    def __init__(self, stage: Stage) -> None:
        self._router = stage.skin.routers[RouterId("r0")]
        self.fewest = len(self._router.table.endpoints)

    async def run(self) -> None:
        while True:
            self.fewest = min(self.fewest, len(self._router.table.endpoints))
            await asyncio.sleep(0.01)


async def run(sizes: Sequence[int], kills: int, freezes: int, how: Telling) -> int:
    figures: dict[str, object] = {}
    targets: list[Target] = []
    for nodes in sizes:
        killed, frozen, fewest = await measure(nodes, kills, freezes)
        lost = (nodes * 8 if nodes >= LARGE else nodes * 4) - (nodes >= LARGE) - fewest
        figures[f"{nodes} nodes"] = {"killed": spread(killed), "frozen": spread(frozen), "fewest_endpoints": fewest}
        most = KILLED_LARGE_MS if nodes >= LARGE else KILLED_MS
        targets += [
            Target(f"{nodes} nodes: kill to next decision, worst in ms", max(killed), most),
            Target(f"{nodes} nodes: freeze to next decision, worst in ms", max(frozen), FROZEN_MS),
            Target(f"{nodes} nodes: endpoints that went without reason", max(0, lost), 0),
        ]
    return report("failover", figures=figures, floor={}, ratios={}, targets=targets, how=how)


if __name__ == "__main__":
    given = options(__doc__, nodes=[20, LARGE], kills=20, freezes=2)
    finished(asyncio.run(run(given.nodes, given.kills, given.freezes, telling(given))))
