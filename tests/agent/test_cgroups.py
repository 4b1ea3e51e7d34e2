"""What sheds every mark and leaves every session is still the engine's: it cannot leave its cgroup."""

import os
from pathlib import Path

import pytest

from agent.cgroups import cgroups_for, own_cgroup
from llmgw.ids import ReplicaId
from tests.agent.running import Agent, alive, start, stop, stub


@pytest.fixture(autouse=True)
def _allowed(tmp_path: Path) -> None:
    if not cgroups_for(str(tmp_path)).works:
        pytest.skip("this machine does not let us make a cgroup")


async def child_of(agent: Agent, replica: str) -> int:
    text = (await agent.http.get(f"/v1/replicas/{replica}/logs")).text
    return int(next(line for line in text.splitlines() if line.startswith("child:")).split()[1])


@pytest.mark.parametrize("ends", ["a stop", "a crash, then a stop", "another agent's stop"])
async def test_a_child_without_mark_and_session_ends_with_its_engine(agent: Agent, ends: str) -> None:
    await agent.send(1, start("m-1", stub("--leave-child", "stranger", term_limit_s=0.5)))
    await agent.row("m-1", "ready")
    child = await child_of(agent, "m-1")
    assert [process.pid for process in agent.ours()] != [], "the engine is marked, the child is not"
    assert child not in [process.pid for process in agent.ours()]
    if "crash" in ends:
        await agent.tell("m-1", "crash")
        await agent.row("m-1", "failed")
        assert alive(child)
    if "another" in ends:
        await agent.kill()
        await agent.begin()
    await agent.send(2, stop("m-1"))
    await agent.without("m-1")
    assert not alive(child)


async def test_no_cgroup_is_left_behind(agent: Agent) -> None:
    groups = cgroups_for(str(agent.state_dir))
    await agent.send(1, start("m-1", stub()))
    row = await agent.row("m-1", "ready")
    assert row.pid is not None
    assert groups.pids(ReplicaId("m-1")) == {row.pid}
    assert groups.holds(row.pid)
    assert not groups.holds(os.getpid())
    await agent.send(2, stop("m-1"))
    await agent.without("m-1")
    assert groups.pids(ReplicaId("m-1")) == frozenset()
    assert groups.replicas() == ()


@pytest.mark.parametrize(
    ("cgroup", "mount", "found"),
    [
        (
            "0::/system.slice/agent.service\n",
            "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
            "system.slice/agent.service",
        ),
        ("0::/a/llmgw-12ab/m-1\n", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", "a"),
        ("0::/pod/x\n", "30 20 0:26 /pod /sys/fs/cgroup rw - cgroup2 cgroup2 rw", "x"),
        ("1:cpu:/\n", "30 20 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu", None),
    ],
    ids=["a service", "begun within an engine's", "a container's view", "version 1 alone"],
)
def test_its_own_cgroup_is_found_as_the_kernel_tells(
    tmp_path: Path, cgroup: str, mount: str, found: str | None
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("4:memory:/x\n" + cgroup)
    (tmp_path / "self/mountinfo").write_text(f"20 1 0:1 / / rw - ext4 root rw\n{mount}\n")
    own = own_cgroup(tmp_path)
    assert own == (Path("/sys/fs/cgroup") / found if found else None)
