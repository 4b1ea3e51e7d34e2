"""An engine is killed under traffic: how long until its model is served again, and which requests fail.

Real Temporal, worker, agents, router and engines; 50 requests a second for one model, whose engine gets a KILL. With
one replica only those may fail that were in flight at the dead engine; with two replicas none. The floor is the
engine's own start by hand, in the same run; the target is what the plane may add to it. Each round is a model of its
own, since what dies again and again is started with back-off.
`python -m bench.replace [--rounds 5] [--strict]`
"""

import argparse
import asyncio
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from bench import engines
from bench.first import catalog, quiet
from bench.house import House, house
from bench.report import Target, finished, options, report, spread, telling

PER_S = 50.0
BEFORE_S, AFTER_S = 1.0, 1.0
ADDED_MS = 300.0
LIMIT = aiohttp.ClientTimeout(total=engines.LIMIT_S)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: when it was sent and answered, in seconds of one clock, and how. Status 0: the connection broke."""

    sent_s: float
    done_s: float
    status: int


@dataclass
class Round:
    """What a kill did. `failed_before`: among those in flight at that moment; `failed_after`: sent later."""

    again_ms: float
    answered: int
    failed_before: int
    failed_after: int


@dataclass
class Traffic:
    """Requests at a steady rate, whatever becomes of them."""

    home: House
    name: str
    asked: list[Asked] = field(default_factory=list)
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> None:
        due_s = time.perf_counter()
        while True:
            task = asyncio.create_task(self._ask())
            self._open.add(task)
            task.add_done_callback(self._open.discard)
            due_s += 1 / PER_S
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))

    async def ends(self) -> None:
        await asyncio.gather(*self._open)

    async def _ask(self) -> None:
        body = {"model": self.name, "messages": [{"role": "user", "content": "Go on."}], "max_tokens": 1}
        url = f"{self.home.url(self.home.routers[0])}/v1/chat/completions"
        sent_s, status = time.perf_counter(), 0
        try:
            async with self.home.http.post(url, json=body, timeout=LIMIT) as answer:
                await answer.read()
                status = answer.status
        except (aiohttp.ClientError, TimeoutError):
            pass
        self.asked.append(Asked(sent_s, time.perf_counter(), status))


async def killed(home: House, name: str) -> Round:
    """One engine of the model gets a KILL in the midst of traffic."""
    traffic = Traffic(home, name)
    asking = asyncio.create_task(traffic.run())
    await asyncio.sleep(BEFORE_S)
    victim = min(replica for replica in engines.running(home.folder) if replica.startswith(f"{name}-"))
    process = engines.running(home.folder)[victim]
    at_s = time.perf_counter()
    os.kill(process.pid, signal.SIGKILL)
    async with asyncio.timeout(engines.LIMIT_S):
        while not _served_since(traffic, at_s):  # noqa: ASYNC110 - requests tell
            await asyncio.sleep(0.01)
    await asyncio.sleep(AFTER_S)
    asking.cancel()
    await traffic.ends()
    good = [ask for ask in traffic.asked if ask.status == 200]
    bad = [ask for ask in traffic.asked if ask.status != 200]
    return Round(
        again_ms=(min(ask.done_s for ask in good if ask.sent_s > at_s) - at_s) * 1000,
        answered=len(good),
        failed_before=sum(ask.sent_s <= at_s for ask in bad),
        failed_after=sum(ask.sent_s > at_s for ask in bad),
    )


def _served_since(traffic: Traffic, at_s: float) -> bool:
    return any(ask.status == 200 and ask.sent_s > at_s for ask in traffic.asked)


async def measure(home: House, kind: str, replicas: int, rounds: int) -> tuple[list[Round], list[float]]:
    """The rounds, and the engine's own starts in ms, in turns."""
    found: list[Round] = []
    floor: list[float] = []
    for number in range(rounds):
        name = f"m{number}"
        await home.fleet.apply(catalog(home, engines.model(kind, home.folder, name, replicas)))
        await quiet(home)
        process = next(p for r, p in engines.running(home.folder).items() if r.startswith(f"{name}-"))
        floor.append(await engines.by_hand_ms(engines.command_of(process)))
        found.append(await killed(home, name))
        await quiet(home)
    return found, floor


def told(rounds: list[Round]) -> Mapping[str, object]:
    return {
        "served_again": spread([r.again_ms for r in rounds]),
        "answered": sum(r.answered for r in rounds),
        "failed_in_flight": sum(r.failed_before for r in rounds),
        "failed_later": sum(r.failed_after for r in rounds),
    }


async def run(given: argparse.Namespace) -> int:
    figures: dict[str, object] = {}
    floors: dict[str, object] = {}
    ratios: dict[str, float] = {}
    targets: list[Target] = []
    for kind in engines.present():
        with tempfile.TemporaryDirectory(prefix="llmgw-replace-") as folder:
            async with house(Path(folder), nodes=2) as home:
                only, floor = await measure(home, kind, 1, given.rounds)
                two, _ = await measure(home, kind, 2, given.rounds)
        figures[f"{kind}, the only replica"], figures[f"{kind}, one of two"] = told(only), told(two)
        floors[kind] = spread(floor)
        again_ms, own_ms = statistics.median(r.again_ms for r in only), statistics.median(floor)
        ratios[kind] = again_ms / own_ms
        targets += [
            Target(f"{kind}: served again, ms above its engine", again_ms - own_ms, ADDED_MS),
            Target(f"{kind}: failed requests sent after the kill", sum(r.failed_after for r in only), 0),
            Target(f"{kind}: failed requests with two", sum(r.failed_before + r.failed_after for r in two), 0),
        ]
    return report("replace", figures=figures, floor=floors, ratios=ratios, targets=targets, how=telling(given))


if __name__ == "__main__":
    finished(asyncio.run(run(options(__doc__, rounds=5))))
