"""Engines in containers live as processes do: started once, adopted, stopped with proof, and removed."""

import asyncio
import json
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.containers import Mount, ToolFailed, container_name, numbered_anew, parse_inspect, run_invocation
from agent.launch import Invocation
from agent.ledger import Record
from agent.mounts import mounts_for, really_at
from llmgw.ids import DeviceId, NodeId, ReplicaId
from llmgw.wire import ContainerSpec, Device, LaunchSpec, Mark, Outcome, RefusalCode
from tests.agent import fake_containers
from tests.agent.running import LIMIT_S, Agent, agent_in, alive, start, stop, stub


class Docker:
    """The pretended docker's state, seen from a test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.tool = folder / "docker"
        self.tool.write_text(f'#!/bin/sh\nexec {sys.executable} {fake_containers.__file__} {folder} "$@"\n')
        self.tool.chmod(self.tool.stat().st_mode | stat.S_IXUSR)

    def names(self) -> list[str]:
        return [file.stem for file in self.folder.glob("*.json")]

    def box(self) -> dict[str, Any]:
        (name,) = self.names()
        return fake_containers.read(self.folder, name)

    def calls(self, verb: str) -> list[list[str]]:
        lines = (self.folder / "calls").read_text().splitlines()
        return [words for words in map(json.loads, lines) if words[0] == verb]


@pytest.fixture
def docker(tmp_path: Path) -> Docker:
    return Docker(tmp_path / "docker")


@pytest.fixture
async def agent(tmp_path: Path, docker: Docker) -> AsyncIterator[Agent]:
    flags = ("--container-tool", str(docker.tool), "--allow-images", "stub:*,gone:*")
    async with agent_in(tmp_path, *flags) as made:
        made.flags = flags
        yield made


def contained(*args: str, image: str = "stub:1", own: bool = False, term_limit_s: float = 2.0) -> LaunchSpec:
    base = stub(*args, term_limit_s=term_limit_s)
    argv = (image, *base.argv[3:]) if own else base.argv
    return base.model_copy(update={"argv": argv, "container": ContainerSpec(image=image, own_entrypoint=own)})


async def until(test: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not test():  # noqa: ASYNC110 - a folder tells no event
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("own", [False, True], ids=["its own program", "the image's entrypoint"])
async def test_a_container_becomes_ready_and_is_gone_only_when_the_tool_lists_it_no_more(
    agent: Agent, docker: Docker, own: bool
) -> None:
    (docker.folder / "slow").touch()
    await agent.send(1, start("m-1", contained("--load-s", "0.2", own=own)))
    row = await agent.row("m-1", "ready")
    assert row.port is not None
    assert str(row.port) in docker.box()["argv"]
    await agent.send(2, stop("m-1"))
    await agent.without("m-1")
    assert docker.names() == []
    assert agent.ours() == []


async def test_a_crash_in_a_container_has_its_exit_code_and_words_and_a_stop_removes_what_is_left(
    agent: Agent, docker: Docker
) -> None:
    await agent.send(1, start("m-1", contained("--crash-after-s", "0.3", "--exit-code", "7")))
    row = await agent.row("m-1", "failed")
    assert (row.exit_code, row.was_ready) == (7, True)
    assert "crashing as told" in row.log_tail
    assert len(docker.names()) == 1
    await agent.send(2, stop("m-1"))
    await agent.without("m-1")
    assert docker.names() == []


async def test_a_failed_container_is_started_again_under_a_name_of_its_own(agent: Agent, docker: Docker) -> None:
    await agent.send(1, start("m-1", contained("--crash-after-s", "0", "--load-s", "9")))
    await agent.row("m-1", "failed")
    await agent.send(2, start("m-1", contained(), attempt=2))
    await agent.row("m-1", "ready")
    assert len(docker.names()) == 1, "what the first attempt left is removed before the second"
    first, second = docker.calls("run")
    assert first[2] != second[2]


async def test_force_kills_and_removes_a_container_that_ignores_term(agent: Agent, docker: Docker) -> None:
    await agent.send(1, start("m-1", contained("--ignore-term", term_limit_s=0.2)))
    await agent.row("m-1", "ready")
    await agent.send(2, stop("m-1"))
    await agent.without("m-1")
    assert docker.names() == []
    assert agent.ours() == []


@pytest.mark.parametrize("loss", ["nothing", "the client", "the ledger", "client and ledger"])
async def test_a_container_is_adopted_whatever_was_lost_with_the_agent(agent: Agent, docker: Docker, loss: str) -> None:
    await agent.send(1, start("m-1", contained()))
    before = await agent.row("m-1", "ready")
    inside = docker.box()["pid"]
    await agent.come_back(before.pid, loss)
    after = await agent.row("m-1", "ready")
    assert docker.box()["pid"] == inside
    assert (after.port, after.mark) == (before.port, before.mark)
    assert (after.pid == before.pid) is ("client" not in loss)
    await agent.send(2, stop("m-1"))
    await agent.without("m-1")
    assert docker.names() == []
    assert agent.ours() == []


async def test_a_container_outlives_its_client_and_is_watched_on(agent: Agent, docker: Docker) -> None:
    await agent.send(1, start("m-1", contained()))
    row = await agent.row("m-1", "ready")
    assert row.pid is not None
    os.kill(row.pid, signal.SIGKILL)
    await agent.report(lambda r: r.replicas[0].pid not in (None, row.pid) and r.replicas[0].state == "ready")
    inside = docker.box()["pid"]
    assert isinstance(inside, int)
    os.kill(inside, signal.SIGKILL)
    assert (await agent.row("m-1", "failed")).exit_code == 137, "told by the new client"


async def test_a_container_removed_by_hand_is_not_running(agent: Agent, docker: Docker) -> None:
    await agent.send(1, start("m-1", contained()))
    await agent.row("m-1", "ready")
    (name,) = docker.names()
    fake_containers.rm(docker.folder, ["--force", name])
    await agent.row("m-1", "failed")


async def test_while_the_tool_does_not_answer_nothing_is_proven_gone(agent: Agent, docker: Docker) -> None:
    launch = contained("--ignore-term", term_limit_s=0.2)
    launch = launch.model_copy(update={"stop": launch.stop.model_copy(update={"kill_limit_s": 0.3})})
    device = (await agent.report()).inventory.devices[0].id
    await agent.send(1, start("m-1", launch, device))
    await agent.row("m-1", "ready")
    (docker.folder / "down").touch()
    await agent.send(2, stop("m-1", force=True))
    report = await agent.report(lambda r: device in r.quarantined)
    assert "Cannot connect to the Docker daemon" in report.quarantined[device]
    (docker.folder / "down").unlink()
    await agent.without("m-1")
    assert docker.names() == []


async def test_leftovers_of_ours_that_no_record_knows_are_cleared_and_strangers_are_not(
    agent: Agent, docker: Docker
) -> None:
    await agent.send(1, start("m-1", contained("--crash-after-s", "0", "--load-s", "9")))
    await agent.row("m-1", "failed")
    fake_containers.write(docker.folder, "stranger", {"status": "exited", "labels": {"llmgw.home": "/elsewhere"}})
    await agent.kill()
    (agent.state_dir / "ledger.json").unlink()
    await agent.begin(*agent.flags)
    assert docker.names() == ["stranger"]


@pytest.mark.parametrize(
    ("image", "code", "word"),
    [
        ("other:1", RefusalCode.NOT_ALLOWED, "--allow-images stub:*, gone:*"),
        ("--privileged", RefusalCode.NOT_ALLOWED, "no image"),
    ],
)
async def test_images_that_may_not_run_are_refused(agent: Agent, image: str, code: RefusalCode, word: str) -> None:
    result = (await agent.send(1, start("m-1", contained(image=image)))).results[0]
    assert result.refusal is not None
    assert (result.outcome, result.refusal.code) == (Outcome.REFUSED, code)
    assert word in result.refusal.message


async def test_an_image_that_cannot_be_had_fails_with_the_tools_words(agent: Agent) -> None:
    await agent.send(1, start("m-1", contained(image="gone:1")))
    row = await agent.row("m-1", "failed")
    assert row.exit_code == 125
    assert "docker: pull access denied" in row.log_tail


async def test_secrets_are_in_no_command_line_and_in_no_label(agent: Agent, docker: Docker) -> None:
    launch = contained().model_copy(update={"secret_env": {"HF_TOKEN": "pass-phrase"}, "env": {"PLAIN": "text"}})
    await agent.send(1, start("m-1", launch))
    row = await agent.row("m-1", "ready")
    assert "open-sesame" not in (docker.folder / "calls").read_text()
    assert "open-sesame" not in " ".join(psutil.Process(row.pid).cmdline())
    inside = docker.box()["env"]
    assert isinstance(inside, dict)
    assert (inside["HF_TOKEN"], inside["PLAIN"]) == ("open-sesame", "text")
    assert not any(name.startswith("LLMGW_SECRET") for name in inside), "nothing else of the agent's goes in"


async def test_a_secret_whose_value_the_client_would_show_is_a_refusal_and_starts_nothing(
    agent: Agent, docker: Docker
) -> None:
    launch = contained().model_copy(update={"secret_env": {"DOCKER_TOKEN": "pass-phrase", "HOMEPAGE": "pass-phrase"}})
    await agent.send(1, start("m-1", launch))
    row = await agent.row("m-1", "failed")
    assert row.reason.startswith("secrets as DOCKER_TOKEN would be seen")
    assert docker.names() == []


async def test_weights_and_the_hubs_cache_are_where_the_node_has_them(tmp_path: Path, docker: Docker) -> None:
    """A snapshot is a folder of links: the container sees what they lead to, and fetches into the node's cache."""
    root = tmp_path / "weights, all"
    blobs, snapshot = tmp_path / "else/m/blobs", tmp_path / "else/m/snapshots/1"
    for folder in (root, blobs, snapshot):
        folder.mkdir(parents=True)
    (blobs / "b").write_bytes(b"weights")
    (snapshot / "model.gguf").symlink_to("../../blobs/b")
    (tmp_path / "current").symlink_to(snapshot)
    flags = ("--container-tool", str(docker.tool), "--weights-root", str(root))
    async with agent_in(tmp_path, *flags) as agent:
        source = {"weights": f"file://{tmp_path / 'current'}", "env": {"WEIGHTS": "${llmgw:weights}"}}
        launch = contained().model_copy(update=source)
        await agent.send(1, start("m-1", launch))
        await agent.row("m-1", "ready")
        (run,) = docker.calls("run")
        mounts = [run[at + 1] for at, word in enumerate(run) if word == "--mount"]
        assert mounts == [
            f'type=bind,"source={root}","target={root}"',
            f"type=bind,source={snapshot},target={snapshot},readonly",
            f"type=bind,source={blobs},target={blobs},readonly",
        ]
        inside = docker.box()["env"]
        assert inside["WEIGHTS"] == str(snapshot), "where the links are right"
        assert inside["HF_HUB_CACHE"] == str(root)
        assert not inside.keys() & {"LLMGW_AGENT_WEIGHTS_ROOT", "LLMGW_TOKENS", "USER", "LOGNAME"}
        assert "--init" in run
        assert run[run.index("--network") + 1] == "host"
        await agent.send(2, stop("m-1"))
        await agent.without("m-1")


