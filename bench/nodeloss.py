"""Three ways to lose a node, and how soon the fleet lives without it, or does not notice.

* an engine dies: until no router has its endpoint;
* a node goes silent, as if every packet were dropped: until its endpoints are withdrawn, and until all its replicas
  have been started elsewhere, which is the configured limit and a little more;
* an agent is killed and started again within 5 s (real processes): nothing is withdrawn, no engine ends, no request
  fails.

`python -m bench.nodeloss [--nodes 20] [--deaths 20] [--silences 3] [--lost 60] [--restarts 3] [--strict]`
"""

import argparse
import asyncio
import random
import signal
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from bench import engines
from bench.first import catalog, quiet
from bench.fleet.sizes import whole_device_models
from bench.house import House, house
from bench.replace import Traffic
from bench.report import Target, finished, options, report, spread, telling
from bench.stage import LIMIT_S, Scale, Stage, now_ms, staged
from llmgw.ids import NodeId, ReplicaId, RouterId
from llmgw.wire import RouterState

WITHDRAWN_DEAD_MS, WITHDRAWN_SILENT_MS, REPLACED_MS = 1_000.0, 12_000.0, 2_000.0
AWAY_S = 1.0
SEEN_S = 3.0
"""Enough for the plane to hear of the agent again, and to do what it should not."""
ROUTER = RouterId("r0")


@dataclass
class Restarts:
    """What came of them: tables that the router was told, engines that ended, requests that failed."""

    away_ms: list[float] = field(default_factory=list)
    tables: int = 0
    engines: int = 0
    requests: int = 0


# --- simulated nodes -------------------------------------------------------------------------------------------------


async def losses(nodes: int, deaths: int, silences: int, lost_s: float) -> tuple[list[float], list[float], list[float]]:
    """ms from an engine's death to its withdrawal; from a silence to withdrawal, and to the last start elsewhere."""
    chance = random.Random(0)
    died: list[float] = []
    withdrawn: list[float] = []
    replaced: list[float] = []
    async with staged(Scale(nodes=nodes)) as stage:
        await stage.apply(stage.catalog(whole_device_models(nodes * 4), lost_after_s=lost_s))
        await stage.steady(quiet_s=1.0)
        for _ in range(deaths):
            died.append(await death(stage, chance))
            await stage.steady(quiet_s=0.5)
        for _ in range(silences):
            away, elsewhere = await silence(stage, chance, lost_s)
            withdrawn.append(away)
            replaced.append(elsewhere)
            await stage.steady(quiet_s=1.0)
    return died, withdrawn, replaced


async def death(stage: Stage, chance: random.Random) -> float:
    node = chance.choice([n for n, model in stage.skin.nodes.items() if model.engines])
    replica = chance.choice(sorted(stage.skin.nodes[node].engines))
    gone = stage.moments.next(lambda target, _: target == f"router/{ROUTER}" and not _routed(stage, {replica}))
    begun = now_ms()
    stage.skin.crash(node, replica)
    return await asyncio.wait_for(gone, LIMIT_S) - begun


async def silence(stage: Stage, chance: random.Random, lost_s: float) -> tuple[float, float]:
    node = chance.choice([n for n, model in stage.skin.nodes.items() if model.engines])
    held = set(stage.skin.nodes[node].engines)
    models = sorted(engine.start.model for engine in stage.skin.nodes[node].engines.values())
    gone = stage.moments.next(lambda target, _: target == f"router/{ROUTER}" and not _routed(stage, held))
    elsewhere = stage.moments.next(lambda target, _: target.startswith("node/") and _runs(stage, node, models))
    begun = now_ms()
    stage.skin.silence(f"node/{node}")
    withdrawn = await asyncio.wait_for(gone, LIMIT_S) - begun
    replaced = await asyncio.wait_for(elsewhere, lost_s + LIMIT_S) - begun
    stage.skin.speak(f"node/{node}")
    return withdrawn, replaced


def _routed(stage: Stage, replicas: Collection[ReplicaId]) -> bool:
    return not stage.skin.routers[ROUTER].table.endpoints.keys().isdisjoint(replicas)


def _runs(stage: Stage, without: NodeId, models: Collection[str]) -> bool:
    """Each of the models, of one replica each, runs on another node."""
    others = (model for node, model in stage.skin.nodes.items() if node != without)
    return set(models) <= {engine.start.model for node in others for engine in node.engines.values()}


# --- a real agent ----------------------------------------------------------------------------------------------------


async def restarts(home: House, rounds: int) -> Restarts:
    """An agent is killed and started again, while requests go on."""
    name = "m0"
    await home.fleet.apply(catalog(home, engines.model("stub", home.folder, name, 2)))
    await quiet(home)
    traffic = Traffic(home, name)
    asking = asyncio.create_task(traffic.run())
    found = Restarts()
    for number in range(rounds):
        agent = home.parts[home.nodes[number % len(home.nodes)]]
        engines_before, told_before = set(engines.running(home.folder)), await _held(home)
        begun = time.perf_counter()
        await agent.end(signal.SIGKILL)
        await asyncio.sleep(AWAY_S)
        await agent.start()
        found.away_ms.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(SEEN_S)
        found.tables += await _held(home) != told_before
        found.engines += len(engines_before - set(engines.running(home.folder)))
    asking.cancel()
    await traffic.ends()
    found.requests = sum(ask.status != 200 for ask in traffic.asked)
    return found


async def _held(home: House) -> object:
    """Token and digest of the router's table: another token is another telling."""
    async with home.http.get(f"{home.url(home.routers[0])}/v1/state") as stream:
        return RouterState.model_validate_json(await stream.content.readline()).tables


async def run(given: argparse.Namespace) -> int:
    died, withdrawn, replaced = await losses(given.nodes, given.deaths, given.silences, given.lost)
    with tempfile.TemporaryDirectory(prefix="llmgw-nodeloss-") as folder:
        async with house(Path(folder), nodes=2) as home:
            restarted = await restarts(home, given.restarts)
    figures = {
        "nodes": given.nodes,
        "lost_after_s": given.lost,
        "engine died, withdrawn": spread(died),
        "node silent, withdrawn": spread(withdrawn),
        "node silent, replaced": spread(replaced),
        "agent restarted, away": spread(restarted.away_ms),
    }
    targets = [
        Target("an engine died: withdrawn, worst in ms", max(died), WITHDRAWN_DEAD_MS),
        Target("a node is silent: withdrawn, worst in ms", max(withdrawn), WITHDRAWN_SILENT_MS),
        Target("a node is silent: replaced, worst ms above the limit", max(replaced) - given.lost * 1000, REPLACED_MS),
        Target("an agent restarted: tables told", restarted.tables, 0),
        Target("an agent restarted: engines that ended", restarted.engines, 0),
        Target("an agent restarted: requests that failed", restarted.requests, 0),
    ]
    return report("nodeloss", figures=figures, floor={}, ratios={}, targets=targets, how=telling(given))


if __name__ == "__main__":
    finished(asyncio.run(run(options(__doc__, nodes=20, deaths=20, silences=3, lost=60.0, restarts=3))))
