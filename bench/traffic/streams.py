"""Clients as strict as there are: a stream is read to its end, and has to be whole, in order and of the right engine.

A client that cannot connect to a router takes the next one, as a load balancer would; everything else that goes wrong
is counted by its cause. Stub engines say in each piece who they are (`agent.stub_engine`).
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

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
    plain: frozenset[str] = frozenset()
    """Names whose engines do not say who they are."""
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
        messages = [{"role": "user", "content": "Go on."}]
        body = {"model": name, "messages": messages, "stream": True, "max_tokens": self.tokens}
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
        replica = answer.headers.get("x-llmgw-replica", "")
        read = _plainly if name in self.plain else _strictly
        wrong = await read(answer, self.names[name], replica, self.tokens)
        if wrong is not None:
            cause, detail = wrong
            return self.count.fail(f"{cause}{during}", f"{name} from {replica}: {detail}")
        self.count.whole += 1
        self.count.replicas[replica] += 1
        return None


Wrong = tuple[str, str]
"""A cause, and what was seen."""


async def _strictly(answer: aiohttp.ClientResponse, models: frozenset[str], replica: str, tokens: int) -> Wrong | None:
    """A stub's stream: every piece there, in order, of the replica that the router named."""
    pieces, is_done = 0, False
    async for piece in _pieces(answer):
        if piece is None:
            is_done = True
            continue
        who, _, number = piece["choices"][0]["delta"]["content"].strip().rpartition(":")
        if piece["model"] not in models or who.partition("@")[0] != replica:
            return "misdirected", f"{piece['model']} of {who}"
        if int(number) != pieces:
            return "out of order", f"piece {number} after {pieces}"
        pieces += 1
    return None if is_done and pieces == tokens else ("truncated", f"{pieces} pieces of {tokens}")


async def _plainly(answer: aiohttp.ClientResponse, models: frozenset[str], replica: str, tokens: int) -> Wrong | None:
    """Another engine's stream: of the right model, with text, a reason for its end, and the end itself."""
    text, reason, is_done = "", "", False
    async for piece in _pieces(answer):
        if piece is None:
            is_done = True
            continue
        if piece["model"] not in models or replica.rpartition("-")[0] not in models:
            return "misdirected", f"{piece['model']} of {replica}"
        for choice in piece["choices"]:
            text += choice["delta"].get("content") or ""
            reason = choice["finish_reason"] or reason
    return None if is_done and reason and text else ("truncated", f"{len(text)} characters of {tokens} tokens")


async def _pieces(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any] | None]:
    """The stream's documents; None for the end that it says."""
    async for line in answer.content:
        if line.startswith(b"data: "):
            yield None if line.startswith(b"data: [DONE]") else json.loads(line[6:])