async def test_a_container_that_the_kernel_ended_for_want_of_memory_says_so(agent: Agent, docker: Docker) -> None:
    (docker.folder / "oom").touch()
    await agent.send(1, start("m-1", contained()))
    row = await agent.row("m-1", "ready")
    os.kill(docker.box()["pid"], signal.SIGKILL)
    row = await agent.row("m-1", "failed")
    assert (row.exit_code, "out of memory" in row.reason) == (137, True)


async def test_a_node_without_a_tool_refuses_containers(tmp_path: Path) -> None:
    async with agent_in(tmp_path, "--container-tool", "none") as agent:
        refusal = (await agent.send(1, start("m-1", contained()))).results[0].refusal
        assert refusal is not None
        assert refusal.code is RefusalCode.NOT_FOUND
        assert "no docker or podman" in refusal.message


async def test_a_start_interrupted_before_the_container_was_made_goes_on(agent: Agent, docker: Docker) -> None:
    """The agent dies with its client already gone: accepted, and no container."""
    await agent.send(1)
    (docker.folder / "down").touch()
    await agent.send(2, start("m-1", contained()))
    row = await agent.row("m-1", "failed")
    assert not alive(row.pid)
    assert "cannot clear" in row.reason
    (docker.folder / "down").unlink()
    await agent.send(3, start("m-1", contained(), attempt=2))
    await agent.row("m-1", "ready")


