"""A fleet on a stage: a real Temporal server, real workers as processes, simulated agents and routers over HTTP.

Every bench of the plane plays on it, and its floor beside it. What is measured is what arrives at the simulated side,
by one clock: `Moments`.
"""

import asyncio
import contextlib
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from temporalio.client import Client
from temporalio.service import RPCError

from bench.fleet.skins import FleetSkin, Heard, serving
from bench.processes import Child, child
from bench.temporal import Server, dev_server
from llmgw.ids import NodeId, RouterId
from sim.node import SimNode, devices
from sim.router import SimRouter
from workflows.client import Fleet

LIMIT_S = 60.0
Test = Callable[[str, BaseModel], bool]


class Moments:
    """When documents arrived at the simulated side, in ms of one clock."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Test, asyncio.Future[float]]] = []
        self.also: Heard | None = None
        """Is told everything as well."""

    def heard(self, target: str, document: BaseModel) -> None:
        now = now_ms()
        if self.also is not None:
            self.also(target, document)
        for test, future in list(self._waiting):
            if not future.done() and test(target, document):
                future.set_result(now)
                self._waiting.remove((test, future))

    def next(self, test: Test) -> asyncio.Future[float]:
        """The moment of the first document from now on that satisfies `test`."""
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.append((test, future))
        return future


def now_ms() -> float:
    return time.perf_counter() * 1000


@dataclass(frozen=True, slots=True)
class Scale:
    """How large the simulated side is, and how fast its engines are."""

    nodes: int = 20
    devices: int = 8
    routers: int = 1
    start_s: float = 0.0
    stop_s: float = 0.0


@dataclass
class Stage:
    server: Server
    fleet: Fleet
    skin: FleetSkin
    moments: Moments
    base: str
    folder: Path
    scale: Scale
    workers: list[Child] = field(default_factory=list)
    _exit: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def client(self) -> Client:
        return self.server.client

    def add_worker(self) -> Child:
        """One more control worker, as its own process."""
        argv = [
            *(sys.executable, "-m", "workers.main", "--fleet", self.fleet.name, "--installation", "bench"),
            *("--address", self.server.address, "--metrics-listen", "off"),
            *("--identity", f"worker-{len(self.workers)}"),
        ]
        log = self.folder / f"worker-{len(self.workers)}.log"
        self.workers.append(self._exit.enter_context(child(argv, log)))
        return self.workers[-1]

    def add_floor(self) -> str:
        """The floor's worker as its own process; its task queue."""
        queue = f"{self.fleet.name}-floor"
        argv = (sys.executable, "-m", "bench.floor", "--address", self.server.address, "--queue", queue)
        self._exit.enter_context(child(argv, self.folder / "floor.log"))
        return queue

    def targets(self) -> Mapping[str, Any]:
        """Nodes and routers as a catalog declares them."""
        return {
            "nodes": [{"id": node, "url": f"{self.base}/node/{node}"} for node in self.skin.nodes],
            "routers": [{"id": router, "url": f"{self.base}/router/{router}"} for router in self.skin.routers],
            "policy": {"removal_grace_s": 0.0},
            "allow_removals": True,
        }

    def catalog(self, models: Sequence[Mapping[str, Any]], **policy: float) -> Mapping[str, Any]:
        targets = self.targets()
        return {**targets, "policy": {**targets["policy"], **policy}, "models": list(models)}

    async def apply(self, catalog: Mapping[str, Any]) -> None:
        """In force, or RuntimeError with its problems."""
        verdict = await patiently(lambda: self.fleet.apply(catalog))
        if verdict.problems:
            raise RuntimeError("; ".join(f"{p.path}: {p.what}" for p in verdict.problems))

    async def steady(self, limit_s: float = LIMIT_S, quiet_s: float = 0.0) -> None:
        """Everything wanted is ready, and has been told; then `quiet_s` more."""
        await until(self._is_steady, limit_s)
        await asyncio.sleep(quiet_s)

    async def _is_steady(self) -> bool:
        status = await patiently(lambda: self.fleet.query("status"))
        return bool(status["phase"] == "steady")

    async def history(self) -> tuple[str, int]:
        """The current run and the number of its events."""
        description = await self.fleet.handle.describe()
        return description.run_id or "", description.history_length


async def patiently(ask: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """The answer, asked again while the fleet does not exist yet or no worker answers."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return await ask()
        except (RPCError, TimeoutError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


async def until(holds: Callable[[], Any], limit_s: float, every_s: float = 0.05) -> None:
    """Asks until it holds. TimeoutError past the limit."""
    async with asyncio.timeout(limit_s):
        while not await holds():  # noqa: ASYNC110 - the fleet is asked from outside
            await asyncio.sleep(every_s)


@contextlib.asynccontextmanager
async def staged(scale: Scale, workers: int = 1) -> AsyncIterator[Stage]:
    """A stage with its workers; all of it ends with the block."""
    moments = Moments()
    names = [NodeId(f"n{i}") for i in range(scale.nodes)]
    skin = FleetSkin(
        {
            name: SimNode(name, devices(name, scale.devices), start_s=scale.start_s, stop_s=scale.stop_s)
            for name in names
        },
        {RouterId(f"r{i}"): SimRouter(RouterId(f"r{i}")) for i in range(scale.routers)},
        moments.heard,
    )
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="llmgw-bench-")))
        server = await stack.enter_async_context(dev_server(folder))
        base = await stack.enter_async_context(serving(skin))
        fleet = Fleet(server.client, f"bench-{uuid.uuid4().hex[:6]}")
        stage = Stage(server, fleet, skin, moments, base, folder, scale)
        stack.enter_context(stage._exit)
        for _ in range(workers):
            stage.add_worker()
        yield stage
