"""Requests as a client of the router makes them, and what an agent says when it is asked anew. For the check."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import aiohttp

from llmgw.ids import ReplicaId
from llmgw.wire import EngineState, NodeReport, ReplicaReport

LIMIT = aiohttp.ClientTimeout(total=20.0)


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and text of one completion; `text` is the error's where there is one."""

    status: int
    text: str

    def __str__(self) -> str:
        return f"{self.status} {self.text[:200]!r}"


@dataclass(slots=True)
class Stream:
    """An open stream, as far as it has come."""

    status: int = 0
    pieces: list[str] = field(default_factory=list)
    is_done: bool = False
    """`data: [DONE]` was the last thing."""
    began: asyncio.Event = field(default_factory=asyncio.Event)
    """The first piece is there."""
    broken: str = ""

    def __str__(self) -> str:
        end = "complete" if self.is_done else f"broken off ({self.broken or 'no [DONE]'})"
        return f"{self.status}, {len(self.pieces)} pieces, {end}"


async def complete(http: aiohttp.ClientSession, router: str, model: str, max_tokens: int = 32) -> Answer:
    """One chat completion by its public name."""
    async with http.post(_path(router), json=_asked(model, max_tokens), timeout=LIMIT) as answer:
        body = await answer.text()
    try:
        found = json.loads(body)
        text = found["choices"][0]["message"]["content"] if answer.status == 200 else found["error"]["message"]
    except (ValueError, KeyError, TypeError, IndexError):
        text = body
    return Answer(answer.status, str(text).strip())


async def stream(http: aiohttp.ClientSession, router: str, model: str, max_tokens: int, into: Stream) -> None:
    """A streamed chat completion; what comes is put into `into` as it comes. Never raises for what the server does."""
    asked = {**_asked(model, max_tokens), "stream": True}
    try:
        async with http.post(_path(router), json=asked, timeout=aiohttp.ClientTimeout(total=60.0)) as answer:
            into.status = answer.status
            async for line in answer.content:
                _take(line.decode().strip(), into)
    except (aiohttp.ClientError, TimeoutError) as error:
        into.broken = str(error) or type(error).__name__
    into.began.set()


def _take(line: str, into: Stream) -> None:
    if not line.startswith("data: "):
        return
    if line == "data: [DONE]":
        into.is_done = True
        return
    choices = json.loads(line.removeprefix("data: ")).get("choices") or [{}]
    if piece := choices[0].get("delta", {}).get("content"):
        into.pieces.append(piece)
        into.began.set()


async def agent_rows(http: aiohttp.ClientSession, agent: str) -> Mapping[ReplicaId, ReplicaReport]:
    """The replicas of a node at this moment: a new listener is answered at once, in full."""
    async with http.get(f"{agent}/v1/state", timeout=LIMIT) as held:
        while not (line := (await held.content.readline()).strip()):
            if held.content.at_eof():
                return {}
    return {row.replica: row for row in NodeReport.model_validate_json(line).replicas}


async def first_stop(http: aiohttp.ClientSession, agent: str, replica: ReplicaId) -> float:
    """The moment (`time.monotonic`) at which the node first reports the replica as stopping, or not at all."""
    async with http.get(f"{agent}/v1/state", timeout=aiohttp.ClientTimeout(total=None, sock_read=10.0)) as held:
        async for line in held.content:
            if not line.strip():
                continue
            rows = {row.replica: row for row in NodeReport.model_validate_json(line).replicas}
            if replica not in rows or rows[replica].state is EngineState.STOPPING:
                return time.monotonic()
    raise aiohttp.ClientPayloadError("the agent ended its report stream")


def _asked(model: str, max_tokens: int) -> dict[str, object]:
    return {"model": model, "max_tokens": max_tokens, "messages": [{"role": "user", "content": "Hi!"}]}


def _path(router: str) -> str:
    return f"{router}/v1/chat/completions"