def test_a_file_of_weights_comes_with_its_shards_and_nothing_else_of_its_folder(tmp_path: Path) -> None:
    shards = [tmp_path / f"m-0000{n}-of-00002.gguf" for n in (1, 2)]
    (tmp_path / "blob").write_bytes(b"x")
    for shard in shards:
        shard.symlink_to("blob")
    (tmp_path / "private").write_text("not for engines")
    (tmp_path / "linked").symlink_to(tmp_path)
    first = really_at(tmp_path / "linked" / shards[0].name)
    assert first == shards[0], "the name counts the shards; the folder is the real one"
    assert mounts_for(str(first), None) == tuple(Mount(str(shard)) for shard in shards)
    assert mounts_for(str(first), tmp_path) == (Mount(str(tmp_path), writable=True),), "the root holds them"
    for nowhere in ("", "org/repo", str(tmp_path / "gone")):
        assert mounts_for(nowhere, None) == ()


# --- pure ----------------------------------------------------------------------------------------------------------


def record(replica: str = "m-1", attempt: int = 1) -> Record:
    mark = Mark(installation="here", fleet="f", replica=ReplicaId(replica), epoch=1, seq=1)
    return Record(start=start(replica, contained(), attempt=attempt), mark=mark, home="/state", port=21000)


def test_no_two_attempts_replicas_or_nodes_share_a_name() -> None:
    made = [(r, a, n) for r in ("a", "A", "a.b", "模型-1", "γ-1") for a in (1, 2) for n in ("n1", "n2")]
    names = {container_name(record(replica, attempt), NodeId(node)) for replica, attempt, node in made}
    assert len(names) == len(made)
    assert all(name.isascii() and len(name) < 64 and name[0].isalnum() for name in names)


