"""Real streams through a real fleet while everything around them changes: how many fail that could have been served.

Temporal, worker, agents, routers and engines are processes; the engines are stubs that say who they are, and a real
llama.cpp where there is one. Catalogs are replaced, models roll, shrink and grow, sleep and wake, nodes drain, the
worker is killed, routers are restarted, Temporal is away.
`python -m bench.load [--replacements 200] [--away-s 60] [--clients 24] [--processes 2] [--strict]`
"""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp

from bench.house import House, house
from bench.report import Target, Telling, add_flags, report, telling
from bench.traffic.streams import Crowd
from workers.tiny_model import write_tiny_gguf

TOKENS = 20
TOKEN_S = 0.04
MODELS = ("stays", "rolls", "scales")


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of each disturbance."""

    replacements: int = 200
    rolls: int = 3
    away_s: float = 60.0
    clients: int = 24
    wakes: int = 20
    real: bool = False
    """With a model on a real llama.cpp, which rolls too."""
    max_history: int = 1500
    """Events after which the workflow continues as new: few of them make that happen under traffic often."""


def model(name: str, replicas: int, *, build: int = 0, weight: int = 100, load_s: float = 0.2) -> dict[str, object]:
    args = ["--token-delay-s", str(TOKEN_S), "--load-s", str(load_s)]
    profile = {"name": "p", "engine": "stub", "args": args, "env": {"BUILD": str(build)}, "weight": weight}
    return {
        "name": name,
        "aliases": [f"{name}-alias"],
        "replicas": {"min": replicas, "max": 4},
        "profiles": [profile],
    }


def llama() -> Path | None:
    """The llama.cpp server beside this Python, where there is one."""
    found = Path(sys.executable).parent / "llama-server-vulkan"
    return found if found.exists() else None


def real(folder: Path, build: int) -> dict[str, object]:
    """Two replicas of a tiny model on a real llama.cpp."""
    path = folder / "real.gguf"
    if not path.exists():
        write_tiny_gguf(path, "and so it went on ,", loop=True, n_embd=64, n_layer=2)
    profile = {"name": "p", "engine": "llama.cpp", "executable": str(llama())}
    profile |= {"args": ["-t", "1", "-np", "4", "-c", "4096"], "env": {"BUILD": str(build)}}  # type: ignore[dict-item]
    return {**model("real", 2), "profiles": [profile], "weights": f"file://{path}"}


def sleeper(name: str) -> dict[str, object]:
    return {**model(name, 0, load_s=0.3), "replicas": {"min": 0, "max": 1}, "idle_timeout_s": 1.0}


@dataclass
class Load:
    """One house under traffic, and what is done to it. `now`: the disturbance that goes on."""

    home: House
    scale: Scale
    now: str = "quiet"
    took_s: dict[str, float] = field(default_factory=dict)
    replicas: dict[str, int] = field(default_factory=lambda: {"stays": 2, "rolls": 2, "scales": 3})
    builds: dict[str, int] = field(default_factory=dict)
    extra: int = 0
    naps: bool = False
    """Whether the catalog has the model that sleeps."""
    crowd: Crowd | None = None

    def catalog(self, weight: int = 100) -> dict[str, object]:
        served = [model(n, self.replicas[n], build=self.builds.get(n, 0), weight=weight) for n in MODELS]
        beside = [model(f"beside-{self.extra}", 1)] if self.extra else []
        beside += [sleeper("naps")] if self.naps else []
        beside += [real(self.home.folder, self.builds.get("rolls", 0))] if self.scale.real else []
        return self.home.catalog(*served, *beside, policy={"removal_grace_s": 0.5})

    async def settled(self) -> None:
        """Until as many replicas are published as are wanted, each of the present build, and nothing else runs."""

        def is_so(_: Mapping[str, str], replicas: Mapping[str, list[str]]) -> bool:
            return all(len(replicas.get(name, ())) >= wanted for name, wanted in self.replicas.items())

        await self.home.until(is_so, limit_s=120.0)
        async with asyncio.timeout(120):
            while (await self.home.status())["phase"] not in ("steady", "quiet"):  # noqa: ASYNC110 - asked from outside
                await asyncio.sleep(0.1)

    async def replace_catalogs(self) -> None:
        """Edits that restart nothing, models that come and go, and whole catalogs sent again."""
        for number in range(self.scale.replacements):
            self.extra = (number // 2) % 3
            await self.home.fleet.signal_catalog(self.catalog(weight=100 + number % 2))
            if number % 10 == 9:
                await self.settled()
        self.extra = 0
        await self.home.fleet.apply(self.catalog())
        await self.settled()

    async def roll(self) -> None:
        for build in range(1, self.scale.rolls + 1):
            self.builds["rolls"] = build
            before = set((await self.home.table())[1]["rolls"])
            await self.home.fleet.apply(self.catalog())
            await self.home.until(lambda _, now, old=before: not old & set(now["rolls"]) and len(now["rolls"]) == 2)  # type: ignore[misc]
        await self.settled()

    async def shrink_and_grow(self) -> None:
        for count in (1, 3, 2, 3):
            self.replicas["scales"] = count
            await self.home.fleet.apply(self.catalog())
            await self.home.until(lambda _, now, wanted=count: len(now["scales"]) == wanted)  # type: ignore[misc]
        await self.settled()

    async def drain_nodes(self) -> None:
        for node in self.home.nodes:
            await self.home.fleet.order("drain", {"node": node})
            await self._empty(node)
            await self.home.fleet.order("uncordon", {"node": node})
            await self.settled()

    async def _empty(self, node: str) -> None:
        async with asyncio.timeout(120):
            while any(r["node"] == node for page in await self.home.fleet.pages("replicas") for r in page["replicas"]):  # noqa: ASYNC110 - asked from outside
                await asyncio.sleep(0.2)

    async def kill_worker(self) -> None:
        """Killed in the middle of a roll, twice."""
        for build in (101, 102):
            self.builds["rolls"] = build
            before = set((await self.home.table())[1]["rolls"])
            await self.home.fleet.signal_catalog(self.catalog())
            await self.home.parts["worker"].end()
            await self.home.parts["worker"].start()
            await self.home.until(lambda _, now, old=before: not old & set(now["rolls"]) and len(now["rolls"]) == 2)  # type: ignore[misc]
        await self.settled()

    async def sleep_and_wake(self) -> None:
        """Two clients that ask after pauses around the idle time: at every phase of falling asleep and waking up."""
        assert self.crowd is not None
        self.naps = True
        await self.home.fleet.apply(self.catalog())
        await self.home.until_listed({"naps": "asleep"})
        names = {name: frozenset({"naps"}) for name in ("naps", "naps-alias")}
        nappers = replace(self.crowd, names=names, pause_s=lambda dice: dice.uniform(0.0, 4.0))
        asking = asyncio.create_task(nappers.run(2))
        seen: set[str] = set()
        async with asyncio.timeout(600):
            while len(seen) < self.scale.wakes:
                seen |= set((await self.home.table())[1]["naps"])
                await asyncio.sleep(0.1)
        nappers.stopping = True
        await asking
        self.naps = False
        await self.home.fleet.apply(self.catalog())
        await self.settled()

    async def restart_routers(self) -> None:
        """One after the other, while the other one serves; open streams run to their end."""
        for router in self.home.routers:
            part = self.home.parts[router]
            await part.end(signal.SIGTERM)
            await part.start()
            await self.settled()

    async def lose_temporal(self) -> None:
        """Nobody decides for a while; then a change goes through again."""
        temporal = self.home.parts["temporal"]
        await temporal.end()
        await asyncio.sleep(self.scale.away_s)
        await temporal.start()
        self.replicas["scales"] = 2
        async with asyncio.timeout(90):
            while True:
                with contextlib.suppress(Exception):  # it comes back as fast as it can
                    await self.home.fleet.apply(self.catalog())
                    break
                await asyncio.sleep(0.5)
        await self.settled()


STEPS: tuple[tuple[str, Callable[[Load], Awaitable[None]]], ...] = (
    ("catalogs are replaced", Load.replace_catalogs),
    ("a model rolls", Load.roll),
    ("a model shrinks and grows", Load.shrink_and_grow),
    ("nodes drain", Load.drain_nodes),
    ("the worker is killed", Load.kill_worker),
    ("a model sleeps and wakes", Load.sleep_and_wake),
    ("routers restart", Load.restart_routers),
    ("Temporal is away", Load.lose_temporal),
)


async def under_load(folder: Path, scale: Scale, steps: Sequence[str], flags: Sequence[str] = ()) -> tuple[Load, Crowd]:
    """Run the steps whose names are given while the crowd asks; each step ends when the fleet has settled."""
    runs = ("--max-history", str(scale.max_history))
    async with house(folder, nodes=2, routers=2, devices=8, router_flags=flags, worker_flags=runs) as home:
        load = Load(home, scale)
        await home.fleet.apply(load.catalog())
        await load.settled()
        models = (*MODELS, "real") if scale.real else MODELS
        await home.until_listed(dict.fromkeys(models, "ready"))
        names = {n: frozenset({m}) for m in models for n in (m, f"{m}-alias")}
        plain = frozenset({"real", "real-alias"})
        urls = [home.url(router) for router in home.routers]
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as http:
            crowd = Crowd(http, urls, names, TOKENS, plain, lambda: f" while {load.now}")
            load.crowd = crowd
            asking = asyncio.create_task(crowd.run(scale.clients))
            try:
                for name, step in STEPS:
                    if name in steps:
                        load.now, began = name, time.perf_counter()
                        await step(load)
                        load.took_s[name] = round(time.perf_counter() - began, 1)
            finally:
                crowd.stopping = True
                await asking
    return load, crowd


async def run(scale: Scale, flags: Sequence[str], how: Telling) -> int:
    with tempfile.TemporaryDirectory(prefix="llmgw-load-") as folder:
        load, crowd = await under_load(Path(folder), scale, [name for name, _ in STEPS], flags)
    count = crowd.count
    failed = count.failures.total()
    if count.examples:
        print(json.dumps(count.examples, indent=1), file=sys.stderr)
    return report(
        "load",
        figures={
            "streams": count.whole + failed,
            "whole": count.whole,
            "failed_by_cause": dict(count.failures),
            "rerouted": count.rerouted,
            "replicas_seen": len(count.replicas),
            "took_s": load.took_s,
        },
        floor={},
        ratios={},
        targets=[Target("failed, truncated or misdirected streams", failed, 0)],
        how=how,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replacements", type=int, default=200)
    parser.add_argument("--rolls", type=int, default=3)
    parser.add_argument("--away-s", type=float, default=60.0)
    parser.add_argument("--wakes", type=int, default=20)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--processes", type=int, default=1, help="of each router")
    add_flags(parser)
    given = parser.parse_args()
    scale = Scale(given.replacements, given.rolls, given.away_s, given.clients, given.wakes, real=llama() is not None)
    flags = ("--processes", str(given.processes)) if given.processes > 1 else ()
    return asyncio.run(run(scale, flags, telling(given)))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    import os

    os._exit(code)  # the SDK's native runtime may abort an ordinary exit
