"""A whole small fleet of real processes for benches and tests: Temporal, a worker, agents with stub engines, routers.

Everything lives below one folder and one block of ports; parts are killed and started again by name. Leaving the
house ends every process of it, engines included.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from temporalio.client import Client

from bench.processes import Child, free_block, launched
from bench.temporal import server_argv
from workers.devstack.parts import plain_environ
from workflows.client import Connection, Fleet, UnreachableError, connect

HOST = "127.0.0.1"
FLEET = "load"
READY_S = 60.0
END_S = 120.0


class HouseError(Exception):
    """A part did not come up; the text ends with the last lines of its log."""


@dataclass
class Part:
    """One process by name, started as often as wanted."""

    name: str
    argv: Sequence[str]
    log: Path
    is_ready: Callable[[], Awaitable[bool]]
    environ: Mapping[str, str]
    process: Child | None = None

    async def start(self) -> None:
        await self.launch()
        await self.ready()

    async def launch(self) -> None:
        self.process = launched(self.argv, self.log, self.environ)

    async def ready(self) -> None:
        try:
            async with asyncio.timeout(READY_S):
                while not await self.is_ready():
                    if self.process is None or not self.process.is_there:
                        raise HouseError(f"{self.name} ended: {self.tail()}")
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise HouseError(f"{self.name} is not ready after {READY_S:g} s: {self.tail()}") from None

    async def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal and wait for the end, as long as streams may take."""
        if self.process is not None:
            await self.process.ended(number, END_S)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-1500:] if self.log.exists() else ""


@dataclass
class House:
    folder: Path
    first_port: int
    http: aiohttp.ClientSession
    parts: dict[str, Part] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    routers: tuple[str, ...] = ()
    client: Client | None = None

    @property
    def temporal_address(self) -> str:
        return f"{HOST}:{self.first_port}"

    @property
    def fleet(self) -> Fleet:
        assert self.client is not None, "the house is open"
        return Fleet(self.client, FLEET)

    def url(self, name: str) -> str:
        """Of a router or an agent."""
        names = [*self.routers, *self.nodes]
        return f"http://{HOST}:{self.first_port + 2 + names.index(name)}"

    def catalog(self, *models: Mapping[str, object], **fields: object) -> dict[str, Any]:
        """A catalog over the house's nodes and routers."""
        return {
            "nodes": [{"id": n, "url": self.url(n)} for n in self.nodes],
            "routers": [{"id": r, "url": self.url(r)} for r in self.routers],
            "models": list(models),
            "allow_removals": True,
            **fields,
        }

    async def status(self) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = await self.fleet.query("status")
        return answer

    async def table(self) -> tuple[dict[str, str], dict[str, list[str]]]:
        """The plane's present table: states of models, and replicas by model."""
        pages = await self.fleet.pages("endpoints")
        models = {m["name"]: str(m["state"]) for page in pages for m in page["models"]}
        replicas: dict[str, list[str]] = {name: [] for name in models}
        for endpoint in (e for page in pages for e in page["endpoints"]):
            replicas[endpoint["models"][0]].append(endpoint["id"])
        return models, replicas

    async def listed(self, router: str) -> dict[str, str]:
        """States by name, as a router tells its clients; empty while it has no table."""
        async with self.http.get(f"{self.url(router)}/v1/models") as answer:
            found = await answer.json()
        return {row["id"]: row["state"] for row in found.get("data", ())}

    async def until_listed(self, states: Mapping[str, str], limit_s: float = 60.0) -> None:
        """Until every router tells its clients these states."""
        seen: object = None
        try:
            async with asyncio.timeout(limit_s):
                for router in self.routers:
                    while not states.items() <= (seen := await self.listed(router)).items():  # noqa: ASYNC110 - likewise
                        await asyncio.sleep(0.1)
        except TimeoutError:
            raise HouseError(f"never {states} within {limit_s:g} s; last seen: {seen}") from None

    async def until(self, test: Callable[[dict[str, str], dict[str, list[str]]], bool], limit_s: float = 60.0) -> None:
        """Until the plane's table satisfies `test`, given states by model and replicas by model."""
        seen: object = None
        try:
            async with asyncio.timeout(limit_s):
                while not test(*(seen := await self.table())):  # noqa: ASYNC110 - asked from outside
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise HouseError(f"never so within {limit_s:g} s; last seen: {seen}") from None