def device(vendor: str, name: str, index: int = 0) -> tuple[Device, int]:
    return Device(id=DeviceId(name), index=index, kind="x", vendor=vendor), index


@pytest.mark.parametrize(
    ("tool", "devices", "flags"),
    [
        ("docker", (device("nvidia", "GPU-a", 2), device("nvidia", "GPU-b", 5)), ["--gpus", '"device=GPU-a,GPU-b"']),
        ("podman", (device("nvidia", "GPU-a"),), ["--device", "nvidia.com/gpu=GPU-a"]),
        ("docker", (device("amd", "GPU-a"),), ["--device", "/dev/kfd", "--device", "/dev/dri", "--group-add", "video"]),
        ("docker", (device("ascend", "x", 3),), ["--device", "/dev/davinci3", "--device", "/dev/davinci_manager"]),
        ("docker", (device("declared", "x"),), []),
        ("docker", (), []),
    ],
    ids=["nvidia", "podman", "amd", "ascend", "declared", "none"],
)
def test_a_container_is_shown_the_devices_it_claims_and_no_other(
    tool: str, devices: tuple[tuple[Device, int], ...], flags: list[str]
) -> None:
    inside = Invocation(argv=("serve", "", "a b"), env={"HOME": "/h", "TOKEN": "t"})
    spec = ContainerSpec(image="i:1")
    mounts = (Mount("/w", writable=True), Mount("/m"))
    made = run_invocation(f"/bin/{tool}", inside, spec, record(), NodeId("n1"), devices, mounts, {"PATH": "/bin"})
    at = made.argv.index("--restart") + 2
    assert list(made.argv[at : at + len(flags)]) == flags
    assert made.argv[-5:] == ("--entrypoint", "serve", "i:1", "", "a b")
    assert "type=bind,source=/w,target=/w" in made.argv
    assert "type=bind,source=/m,target=/m,readonly" in made.argv
    assert "HOME=/h" in made.argv, "the client reads its own HOME"
    assert made.env == {"PATH": "/bin", "TOKEN": "t"}
    assert ("--init" in made.argv) is (tool == "docker"), "podman's is a package that may be missing"
    given = any(one.vendor == "nvidia" for one, _ in devices)
    assert ("NVIDIA_VISIBLE_DEVICES=void" in made.argv) is not given, "an image asks for all devices"


def test_numbers_begin_anew_within_a_container() -> None:
    (one, _), (two, _) = device("nvidia", "GPU-a", 4), device("nvidia", "GPU-b", 6)
    env = {"CUDA_VISIBLE_DEVICES": "4,6", "X": "4,6"}
    assert numbered_anew(env, ("CUDA_VISIBLE_DEVICES",), (one, two)) == {"CUDA_VISIBLE_DEVICES": "0,1", "X": "4,6"}
    amd, _ = device("amd", "GPU-a", 4)
    assert numbered_anew({"HIP_VISIBLE_DEVICES": "4"}, ("HIP_VISIBLE_DEVICES",), (amd,)) == {"HIP_VISIBLE_DEVICES": "4"}


@pytest.mark.parametrize("text", ["", "no such", "{}", '[{"Name": "x"}]', '[{"State": 1, "Config": {}, "Name": ""}]'])
def test_what_is_no_answer_of_the_tool_is_a_failure_not_an_absence(text: str) -> None:
    with pytest.raises(ToolFailed):
        parse_inspect(text)


def test_podman_and_docker_tell_alike() -> None:
    labels = {"llmgw.replica": "m-1", "llmgw.record": "{torn"}
    rows = [
        {"Name": "/d", "State": {"Status": "running", "Pid": 7}, "Config": {"Labels": labels}},
        {"Name": "p", "State": {"Status": "exited", "Pid": 0}, "Config": {"Labels": labels}},
    ]
    docker_, podman = parse_inspect(json.dumps(rows))
    assert (docker_.name, docker_.runs, docker_.pid, docker_.record) == ("d", True, 7, None)
    assert (podman.name, podman.runs) == ("p", False)
