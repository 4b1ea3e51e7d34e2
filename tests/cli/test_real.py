"""The command line as processes against a real Temporal server, with a worker and without one."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.testing import WorkflowEnvironment

ROOT = Path(__file__).parents[2]
TEMPORAL = Path(sys.executable).parent / "temporal"
LIMIT_S = 60.0
WORKER = ("--fleet", "real", "--installation", "t", "--metrics-listen", "off")

pytestmark = pytest.mark.real


class Shell:
    """Runs `llmgw …` and other processes of ours as a user does."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.environment = {
            **os.environ,
            "TEMPORAL_ADDRESS": client.service_client.config.target_host,
            "COLUMNS": "200",
        }

    async def start(self, module: str, *args: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        argv = (sys.executable, "-m", module, *args)
        return await asyncio.create_subprocess_exec(*argv, stdout=pipe, stderr=pipe, cwd=ROOT, env=self.environment)

    async def __call__(self, *args: str) -> tuple[int | None, str, str]:
        process = await self.start("cli.main", *args)
        out, err = await asyncio.wait_for(process.communicate(), LIMIT_S)
        return process.returncode, out.decode(), err.decode()

    async def end(self, fleet: str) -> None:
        """Cancel the fleet's workflow, and wait until it has ended."""
        handle = self.client.get_workflow_handle(f"fleet-{fleet}")
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await asyncio.wait_for(handle.result(), LIMIT_S)


@pytest.fixture
async def llmgw() -> AsyncIterator[Shell]:
    server = await WorkflowEnvironment.start_local(dev_server_existing_path=str(TEMPORAL), dev_server_log_level="error")
    async with server:
        yield Shell(server.client)


async def first_line(stream: asyncio.StreamReader | None, words: str) -> None:
    """Until a line holds `words`."""
    assert stream is not None
    while words not in (line := (await asyncio.wait_for(stream.readline(), LIMIT_S)).decode()):
        assert line, f"it ended before it said {words!r}"


async def test_a_fleet_from_nothing_to_its_end(llmgw: Shell, tmp_path: Path) -> None:
    code, out, err = await llmgw("status", "--fleet", "real")
    assert (code, out) == (3, "")
    assert "there is no fleet real: `llmgw worker --fleet real` starts it" in err
    code, _, err = await llmgw("status", "--namespace", "nope")
    assert code == 3
    assert "no namespace nope" in err

    worker = await llmgw.start("cli.main", "worker", *WORKER)
    try:
        await first_line(worker.stderr, "working for fleet real")
        code, out, _ = await llmgw("doctor", "fleet", "--fleet", "real", "--json")
        health = {check["subject"]: check["health"] for check in json.loads(out)["checks"]}
        # A dev server has none of the search attributes, one worker runs, and nothing is declared yet.
        assert health.pop("workflow") in ("fine", "doubt")  # it settles, or has no catalog
        assert health == {
            "Temporal": "fine",
            "search attributes": "doubt",
            "workers": "doubt",
            "agents and routers": "doubt",
        }
        assert code == 0
        await operate(llmgw, tmp_path)
        await llmgw.end("real")
        worker.terminate()
        assert await asyncio.wait_for(worker.wait(), LIMIT_S) == 0
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()

    code, _, err = await llmgw("--fleet", "real", "cordon", "node-a")
    assert code == 3
    assert "fleet real has ended: `llmgw worker --fleet real --fresh` starts it anew" in err
    code, _, err = await llmgw("worker", *WORKER)
    assert code == 1
    assert "llmgw worker: fleet real was ended; start it anew with --fresh" in err


async def operate(llmgw: Shell, tmp_path: Path) -> None:
    file = tmp_path / "catalog.json"
    nodes = [{"id": "node-a", "url": "http://127.0.0.1:1"}]
    file.write_text(json.dumps({"nodes": nodes, "models": []}))
    code, out, err = await llmgw("--fleet", "real", "apply", str(file), "--no-wait")
    assert (code, out.splitlines()[-1].strip()) == (0, "node node-a added"), err
    code, out, _ = await llmgw("--fleet", "real", "cordon", "node-a")
    assert (code, out) == (0, "accepted: cordon node-a; `llmgw uncordon node-a` takes it back\n")
    code, out, err = await llmgw("--fleet", "real", "cordon", "node-b")
    assert (code, out) == (1, "")
    assert "there is no node called 'node-b'" in err
    code, out, _ = await llmgw("nodes", "--fleet", "real", "--json")
    assert (code, [node["cordoned"] for node in json.loads(out)]) == (0, [True])
    for words in ("status", "models", "replicas", "devices", "endpoints", "routers", "explain node-a"):
        code, out, err = await llmgw("--fleet", "real", *words.split())
        assert (code, err) == (0, ""), words
        assert out
