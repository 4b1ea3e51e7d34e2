"""Containers once more, with the real podman and docker: what `test_containers` proves of a pretended tool holds."""

import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from llmgw.wire import ContainerSpec, LaunchSpec
from tests.agent.real_containers import IMAGE, NEEDED, RealTool, real_tool
from tests.agent.running import Agent, agent_in, alive, start, stop, stub

ABSENT = "localhost/llmgw-absent:1"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's containers have the host's network and cgroups")


@pytest.fixture(scope="module", params=["podman", "docker"])
def tool(request: pytest.FixtureRequest) -> Iterator[RealTool]:
    missing = [name for name in NEEDED[request.param] if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not there: {', '.join(missing)}")
    with real_tool(request.param) as made:
        yield made


@pytest.fixture
async def agent(tmp_path: Path, tool: RealTool) -> AsyncIterator[Agent]:
    flags = ("--container-tool", str(tool.tool), "--allow-images", f"{IMAGE},{ABSENT}")
    async with agent_in(tmp_path, *flags) as made:
        made.flags = flags
        yield made
        await made.kill()
    tool.clear()


def contained(how: str = "", term_limit_s: float = 10.0) -> LaunchSpec:
    base = stub(term_limit_s=term_limit_s)
    argv = (IMAGE, "m", "${llmgw:port}", how)
    return base.model_copy(update={"argv": argv, "container": ContainerSpec(image=IMAGE, own_entrypoint=True)})


async def test_a_container_becomes_ready_and_leaves_nothing_behind(agent: Agent, tool: RealTool) -> None:
    await agent.send(1, start("m-1", contained()))
    row = await agent.row("m-1", "ready")
    (box,) = tool.boxes()
    assert box["Config"]["Labels"]["llmgw.replica"] == "m-1"
    inside = box["State"]["Pid"]
    assert alive(inside)
    async with httpx.AsyncClient(trust_env=False) as http:
        listed = (await http.get(f"{row.url}/v1/models")).json()
    assert listed["data"][0]["id"] == "m"
    await agent.send(2, stop("m-1"))
    await agent.without("m-1")
    assert tool.boxes() == []
    assert not alive(inside)
    assert agent.ours() == []


async def test_one_that_hears_no_term_is_killed_and_removed(agent: Agent, tool: RealTool) -> None:
    await agent.send(1, start("m-1", contained("deaf", term_limit_s=0.3)))
    await agent.row("m-1", "ready")
    inside = tool.boxes()[0]["State"]["Pid"]
    await agent.send(2, stop("m-1"))
    await agent.without("m-1")
    assert tool.boxes() == []
    assert not alive(inside)


async def test_a_crash_has_its_exit_code_and_last_words(agent: Agent, tool: RealTool) -> None:
    await agent.send(1, start("m-1", contained("crash")))
    row = await agent.row("m-1", "failed")
    assert row.exit_code == 7
    assert "crashing as told" in row.log_tail
    await agent.send(2, start("m-1", contained(), attempt=2))
    await agent.row("m-1", "ready")
    assert len(tool.boxes()) == 1, "the first attempt's is removed before the second's is made"


@pytest.mark.parametrize("loss", ["nothing", "the client", "the ledger", "client and ledger"])
async def test_it_is_adopted_whatever_was_lost_with_the_agent(agent: Agent, tool: RealTool, loss: str) -> None:
    await agent.send(1, start("m-1", contained()))
    before = await agent.row("m-1", "ready")
    inside = tool.boxes()[0]["State"]["Pid"]
    await agent.come_back(before.pid, loss)
    after = await agent.row("m-1", "ready")
    (box,) = tool.boxes()
    assert box["State"]["Pid"] == inside
    assert (after.port, after.mark) == (before.port, before.mark)
    await agent.send(2, stop("m-1"))
    await agent.without("m-1")
    assert tool.boxes() == []
    assert not alive(inside)


async def test_one_killed_from_outside_is_seen_with_its_signal(agent: Agent, tool: RealTool) -> None:
    await agent.send(1, start("m-1", contained()))
    await agent.row("m-1", "ready")
    os.kill(tool.boxes()[0]["State"]["Pid"], signal.SIGKILL)
    assert (await agent.row("m-1", "failed")).exit_code == 137


async def test_a_secret_reaches_the_engine_and_no_command_line(agent: Agent, tool: RealTool) -> None:
    launch = contained().model_copy(update={"secret_env": {"HF_TOKEN": "pass-phrase"}, "env": {"PLAIN": "text"}})
    await agent.send(1, start("m-1", launch))
    row = await agent.row("m-1", "ready")
    async with httpx.AsyncClient(trust_env=False) as http:
        inside = (await http.get(f"{row.url}/env")).text.splitlines()
    assert {"HF_TOKEN=open-sesame", "PLAIN=text"} <= set(inside)
    assert not any(line.startswith("LLMGW_SECRET") for line in inside)
    assert "open-sesame" not in " ".join(psutil.Process(row.pid).cmdline())
    (box,) = tool.boxes()
    assert "open-sesame" not in " ".join(box["Config"]["Labels"].values())


async def test_an_image_that_cannot_be_had_fails_with_the_tools_words(agent: Agent) -> None:
    launch = contained().model_copy(update={"container": ContainerSpec(image=ABSENT, own_entrypoint=True)})
    await agent.send(1, start("m-1", launch.model_copy(update={"argv": (ABSENT, *launch.argv[1:])})))
    row = await agent.row("m-1", "failed")
    assert row.exit_code == 125
    assert any("llmgw-absent" in line for line in row.log_tail)


async def test_a_container_runs_as_who_is_asked_for(tmp_path: Path, tool: RealTool) -> None:
    flags = ("--container-tool", str(tool.tool), "--allow-images", IMAGE, "--container-user", "1234:1235")
    async with agent_in(tmp_path, *flags) as agent:
        try:
            await agent.send(1, start("m-1", contained()))
            await agent.report(lambda report: any(row.pid for row in report.replicas) and bool(tool.boxes()))
            (box,) = tool.boxes()
            assert box["Config"]["User"] == "1234:1235"
            await agent.send(2, stop("m-1", force=True))
            await agent.without("m-1")
            assert tool.boxes() == []
        finally:
            tool.clear()
