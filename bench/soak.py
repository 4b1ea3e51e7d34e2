"""Mixed chaos against one fleet: everything that dies, hangs, comes back or is edited, for as long as is asked.

Promises are checked at the simulated side with each document that arrives there; after the chaos the fleet must
converge to its last catalog. The worker's memory is looked at in the middle and at the end.
`python -m bench.soak [--minutes 30] [--nodes 12] [--seed 1] [--strict]`; `--histories DIR` keeps the runs for replay;
`--only "ACT, ACT"` leaves it at these.
"""

import asyncio
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.fleet.chaos import Chaos
from bench.fleet.watch import Promises
from bench.report import Target, Telling, finished, options, report, telling
from bench.stage import Scale, Stage, now_ms, patiently, staged, until

CONVERGE_S = 180.0
MEMORY_GROWTH = 1.3


async def measure(
    minutes: float, nodes: int, seed: int, histories: str, only: Sequence[str]
) -> tuple[Mapping[str, Any], list[Target]]:
    async with staged(Scale(nodes=nodes, devices=4, routers=2, start_s=0.5, stop_s=0.3), workers=2) as stage:
        promises = Promises(stage.skin)
        stage.moments.also = promises.heard
        chaos = Chaos(stage, promises, random.Random(seed), only)
        await stage.apply(chaos.catalog())
        await stage.steady()
        ends_ms = now_ms() + minutes * 60_000
        middle_mib = 0.0
        while now_ms() < ends_ms:
            await chaos.next()
            if not middle_mib and now_ms() > ends_ms - minutes * 30_000:
                middle_mib = _memory(stage)
        begun = now_ms()
        await patiently(lambda: stage.apply(chaos.catalog()), CONVERGE_S)
        await until(lambda: _serves(stage, chaos.replicas_wanted), CONVERGE_S, 0.2)
        converged_s = (now_ms() - begun) / 1000
        if histories:
            await _keep(stage, Path(histories))
        end_mib = _memory(stage)
    for broken in promises.broken[:20]:
        print(f"broken: {broken}", file=sys.stderr)
    figures = {
        "minutes": minutes,
        "nodes": nodes,
        "seed": seed,
        "acts": dict(chaos.done),
        "starts": promises.starts,
        "stops": promises.stops,
        "converged_s": round(converged_s, 2),
        "rss_mib": [round(middle_mib, 1), round(end_mib, 1)],
    }
    targets = [
        Target("broken promises", len(promises.broken), 0),
        Target("memory at the end / in the middle", end_mib / middle_mib if middle_mib else 1.0, MEMORY_GROWTH),
    ]
    return figures, targets


async def _serves(stage: Stage, wanted: int) -> bool:
    """Exactly what is wanted runs, and every router has exactly that."""
    ready = {r for node in stage.skin.nodes.values() for r, e in node.engines.items() if e.state == "ready"}
    everything = sum(len(node.engines) for node in stage.skin.nodes.values())
    routed = all(set(router.table.endpoints) == ready for router in stage.skin.routers.values())
    return len(ready) == wanted == everything and routed


def _memory(stage: Stage) -> float:
    return max(worker.rss_mib() for worker in stage.workers if worker.process.poll() is None)


async def _keep(stage: Stage, folder: Path) -> None:
    """Every run of the workflow as JSON, as `Replayer` takes it."""
    found = stage.client.list_workflows(f"WorkflowId = '{stage.fleet.handle.id}'")
    async for number, execution in _numbered(found):
        handle = stage.client.get_workflow_handle(execution.id, run_id=execution.run_id)
        history = await handle.fetch_history()
        (folder / f"run-{number:03d}.json").write_text(history.to_json())


async def _numbered(items: Any) -> Any:
    number = 0
    async for item in items:
        yield number, item
        number += 1


async def run(minutes: float, nodes: int, seed: int, histories: str, only: Sequence[str], how: Telling) -> int:
    figures, targets = await measure(minutes, nodes, seed, histories, only)
    return report("soak", figures=figures, floor={}, ratios={}, targets=targets, how=how)


if __name__ == "__main__":
    given = options(__doc__, minutes=30.0, nodes=12, seed=1, histories="", only="")
    acts = [name.strip() for name in given.only.split(",") if name.strip()]
    if given.histories:
        Path(given.histories).mkdir(parents=True, exist_ok=True)
    finished(asyncio.run(run(given.minutes, given.nodes, given.seed, given.histories, acts, telling(given))))
