"""What may happen to a fleet, one thing at a time: everything that dies, hangs, comes back, is edited or ordered.

For `bench.soak`, which watches what is promised meanwhile.
"""

import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from bench.fleet.sizes import whole_device_models
from bench.fleet.watch import Promises
from bench.processes import Child
from bench.stage import Stage, patiently
from llmgw.ids import NodeId, RouterId
from llmgw.wire import BEAT_S

UNDER_WAY_S = 3.5
"""A call that began before a pause may still arrive within its limit."""
TRIED, TRIED_REPLICAS, CANARIES = "tried", 3, 1


class Chaos:
    """Each act undoes itself before the next but for what time undoes. `only`: names of acts; empty: all of them."""

    def __init__(self, stage: Stage, promises: Promises, chance: random.Random, only: Collection[str] = ()) -> None:
        self.stage, self.promises, self.chance = stage, promises, chance
        self.done: Counter[str] = Counter()
        self.models = 10
        self.replicas = 2
        self.version = 1
        acts: Mapping[str, tuple[int, Callable[[], Awaitable[None]]]] = {
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
            "engine and agent die together": (1, self.engine_and_agent_die),
            "router is frozen": (1, self.router_freezes),
            "Temporal restarts": (1, self.temporal_restarts),
            "Temporal is frozen": (1, self.temporal_freezes),
            "paused during a roll": (1, self.paused_in_a_roll),
            "worker is killed under a canary": (1, self.worker_dies_under_a_canary),
        }
        if unknown := set(only) - acts.keys():
            raise ValueError(f"there is no act {', '.join(sorted(unknown))}; there are {', '.join(acts)}")
        self.acts = {name: act for name, act in acts.items() if name in only or not only}

    @property
    def replicas_wanted(self) -> int:
        return self.models * self.replicas + TRIED_REPLICAS

    async def next(self) -> None:
        names = list(self.acts)
        (name,) = self.chance.choices(names, [self.acts[n][0] for n in names])
        self.done[name] += 1
        print(f"{name}", file=sys.stderr)
        await self.acts[name][1]()
        await asyncio.sleep(self.chance.uniform(0.2, 3.0))

    def catalog(self) -> Mapping[str, Any]:
        """The models that come and go, and one that is rolled."""
        (tried,) = whole_device_models(1, TRIED_REPLICAS)
        profile = {**tried["profiles"][0], "args": ["--version", str(self.version)]}
        canary = {"replicas": CANARIES, "hold_s": 86_400}
        rolled = {**tried, "name": TRIED, "canary": canary, "profiles": [profile]}
        return self.stage.catalog([*whole_device_models(self.models, self.replicas), rolled])

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

    async def router_freezes(self) -> None:
        """As a SIGSTOP looks from outside: connections stay, and what was sent is taken when it wakes up."""
        self.stage.skin.silence("router/r0")
        await asyncio.sleep(self.chance.uniform(5.0, 20.0))
        self.stage.skin.speak("router/r0")

    async def engine_and_agent_die(self) -> None:
        node = self.node()
        self.stage.skin.silence(f"node/{node}")
        if engines := sorted(self.stage.skin.nodes[node].engines):
            self.stage.skin.crash(node, self.chance.choice(engines))
        self.stage.skin.nodes[node].restart_agent()
        await asyncio.sleep(self.chance.uniform(0.5, 5.0))
        self.stage.skin.speak(f"node/{node}")
        self.stage.skin.tell(f"node/{node}")

    def worker(self) -> Child:
        return self.chance.choice([worker for worker in self.stage.workers if worker.process.poll() is None])

    async def worker_dies(self) -> None:
        self.worker().end(signal.SIGKILL)
        self.stage.add_worker()

    async def worker_freezes(self) -> None:
        await self._frozen(self.worker(), self.chance.uniform(2.0, 12.0))

    async def temporal_freezes(self) -> None:
        await self._frozen(self.stage.server.process, self.chance.uniform(5.0, 20.0))

    async def _frozen(self, process: Child, seconds: float) -> None:
        process.send(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        process.send(signal.SIGCONT)

    async def temporal_restarts(self) -> None:
        await self.stage.server.restart(self.chance.uniform(0.5, 8.0))

    # --- rolls ---

    async def roll(self) -> None:
        """A new version of the model that is tried, of which only the canaries may start until it is promoted."""
        self.version += 1
        self.promises.canaries[str(self.version)] = CANARIES
        await patiently(lambda: self.stage.fleet.signal_catalog(self.catalog()))

    async def _order(self, name: str, **fields: object) -> None:
        await patiently(lambda: self.stage.fleet.order(name, fields))

    async def _decide_the_canary(self) -> None:
        """It goes on to all replicas, or back."""
        order = self.chance.choice(("promote", "revert"))
        if order == "promote":
            del self.promises.canaries[str(self.version)]
        await self._order(order, model=TRIED)

    async def paused_in_a_roll(self) -> None:
        await self.roll()
        await asyncio.sleep(self.chance.uniform(0.0, 1.0))
        await self._order("pause", reason="the soak")
        await asyncio.sleep(UNDER_WAY_S)
        self.promises.is_paused = True
        await asyncio.sleep(self.chance.uniform(2.0, 6.0))
        self.promises.is_paused = False
        await self._order("resume")
        await self._decide_the_canary()

    async def worker_dies_under_a_canary(self) -> None:
        await self.roll()
        await asyncio.sleep(self.chance.uniform(0.0, 2.0))
        await self.worker_dies()
        await asyncio.sleep(self.chance.uniform(0.0, 4.0))
        await self._decide_the_canary()
        await self.worker_dies()