@contextlib.asynccontextmanager
async def house(
    folder: Path,
    *,
    nodes: int = 1,
    routers: int = 1,
    devices: int = 4,
    router_flags: Sequence[str] = (),
    worker_flags: Sequence[str] = (),
) -> AsyncIterator[House]:
    """A running house with an empty fleet. Its ports: parts from the beginning of a block, behind them 40 a node."""
    with free_block() as first:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            made = House(folder, first, http)
            made.nodes = tuple(f"n{i + 1}" for i in range(nodes))
            made.routers = tuple(f"r{i + 1}" for i in range(routers))
            made.parts = {part.name: part for part in _parts(made, devices, router_flags, worker_flags)}
            try:
                await made.parts["temporal"].start()
                made.client = await connect(Connection(address=made.temporal_address))
                await asyncio.gather(*(p.start() for name, p in made.parts.items() if name != "temporal"))
                yield made
            finally:
                for part in reversed(made.parts.values()):
                    await part.end()
                _end_engines(folder)


def _parts(made: House, devices: int, router_flags: Sequence[str], worker_flags: Sequence[str]) -> list[Part]:
    python = (sys.executable, "-m")
    state = {name: str(made.folder / name) for name in ["worker", *made.nodes, *made.routers]}
    port = {name: made.url(name).removeprefix("http://") for name in (*made.nodes, *made.routers)}

    def part(name: str, argv: Sequence[str], is_ready: Callable[[], Awaitable[bool]]) -> Part:
        return Part(name, argv, made.folder / f"{name}.log", is_ready, plain_environ())

    temporal = server_argv(made.first_port, made.folder)
    worker = (
        *(*python, "workers.main", "--fleet", FLEET, "--state-dir", state["worker"]),
        *("--address", made.temporal_address, "--metrics-listen", f"{HOST}:{made.first_port + 1}"),
        *worker_flags,
    )
    found = [
        part("temporal", temporal, lambda: _connects(made.temporal_address)),
        part("worker", worker, lambda: _answers(made)),
    ]
    for index, node in enumerate(made.nodes):
        low = made.first_port + 30 + 40 * index
        agent = (
            *(*python, "agent.main", "--node-id", node, "--listen", port[node], "--state-dir", state[node]),
            *("--machine-id", f"machine-{node}", "--devices", f"{devices}xsim:24GiB"),
            *("--port-range", f"{low}-{low + 39}"),
        )
        found.append(part(node, agent, _http_200(made, f"{made.url(node)}/healthz")))
    for name in made.routers:
        router = (
            *(*python, "router.main", "--listen", port[name], "--state-dir", state[name]),
            *("--router-id", name, "--access-log", "off", *router_flags),
        )
        found.append(part(name, router, _http_200(made, f"{made.url(name)}/healthz")))
    return found


async def _connects(address: str) -> bool:
    try:
        await connect(Connection(address=address))
    except (UnreachableError, RuntimeError):
        return False
    return True


async def _answers(made: House) -> bool:
    try:
        await made.status()
    except Exception:  # the workflow may not exist yet, or nobody answers: whatever it is, it is not ready
        return False
    return True


def _http_200(made: House, url: str) -> Callable[[], Awaitable[bool]]:
    async def ask() -> bool:
        try:
            async with made.http.get(url) as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    return ask


def _end_engines(folder: Path) -> None:
    """Engines live in sessions of their own; they are known by the folder in their agent's mark."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if str(folder) in process.environ().get("LLMGW_RECORD", ""):
                os.kill(process.pid, signal.SIGKILL)
