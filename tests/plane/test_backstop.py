"""What a router holds is compared with what it should hold, and mended with no change needed."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.client import Client

from bench.fleet.skins import FleetSkin, serving
from llmgw import table as tables
from llmgw.ids import NodeId, RouterId
from sim.node import SimNode, devices
from sim.router import SimRouter
from tests.plane.conftest import working
from workflows.client import Fleet

NODE, NATIVE = NodeId("localhost"), RouterId("native")
"""Simulated engines are reached at their node's id, which has to be a name that is known here."""
REPAIR_LIMIT_S = 60.0


@dataclass
class Scene:
    fleet: Fleet
    router: SimRouter
    file: Path

    async def until(self, test: Callable[[dict[str, Any]], bool], limit_s: float = REPAIR_LIMIT_S) -> None:
        """Wait until the routers' rows in the status satisfy `test`."""
        async with asyncio.timeout(limit_s):
            while not test({r["id"]: r for r in (await self.fleet.query("status"))["routers"]}):  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def holds(self, test: Callable[[], bool]) -> None:
        """Wait until what a router holds satisfies `test`."""
        async with asyncio.timeout(REPAIR_LIMIT_S):
            while not test():  # noqa: ASYNC110 - a simulated router and a file have no events
                await asyncio.sleep(0.05)

    def targets(self) -> list[str]:
        groups = json.loads(self.file.read_text()) if self.file.exists() else []
        return [group["labels"]["replica"] for group in groups]


@asynccontextmanager
async def scene(client: Client, directory: Path) -> AsyncIterator[Scene]:
    """A fleet with one running replica, our router, and Prometheus's file; a third router's directory is missing."""
    router = SimRouter(NATIVE)
    skin = FleetSkin({NODE: SimNode(NODE, devices(NODE, 1), start_s=0.0, stop_s=0.0)}, {NATIVE: router})
    file = directory / "targets.json"
    async with serving(skin) as base, working(client, f"t-{uuid.uuid4().hex[:8]}") as fleet:
        await fleet.apply(
            {
                "nodes": [{"id": NODE, "url": f"{base}/node/{NODE}"}],
                "routers": [
                    {"id": NATIVE, "url": f"{base}/router/{NATIVE}"},
                    {"id": "scrapes", "kind": "prometheus", "url": f"file://{file}"},
                    {"id": "broken", "kind": "llm-d", "url": f"file://{directory}/absent/x.json"},
                ],
                "models": [{"name": "m", "profiles": [{"name": "p", "engine": "stub"}]}],
            }
        )
        made = Scene(fleet, router, file)
        await made.until(lambda rows: rows[NATIVE]["current"] and rows["scrapes"]["current"])
        await made.holds(lambda: len(router.table.endpoints) == 1 and made.targets() == list(router.table.endpoints))
        yield made
        await fleet.handle.terminate("the test is over")


async def test_a_file_that_was_edited_or_removed_is_written_anew(client: Client, tmp_path: Path) -> None:
    async with scene(client, tmp_path) as made:
        right = made.file.read_text()
        made.file.write_text("[]")
        await made.holds(lambda: made.file.read_text() == right)
        made.file.unlink()
        await made.holds(lambda: made.file.exists() and made.file.read_text() == right)
        made.file.with_name("targets.json.llmgw").unlink()
        await made.holds(lambda: made.file.with_name("targets.json.llmgw").exists())
        await made.until(lambda rows: rows["scrapes"]["current"])


async def test_a_router_that_lost_its_table_is_told_it_anew(client: Client, tmp_path: Path) -> None:
    async with scene(client, tmp_path) as made:
        endpoints = made.router.table.endpoints
        made.router.table, made.router.token = tables.EMPTY, None
        made.router.instance = "router-2"
        made.router.revision += 1
        await made.holds(lambda: made.router.table.endpoints == endpoints)
        await made.until(lambda rows: rows[NATIVE]["current"])


async def test_one_broken_router_delays_no_other_and_says_why(client: Client, tmp_path: Path) -> None:
    async with scene(client, tmp_path) as made:
        await made.until(lambda rows: "absent" in rows["broken"]["problem"])
        await made.until(lambda rows: rows[NATIVE]["current"] and not rows["broken"]["current"])
        (tmp_path / "absent").mkdir()
        await made.until(lambda rows: rows["broken"]["current"] and rows["broken"]["problem"] == "")
        assert (tmp_path / "absent" / "x.json").exists()
