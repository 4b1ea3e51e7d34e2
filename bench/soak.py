"""Mixed chaos against one fleet: everything that dies, hangs, comes back or is edited, for as long as is asked.

Promises are checked at the simulated side with each document that arrives there; after the chaos the fleet must
converge to its last catalog. The worker's memory is looked at in the middle and at the end.
`python -m bench.soak [--minutes 30] [--nodes 12] [--seed 1] [--strict]`; `--histories DIR` keeps the runs for replay.
"""

import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from bench.fleet.sizes import whole_device_models
from bench.fleet.watch import Promises
from bench.report import Target, Telling, finished, options, report, telling
from bench.stage import Scale, Stage, now_ms, patiently, staged, until
from llmgw.ids import NodeId, RouterId
from llmgw.wire import BEAT_S

CONVERGE_S = 180.0
MEMORY_GROWTH = 1.3


class Chaos:
    """What may happen to a fleet, one thing at a time. Each undoes itself before the next but for what time undoes."""

    def __init__(self, stage: Stage, chance: random.Random) -> None:
        self.stage, self.chance = stage, chance
        self.done: Counter[str] = Counter()
        self.models = 10
        self.replicas = 2
        self.acts: Mapping[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            # name: (how often, what)
            "engine dies": (6, self.engine_dies),
            "catalog is edited": (5, self.edit),
            "node is cut off for a moment": (3, lambda: self.cut_off(2.0)),
            "node is cut off for long": (1, lambda: self.cut_off(BEAT_S * 5)),
            "agent restarts": (2, self.agent_restarts),
            "node reboots": (1, self.node_reboots),
            "router restarts": (2, self.router_restarts),
            "router loses its disk": (1, self.router_forgets),
            "worker is killed": (2, self.worker_dies),
            "worker is frozen": (1, self.worker_freezes),
            "Temporal restarts": (1, self.temporal_restarts),
        }

    async def next(self) -> None:
        names = list(self.acts)
        (name,) = self.chance.choices(names, [self.acts[n][0] for n in names])
        self.done[name] += 1
        print(f"{name}", file=sys.stderr)
        await self.acts[name][1]()
        await asyncio.sleep(self.chance.uniform(0.2, 3.0))

    def catalog(self) -> Mapping[str, Any]:
        return self.stage.catalog(whole_device_models(self.models, self.replicas))

    def node(self) -> NodeId:
        return self.chance.choice(sorted(self.stage.skin.nodes))

    async def engine_dies(self) -> None:
        node = self.node()
        if engines := sorted(self.stage.skin.nodes[node].engines):
            self.stage.skin.crash(node, self.chance.choice(engines))

    async def edit(self) -> None:
        self.models, self.replicas = self.chance.randint(6, 14), self.chance.randint(1, 3)
        await patiently(lambda: self.stage.fleet.signal_catalog(self.catalog()))

    async def cut_off(self, seconds: float) -> None:
        target = f"node/{self.node()}"
        self.stage.skin.silence(target)
        await asyncio.sleep(seconds)
        self.stage.skin.speak(target)

    async def agent_restarts(self) -> None:
        node = self.node()
        self.stage.skin.nodes[node].restart_agent()
        self.stage.skin.tell(f"node/{node}")

    async def node_reboots(self) -> None:
        node = self.node()
        self.stage.skin.nodes[node].reboot()
        self.stage.skin.tell(f"node/{node}")

    async def router_restarts(self) -> None:
        self.stage.skin.routers[RouterId("r0")].restart()
        self.stage.skin.tell("router/r0")

    async def router_forgets(self) -> None:
        self.stage.skin.routers[RouterId("r1")].lose_memory()
        self.stage.skin.tell("router/r1")

    async def worker_dies(self) -> None:
        alive = [worker for worker in self.stage.workers if worker.process.poll() is None]
        self.chance.choice(alive).end(signal.SIGKILL)
        self.stage.add_worker()

    async def worker_freezes(self) -> None:
        alive = [worker for worker in self.stage.workers if worker.process.poll() is None]
        frozen = self.chance.choice(alive)
        frozen.send(signal.SIGSTOP)
        await asyncio.sleep(self.chance.uniform(2.0, 12.0))
        frozen.send(signal.SIGCONT)

    async def temporal_restarts(self) -> None:
        await self.stage.server.restart(self.chance.uniform(0.5, 8.0))


async def measure(minutes: float, nodes: int, seed: int, histories: str) -> tuple[Mapping[str, Any], list[Target]]:
    async with staged(Scale(nodes=nodes, devices=4, routers=2, start_s=0.5, stop_s=0.3), workers=2) as stage:
        promises = Promises(stage.skin)
        stage.moments.also = promises.heard
        chaos = Chaos(stage, random.Random(seed))
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
        wanted = chaos.models * chaos.replicas
        await until(lambda: _serves(stage, wanted), CONVERGE_S, 0.2)
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


async def run(minutes: float, nodes: int, seed: int, histories: str, how: Telling) -> int:
    figures, targets = await measure(minutes, nodes, seed, histories)
    return report("soak", figures=figures, floor={}, ratios={}, targets=targets, how=how)


if __name__ == "__main__":
    given = options(__doc__, minutes=30.0, nodes=12, seed=1, histories="")
    if given.histories:
        Path(given.histories).mkdir(parents=True, exist_ok=True)
    finished(asyncio.run(run(given.minutes, given.nodes, given.seed, given.histories, telling(given))))
