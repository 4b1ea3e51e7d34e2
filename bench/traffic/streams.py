"""Clients as strict as there are: a stream is read to its end, and has to be whole, in order and of the right engine.

A client that cannot connect to a router takes the next one, as a load balancer would; everything else that goes wrong
is counted by its cause. Stub engines say in each piece who they are (`agent.stub_engine`).
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import aiohttp

LIMIT = aiohttp.ClientTimeout(total=120.0, sock_connect=5.0)


@dataclass
class Count:
    """What came of the requests. `failures`: cause -> how often; `examples`: the first of each cause, in words."""

    whole: int = 0
    rerouted: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    replicas: Counter[str] = field(default_factory=Counter)

    def fail(self, cause: str, detail: str) -> None:
        self.failures[cause] += 1
        self.examples.setdefault(cause, detail[:300])


@dataclass
class Crowd:
    """`names`: public name -> the models that may answer to it. Asks until it is told to stop."""

    http: aiohttp.ClientSession
    routers: Sequence[str]
    names: dict[str, frozenset[str]]
    tokens: int = 20
    what_happens: Callable[[], str] = lambda: ""
    """What goes on in the house at this moment: part of the cause."""
    pause_s: Callable[[random.Random], float] = lambda _: 0.0
    """How long a client rests before it asks again."""
    count: Count = field(default_factory=Count)
    stopping: bool = False

    async def run(self, clients: int) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(self._client(random.Random(number)))

    async def _client(self, dice: random.Random) -> None:
        while not self.stopping:
            name = dice.choice(sorted(self.names))
            first = dice.randrange(len(self.routers))
            await self.ask(name, [*self.routers[first:], *self.routers[:first]])
            await asyncio.sleep(self.pause_s(dice))

    async def ask(self, name: str, routers: Sequence[str]) -> None:
        """One stream from the first of `routers` that takes connections, counted."""
        body = {"model": name, "stream": True, "max_tokens": self.tokens}
        during = self.what_happens()
        for router in routers:
            try:
                async with self.http.post(f"{router}/v1/chat/completions", json=body, timeout=LIMIT) as answer:
                    await self._read(name, answer, during)
                return
            except aiohttp.ClientConnectorError:
                self.count.rerouted += 1
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self.count.fail(f"{type(error).__name__}{during}", f"{name} at {router}: {error}")
                return
        self.count.fail(f"no router{during}", name)

    async def _read(self, name: str, answer: aiohttp.ClientResponse, during: str) -> None:
        if answer.status != 200:
            return self.count.fail(f"{answer.status}{during}", f"{name}: {(await answer.text())[:200]}")
        replica, pieces, is_done = answer.headers.get("x-llmgw-replica", ""), 0, False
        async for line in answer.content:
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                is_done = True
                continue
            piece = json.loads(line[6:])
            said = piece["choices"][0]["delta"]["content"].strip()
            who, _, number = said.rpartition(":")
            if piece["model"] not in self.names[name] or who.partition("@")[0] != replica:
                return self.count.fail(f"misdirected{during}", f"{name} got {piece['model']} of {who}, said {replica}")
            if int(number) != pieces:
                return self.count.fail(f"out of order{during}", f"{name}: piece {number} after {pieces}")
            pieces += 1
        if not is_done or pieces != self.tokens:
            return self.count.fail(f"truncated{during}", f"{name}: {pieces} pieces of {self.tokens} from {replica}")
        self.count.whole += 1
        self.count.replicas[replica] += 1
        return None
