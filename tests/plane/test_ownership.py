"""One owner, whatever happens to it: nothing is started twice or stopped out of ignorance, and nobody acts late."""

import asyncio
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from activities.plan import Planner
from bench.fleet.skins import FleetSkin, serving
from bench.processes import child
from llmgw.ids import NodeId, RouterId
from llmgw.plan import Judgement
from sim.node import SimNode, devices
from sim.router import SimRouter
from tests.plane.conftest import TEMPORAL, working
from workflows import names
from workflows.client import Fleet
from workflows.converting import data_converter
from workflows.ensure import ensure
from workflows.fleet_state import FleetState

LIMIT_S = 40.0


@dataclass(frozen=True)
class Scene:
    """Two simulated nodes and a router, which outlive every plane that commands them."""

    skin: FleetSkin
    base: str

    def catalog(self, replicas: int, name: str = "m") -> dict[str, Any]:
        profile = {"name": "p", "engine": "stub", "accelerators": [{"count": 1}]}
        return {
            "nodes": [{"id": node, "url": f"{self.base}/node/{node}"} for node in self.skin.nodes],
            "routers": [{"id": "r", "url": f"{self.base}/router/r"}],
            "policy": {"removal_grace_s": 0.0},
            "models": [{"name": name, "replicas": replicas, "profiles": [profile]}],
        }

    @property
    def router(self) -> SimRouter:
        return self.skin.routers[RouterId("r")]

    @property
    def running(self) -> list[str]:
        return sorted(replica for node in self.skin.nodes.values() for replica in node.engines)

    @property
    def starts(self) -> Counter[str]:
        return Counter(replica for node in self.skin.nodes.values() for replica in node.starts)

    async def until(self, holds: Callable[[], bool], why: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not holds():
            assert time.monotonic() < deadline, f"never: {why}; running {self.running}, routed {self.routed}"
            await asyncio.sleep(0.02)

    @property
    def routed(self) -> list[str]:
        return sorted(self.router.table.endpoints)

    async def serves(self, replicas: int) -> None:
        await self.until(
            lambda: len(self.running) == replicas and self.routed == self.running, f"{replicas} replicas serve"
        )


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    nodes = {NodeId(n): SimNode(NodeId(n), devices(n, 4), start_s=0.0, stop_s=0.0) for n in ("a", "b")}
    skin = FleetSkin(nodes, {RouterId("r"): SimRouter(RouterId("r"))})
    async with serving(skin) as base:
        yield Scene(skin, base)


def unique(word: str) -> str:
    return f"{word}-{uuid.uuid4().hex[:8]}"


async def test_updates_that_race_with_continue_as_new_are_all_answered(client: Client) -> None:
    async with working(client, unique("race"), max_history=100) as fleet:
        first = await fleet.handle.describe()
        for _ in range(6):
            verdicts = await asyncio.gather(*(fleet.order("cordon", {"node": f"n{n}"}) for n in range(8)))
            assert {verdict.judgement for verdict in verdicts} == {Judgement.REFUSED}
            assert [f"n{n}" in verdict.problems[0] for n, verdict in enumerate(verdicts)] == [True] * 8
        async with asyncio.timeout(60):  # it continues as new a moment after the last verdict
            while (await fleet.handle.describe()).run_id == first.run_id:  # noqa: ASYNC110 - asked from outside
                await asyncio.sleep(0.05)
        await fleet.handle.terminate("the test is over")


async def test_a_reset_fleet_passes_what_its_agents_hold_and_starts_nothing_twice(client: Client, scene: Scene) -> None:
    async with working(client, unique("reset")) as fleet:
        await fleet.apply(scene.catalog(2))
        await scene.serves(2)
        early = await _first_task(fleet)
        await fleet.apply(scene.catalog(4))
        await scene.serves(4)
        before = scene.running
        held = max(node.token.seq for node in scene.skin.nodes.values() if node.token is not None)
        await _reset(fleet, early)
        verdict = await fleet.apply(scene.catalog(5))
        assert verdict.problems == ()
        await scene.serves(5)
        assert set(before) <= set(scene.running), "what ran goes on"
        assert set(scene.starts.values()) == {1}
        now_held = [node.token.seq for node in scene.skin.nodes.values() if node.token is not None]
        assert max(now_held) > held
        await fleet.handle.terminate("the test is over")


async def _first_task(fleet: Fleet) -> int:
    """Event id of the first completed workflow task after the first catalog."""
    events = [event async for event in fleet.handle.fetch_history_events()]
    return next(e.event_id for e in events if e.event_type is EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)


async def _reset(fleet: Fleet, event_id: int) -> None:
    described = await fleet.handle.describe()
    await fleet.client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=fleet.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=described.id, run_id=described.run_id),
            reason="an operator's mistake",
            workflow_task_finish_event_id=event_id,
            request_id=str(uuid.uuid4()),
        )
    )


