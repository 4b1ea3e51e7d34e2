"""Replica deaths at a steady rate in a large fleet: each is replaced, at a small cost of history, and decided at once.

A death is decided when the start of what replaces it, or of itself again, has been accepted by an agent.
`python -m bench.churn [--nodes 1000] [--deaths 20] [--minutes 5] [--strict]`
"""

import asyncio
import random

from pydantic import BaseModel

from bench.fleet.sizes import full
from bench.report import Target, Telling, finished, options, report, spread, telling
from bench.stage import LIMIT_S, Scale, Stage, now_ms, staged
from llmgw.ids import NodeId, ReplicaId
from llmgw.wire import CommandBatch

EVENTS_PER_DEATH, DECIDED_MS = 45.0, 300.0


async def death(stage: Stage, chance: random.Random) -> float:
    """One engine dies; ms until the node was told what follows."""
    node = chance.choice(sorted(stage.skin.nodes))
    replica = chance.choice(sorted(stage.skin.nodes[node].engines))
    begun = now_ms()
    told = stage.moments.next(lambda target, document: _follows(target, document, node, replica))
    stage.skin.crash(node, replica)
    return await asyncio.wait_for(told, LIMIT_S) - begun


def _follows(target: str, document: BaseModel, node: NodeId, replica: ReplicaId) -> bool:
    if target != f"node/{node}" or not isinstance(document, CommandBatch):
        return False
    return any(command.kind == "stop" and command.replica == replica for command in document.commands)


async def run(nodes: int, per_minute: int, minutes: float, how: Telling) -> int:
    chance = random.Random(0)
    times: list[float] = []
    events = 0
    async with staged(Scale(nodes=nodes, start_s=1.0)) as stage:
        await stage.apply(stage.catalog(full(nodes)))
        await stage.steady(300.0, 2.0)
        run_id, before = await stage.history()
        deaths: list[asyncio.Task[float]] = []
        for _ in range(int(per_minute * minutes)):
            deaths.append(asyncio.create_task(death(stage, chance)))
            await asyncio.sleep(60 / per_minute)
            run_id, before, grown = await _grown(stage, run_id, before)
            events += grown
        times = list(await asyncio.gather(*deaths))
        await stage.steady(120.0)
        events += (await _grown(stage, run_id, before))[2]
        missing = nodes * 8 - sum(len(node.engines) for node in stage.skin.nodes.values())
    decided = spread(times)
    targets = [
        Target("replicas missing at the end", missing, 0),
        Target("history events per death", events / len(times), EVENTS_PER_DEATH),
        Target("death to command, p99 in ms", decided["p99_ms"], DECIDED_MS),
    ]
    figures = {"nodes": nodes, "deaths": len(times), "decided": decided, "events_per_death": events / len(times)}
    return report("churn", figures=figures, floor={}, ratios={}, targets=targets, how=how)


async def _grown(stage: Stage, run: str, before: int) -> tuple[str, int, int]:
    """The run and its events now, and by how many it has grown."""
    now_run, now = await stage.history()
    return now_run, now, now - before if now_run == run else now


if __name__ == "__main__":
    given = options(__doc__, nodes=1000, deaths=20, minutes=5.0)
    finished(asyncio.run(run(given.nodes, given.deaths, given.minutes, telling(given))))
