"""A model is added to a running fleet: how long until its first completion comes through the router.

Real Temporal, worker, agent, router and engines. The floor is the engine's own time from its fork to the first 200 of
its health page, started by hand with the command line that the agent used, in turns with the fleet's rounds; the target
is what the plane may add to it. Once a model at a time, and once ten models with one catalog (all of which may load at
once).
`python -m bench.first [--rounds 10] [--crowds 3] [--strict]`
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp

from bench import engines
from bench.house import House, house
from bench.report import Target, finished, options, report, spread, telling

ADDED_MS, ADDED_CROWD_MS = 150.0, 500.0
CROWD = 10
POLICY = {"removal_grace_s": 0.0, "max_loading_per_node": CROWD}
"""By default two load at a time on a node, as suits large weights; started by hand they all do."""
STAYS = "stays"
ASK_AGAIN_S = 0.005
"""For each name that is asked for: a name that is unknown yet is refused at once, one that starts is held."""

Rounds = dict[str, list[float]]


async def first_completions_ms(home: House, kind: str, names: Sequence[str]) -> float:
    """ms from the signal with `names` added to the last of their first completions. They are taken out again."""
    stays = engines.model(kind, home.folder, STAYS)
    added = [engines.model(kind, home.folder, name) for name in names]
    begun = time.perf_counter()
    await home.fleet.signal_catalog(catalog(home, stays, *added))
    async with asyncio.timeout(engines.LIMIT_S):
        await asyncio.gather(*(_answered(home, name, ASK_AGAIN_S * len(names)) for name in names))
    took_ms = (time.perf_counter() - begun) * 1000
    await home.fleet.apply(catalog(home, stays))
    await quiet(home)
    return took_ms


def catalog(home: House, *models: Mapping[str, object]) -> Mapping[str, object]:
    return home.catalog(*models, policy=POLICY)


async def quiet(home: House) -> None:
    """Until nothing is under way."""
    async with asyncio.timeout(engines.LIMIT_S):
        while (await home.status())["phase"] != "steady":  # noqa: ASYNC110 - asked from outside
            await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)


async def _answered(home: House, name: str, again_s: float) -> None:
    body = {"model": name, "messages": [{"role": "user", "content": "Go on."}], "max_tokens": 1}
    url = f"{home.url(home.routers[0])}/v1/chat/completions"
    while True:
        async with home.http.post(url, json=body, timeout=aiohttp.ClientTimeout(total=engines.LIMIT_S)) as answer:
            await answer.read()
            if answer.status == 200:
                return
        await asyncio.sleep(again_s)


async def measure(home: House, kind: str, rounds: int, crowds: int) -> Rounds:
    """ms: `alone` and `crowd` by the fleet, and `alone_floor` and `crowd_floor` by hand."""
    await home.fleet.apply(catalog(home, engines.model(kind, home.folder, STAYS)))
    await quiet(home)
    (engine,) = engines.running(home.folder).values()
    command = engines.command_of(engine)
    found: Rounds = {name: [] for name in ("alone", "alone_floor", "crowd", "crowd_floor")}
    for number in range(rounds):
        found["alone_floor"].append(await engines.by_hand_ms(command))
        found["alone"].append(await first_completions_ms(home, kind, [f"m{number}"]))
    for number in range(crowds):
        found["crowd_floor"].append(await engines.by_hand_ms(command, CROWD))
        found["crowd"].append(await first_completions_ms(home, kind, [f"c{number}-{i}" for i in range(CROWD)]))
    return found


def judged(kind: str, found: Rounds) -> list[Target]:
    """The median of what the plane added."""
    medians = {name: statistics.median(times) for name, times in found.items()}
    added_ms, crowd_added_ms = (medians[size] - medians[f"{size}_floor"] for size in ("alone", "crowd"))
    return [
        Target(f"{kind}: a model, ms above its engine", added_ms, ADDED_MS),
        Target(f"{kind}: ten models, ms above their engines", crowd_added_ms, ADDED_CROWD_MS),
    ]


async def run(given: argparse.Namespace) -> int:
    figures: dict[str, object] = {}
    floor: dict[str, object] = {}
    ratios: dict[str, float] = {}
    targets: list[Target] = []
    for kind in engines.present():
        with tempfile.TemporaryDirectory(prefix="llmgw-first-") as folder:
            async with house(Path(folder)) as home:
                found = await measure(home, kind, given.rounds, given.crowds)
        for size in ("alone", "crowd"):
            name = f"{kind}, {size}"
            figures[name], floor[name] = spread(found[size]), spread(found[f"{size}_floor"])
            ratios[name] = statistics.median(found[size]) / statistics.median(found[f"{size}_floor"])
        targets += judged(kind, found)
    return report("first", figures=figures, floor=floor, ratios=ratios, targets=targets, how=telling(given))


if __name__ == "__main__":
    finished(asyncio.run(run(options(__doc__, rounds=10, crowds=3))))