async def test_a_plane_that_lost_its_database_adopts_what_runs(client: Client, scene: Scene) -> None:
    name = unique("lost")
    async with working(client, name) as fleet:
        await fleet.apply(scene.catalog(4))
        await scene.serves(4)
        await fleet.handle.terminate("its database is lost with it")
    before = scene.running
    environment = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(TEMPORAL),
        data_converter=data_converter,
        dev_server_log_level="error",
    )
    async with environment, working(environment.client, name, now_s=1_900_000_000) as fleet:
        assert (await fleet.apply(scene.catalog(4))).generation == 1, "it remembers nothing"
        await scene.until(lambda: scene.router.token is not None and scene.router.token.epoch == 1_900_000_000, "told")
        await scene.serves(4)
        assert scene.running == before
        assert set(scene.starts.values()) == {1}


async def test_a_second_installation_of_the_same_name_commands_nothing(client: Client, scene: Scene) -> None:
    async with working(client, unique("ours")) as ours:
        await ours.apply(scene.catalog(2))
        await scene.serves(2)
        before, table = scene.running, scene.router.table.digest
        async with working(client, unique("theirs"), installation="another") as theirs:
            await theirs.apply(scene.catalog(6, name="x"))
            said = ""
            deadline = time.monotonic() + LIMIT_S
            while "test" not in said:
                assert time.monotonic() < deadline, "the status never names the holder"
                said = str((await theirs.query(names.STATUS))["fenced_by"])
                await asyncio.sleep(0.05)
            assert (scene.running, scene.router.table.digest) == (before, table)
            await theirs.handle.terminate("the test is over")
        await ours.apply(scene.catalog(3))
        await scene.serves(3)
        await ours.handle.terminate("the test is over")


async def test_a_bug_that_wedges_the_workflow_task_loses_nothing_once_it_is_mended(
    client: Client, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with working(client, unique("wedge")) as fleet:
        await fleet.apply(scene.catalog(2))
        await scene.serves(2)
        tried = asyncio.Event()

        def broken(self: FleetState, plan: object, now_s: float) -> None:
            del self, plan, now_s
            loop.call_soon_threadsafe(tried.set)
            raise RuntimeError("a bug of this release")

        loop = asyncio.get_running_loop()
        with monkeypatch.context() as release:
            release.setattr(FleetState, "merge", broken)
            await fleet.signal_catalog(scene.catalog(5))
            await asyncio.wait_for(tried.wait(), LIMIT_S)
            assert len(scene.routed) == 2
        await fleet.signal_catalog(scene.catalog(3))
        await scene.serves(3)
        assert (await fleet.query(names.STATUS))["generation"] == 3, "the catalog sent meanwhile was judged as well"
        await fleet.handle.terminate("the test is over")


async def test_a_bug_in_deciding_stops_nothing_and_is_told(
    client: Client, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with working(client, unique("safe")) as fleet:
        await fleet.apply(scene.catalog(2))
        await scene.serves(2)
        with monkeypatch.context() as release:
            release.setattr(f"{Planner.__module__}.decide", _broken)
            await fleet.signal_catalog(scene.catalog(5))
            deadline = time.monotonic() + LIMIT_S
            while "a bug of this release" not in str((await fleet.query(names.STATUS))["safe_mode"]):
                assert time.monotonic() < deadline, "safe mode is never told"
                await asyncio.sleep(0.05)
            assert len(scene.routed) == 2
        await fleet.signal_catalog(scene.catalog(4))
        await scene.serves(4)
        assert not (await fleet.query(names.STATUS))["safe_mode"]
        await fleet.handle.terminate("the test is over")


def _broken(*_: object) -> None:
    raise RuntimeError("a bug of this release")


@asynccontextmanager
async def _worker(fleet: Fleet, folder: Path, number: int) -> AsyncIterator[Any]:
    argv = [
        *(sys.executable, "-m", "workers.main", "--fleet", fleet.name, "--installation", "test"),
        *("--address", fleet.client.service_client.config.target_host),
        *("--metrics-listen", "off", "--identity", f"worker-{number}"),
    ]
    with child(argv, folder / f"worker-{number}.log", {"PYTHONPATH": str(Path.cwd())}) as process:
        yield process


async def test_a_frozen_worker_that_wakes_up_late_changes_nothing(client: Client, scene: Scene, tmp_path: Path) -> None:
    await ensure(client, name := unique("frozen"), "test", now_s=1_700_000_000)
    fleet = Fleet(client, name)
    async with _worker(fleet, tmp_path, 0) as one, _worker(fleet, tmp_path, 1) as two:
        await fleet.apply(scene.catalog(3))
        await scene.serves(3)
        acting = int(str((await fleet.query(names.STATUS))["acting"]).rpartition(":")[2])
        frozen = next(worker for worker in (one, two) if worker.pid == acting)
        frozen.send(signal.SIGSTOP)
        await fleet.signal_catalog(scene.catalog(6))
        await scene.serves(6)
        await fleet.signal_catalog(scene.catalog(2))
        await scene.serves(2)
        kept, seq = scene.running, scene.router.token
        frozen.send(signal.SIGCONT)
        await fleet.apply(scene.catalog(3))
        await scene.serves(3)
        assert set(kept) <= set(scene.running)
        assert set(scene.starts.values()) == {1}
        assert scene.router.token is not None
        assert seq is not None
        assert scene.router.token.seq > seq.seq
        await fleet.handle.terminate("the test is over")
