"""What engines, kernels, disks and people do to an agent that tracks processes: each incident, and what must hold."""

import asyncio
import errno
import os
import shutil
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from agent import census as census_module
from agent.census import CensusTaker
from agent.cgroups import Cgroups
from agent.enginelogs import EngineLogs
from agent.engines import start as start_process
from agent.hearing import ABANDONED_S, DAY_S, Hearing
from agent.launch import Invocation
from agent.oom import MemoryDeaths
from agent.ports import listens_at
from agent.proc import Census, parse_stat, take_census
from agent.statefolder import StateFolder, StateInUse
from agent.stopping import describe
from agent.symptoms import answering_host, why_unheard
from llmgw.ids import NodeId, ReplicaId
from tests.agent.running import Agent, alive, start, stop, stub
from tests.agent.test_comeback import process

# --- what the kernel does not tell ---------------------------------------------------------------------------------


def proc_with(folder: Path, *pids: int) -> Path:
    proc = folder / "proc"
    for pid in pids:
        (proc / str(pid)).mkdir(parents=True)
        fields = " ".join(["S", "1", str(pid), str(pid), *["0"] * 13, "1", "0", "77", *["0"] * 30])
        (proc / str(pid) / "stat").write_text(f"{pid} (x) {fields}\n")
        (proc / str(pid) / "environ").write_bytes(b"A=1\0")
    return proc


def test_a_list_of_processes_that_is_not_whole_is_no_list(tmp_path: Path) -> None:
    proc = proc_with(tmp_path, os.getpid(), 7)
    assert {one.pid for one in take_census(b"X=", proc).processes} == {os.getpid(), 7}
    (proc / "8").mkdir()  # gone between the list and the look
    assert len(take_census(b"X=", proc).processes) == 2
    (proc / "8/stat").write_text("")
    with pytest.raises(OSError, match="8/stat is none"):
        take_census(b"X=", proc)
    shutil.rmtree(proc / "8")
    (proc / "7/environ").unlink()
    (proc / "7/environ").mkdir()  # any error but "gone" or "another's", such as no file handle left
    with pytest.raises(IsADirectoryError):
        take_census(b"X=", proc)
    with pytest.raises(OSError, match="does not list this agent itself"):
        take_census(b"X=", proc_with(tmp_path / "other", 7))


async def test_while_processes_cannot_be_counted_nobody_is_told_that_one_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = asyncio.Event()
    answers: list[Census | OSError] = [OSError(errno.EMFILE, "Too many open files"), Census((process(7),))]

    def look(_: bytes) -> Census:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            loop.call_soon_threadsafe(told.set)
            raise answer
        return answer

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(census_module, "take_census", look)
    monkeypatch.setattr(census_module, "AGAIN_S", 0.01)
    taker = CensusTaker()
    waiting = asyncio.create_task(taker.take())
    await told.wait()
    assert (await waiting).by_pid(7) is not None
    assert (taker.problem, answers) == ("", [])


def test_an_engine_that_cannot_be_watched_is_not_left_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", none_left)
    with pytest.raises(OSError, match="Too many"):
        start_process("/bin/sleep", Invocation(("sleep", "77.125"), {}), tmp_path / "m-1" / "1.log")
    mine = [one for one in take_census(b"X=").processes if one.name == "sleep"]
    said = [Path(f"/proc/{one.pid}/cmdline").read_bytes() for one in mine if Path(f"/proc/{one.pid}").exists()]
    assert not [words for words in said if b"77.125" in words]


def test_a_stopped_process_is_known_as_such() -> None:
    fields = " ".join(["T", "1", "7", "7", *["0"] * 13, "1", "0", "77", *["0"] * 30])
    assert parse_stat(f"7 (x) {fields}".encode()).stopped
    assert not parse_stat(f"7 (x) {fields}".replace(" T ", " S ").encode()).stopped


def test_a_survivor_that_this_user_may_not_signal_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int, __: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert "which this user may not signal" in describe((process(4711),))


# --- memory --------------------------------------------------------------------------------------------------------


def counters(folder: Path, machine: int, own: int | None = None) -> MemoryDeaths:
    (folder / "vmstat").write_text(f"nr_free_pages 1\noom_kill {machine}\n")
    root = folder / "group"
    (root / "m-1").mkdir(parents=True, exist_ok=True)
    if own is not None:
        (root / "m-1" / "memory.events").write_text(f"low 0\noom 1\noom_kill {own}\n")
    return MemoryDeaths(Cgroups(root), folder)


def test_a_kill_by_the_kernel_for_want_of_memory_is_the_reason(tmp_path: Path) -> None:
    replica = ReplicaId("m-1")
    deaths = counters(tmp_path, 3)
    assert deaths.why(replica, -9) == ""
    (tmp_path / "vmstat").write_text("oom_kill 4\n")
    assert "out of memory, it seems" in deaths.why(replica, -9)
    assert deaths.why(replica, -11) == "", "a crash of its own"
    assert deaths.why(replica, 1) == ""
    deaths.sample()
    assert "out of memory" in deaths.why(replica, -9), "a death is seen a moment after it"
    deaths.sample()
    assert deaths.why(replica, -9) == "", "another's, some time ago"
    assert "ended 2 of its processes" in counters(tmp_path, 4, own=2).why(replica, -9)
    (tmp_path / "vmstat").unlink()
    assert MemoryDeaths(Cgroups(None), tmp_path).why(replica, -9) == ""


# --- logs ----------------------------------------------------------------------------------------------------------


def test_a_log_that_grows_by_gigabytes_is_halved_to_its_limit_and_one_on_a_full_disk_is_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = EngineLogs(tmp_path, 1)
    path = logs.path(ReplicaId("m-1"), 1)
    path.write_bytes(b"x" * 5_000_000 + b"last words")
    assert logs.bound(ReplicaId("m-1"), 1)
    kept = path.with_suffix(".log.1")
    assert (path.stat().st_size, kept.stat().st_size) == (0, 512 * 1024)
    assert kept.read_bytes().endswith(b"last words")
    assert not logs.bound(ReplicaId("m-1"), 1)
    path.write_bytes(b"y" * 2_000_000)
    opened = Path.open

    def full(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if "w" in mode:
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(self, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", full)
    assert logs.bound(ReplicaId("m-1"), 1)
    assert path.stat().st_size == 0


async def test_a_log_that_cannot_be_written_is_the_reason_and_breaks_no_batch(agent: Agent) -> None:
    (agent.state_dir / "logs").mkdir(exist_ok=True)
    (agent.state_dir / "logs" / "m-1").write_text("a file in its place")
    await agent.send(1, start("m-1", stub()), start("m-2", stub()))
    row = await agent.row("m-1", "failed")
    assert "logs/m-1" in row.reason
    await agent.row("m-2", "ready")


# --- where an engine listens ---------------------------------------------------------------------------------------


def test_where_somebody_listens_is_read_from_the_kernels_tables() -> None:
    with socket.socket() as four, socket.socket(socket.AF_INET6) as six, socket.socket() as quiet:
        four.bind(("127.0.0.1", 0))
        four.listen()
        six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        six.bind(("::1", 0))
        six.listen()
        quiet.bind(("127.0.0.1", 0))  # bound, and not listening
        assert listens_at(four.getsockname()[1]) == ("127.0.0.1",)
        assert listens_at(quiet.getsockname()[1]) == ()
        port = six.getsockname()[1]
        assert listens_at(port) == ("::1",)
        assert answering_host(("127.0.0.1", "::1"), port) == "::1"
        assert why_unheard(None, port, ("127.0.0.1",)) == ("it listens on ::1, not on 127.0.0.1: pass it ${llmgw:host}")
        assert why_unheard(None, port, ("127.0.0.1", "::1")) == ""


async def test_an_engine_of_ipv6_alone_is_ready_where_every_address_is_meant_and_is_told_elsewhere(
    tmp_path: Path, agent: Agent
) -> None:
    await agent.send(1, start("m-1", stub("--host", "::1", start_limit_s=60.0)))
    row = (await agent.report(lambda r: any("listens on" in x.reason for x in r.replicas))).replicas[0]
    assert (row.state, row.reason) == ("starting", "it listens on ::1, not on 127.0.0.1: pass it ${llmgw:host}")
    await agent.kill()
    await agent.begin("--engine-host", "::")
    await agent.row("m-1", "ready")


# --- engines with manners of their own -----------------------------------------------------------------------------


async def test_an_engine_that_goes_into_the_background_is_told_as_such_and_swept(agent: Agent) -> None:
    forks = (  # the first ends only when the second has: then there is one left, however slow the machine is
        "import os, time\nsecond = os.fork()\nif second: os.waitpid(second, 0); os._exit(0)\n"
        "os.setsid()\nif os.fork(): os._exit(0)\ntime.sleep(3600)\n"
    )
    launch = stub().model_copy(update={"argv": ("${llmgw:python}", "-c", forks)})
    await agent.send(1, start("m-1", launch))
    row = await agent.row("m-1", "failed")
    assert "an engine must stay in the foreground" in row.reason
    (left,) = agent.ours()
    assert f"pid {left.pid}" in row.reason
    await agent.send(2, stop("m-1"))
    await agent.without("m-1")
    assert not alive(left.pid)


async def test_a_stopped_engine_is_told_as_stopped_and_ends_well_when_it_is_stopped_for_good(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub("--load-s", "600", start_limit_s=900.0, term_limit_s=60.0)))
    row = await agent.report(lambda r: any(x.state == "loading" for x in r.replicas))
    (pid,) = (x.pid for x in row.replicas)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    said = await agent.report(lambda r: any("is stopped" in x.reason for x in r.replicas))
    assert f"process {pid} is stopped" in said.replicas[0].reason
    await agent.send(2, stop("m-1"))
    await agent.without("m-1")
    assert not alive(pid)  # long before TERM's limit: it was continued, to take it


async def test_an_engine_that_closes_its_port_and_lives_is_no_longer_ready_and_ends_as_hung(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub(start_limit_s=16.0)))
    row = await agent.row("m-1", "ready")
    await agent.tell("m-1", "close")
    loading = await agent.row("m-1", "loading")
    assert "the port refuses connections" in loading.reason
    failed = await agent.row("m-1", "failed")
    assert "it has answered nothing for 16 s" in failed.reason
    assert not alive(row.pid)


# --- agent and engine together -------------------------------------------------------------------------------------


async def test_agent_and_engine_killed_together_are_found_dead_and_alive_by_the_next(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub()), start("m-2", stub()))
    first, second = await agent.row("m-1", "ready"), await agent.row("m-2", "ready")
    await agent.kept_as_ready()
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    await agent.kill()
    await agent.begin()
    rows = {row.replica: row for row in (await agent.report()).replicas}
    assert (rows[ReplicaId("m-1")].state, rows[ReplicaId("m-2")].state) == ("failed", "ready")
    assert rows[ReplicaId("m-2")].pid == second.pid
    await agent.send(2, stop("m-1"), start("m-3", stub()))
    await agent.row("m-3", "ready")


@pytest.mark.parametrize("agent_dies", [False, True], ids=["the agent lives", "the agent dies too"])
async def test_an_engine_that_is_stopped_in_the_midst_of_its_stop_is_ended_all_the_same(
    agent: Agent, agent_dies: bool
) -> None:
    await agent.send(1, start("m-1", stub("--ignore-term", term_limit_s=60.0)))
    row = await agent.row("m-1", "ready")
    assert row.pid is not None
    await agent.send(2, stop("m-1"))
    await agent.row("m-1", "stopping")
    os.kill(row.pid, signal.SIGSTOP)
    if agent_dies:
        await agent.kill()
        await agent.begin()
        await agent.row("m-1", "stopping")
    await agent.send(3, stop("m-1", force=True))
    await agent.without("m-1")
    assert agent.ours() == []


async def test_a_node_that_was_given_another_name_knows_its_engines_by_either(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub("--leave-child")))
    row = await agent.row("m-1", "ready")
    await agent.kill()
    (agent.state_dir / "ledger.json").unlink()
    await agent.begin("--node-id", "n2")
    report = await agent.report()
    assert (report.node, [(r.replica, r.pid) for r in report.replicas]) == ("n2", [("m-1", row.pid)])
    answer = await agent.post(2, stop("m-1"), node=NodeId("n2"))
    assert answer.status_code == 200
    await agent.without("m-1")
    assert agent.ours() == [], "the child that made a session of its own carries the old name"


# --- the state folder ----------------------------------------------------------------------------------------------


async def test_a_state_folder_that_is_removed_is_made_anew_from_memory_and_told(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub()))
    row = await agent.row("m-1", "ready")
    shutil.rmtree(agent.state_dir)
    await agent.send(2, start("m-2", stub()))
    await agent.row("m-2", "ready")
    report = await agent.report(lambda r: bool(r.problems))
    assert "was removed while this agent ran" in report.problems[0]
    health = await agent.http.get("/healthz")
    assert (health.status_code, "was removed" in health.text) == (200, True)
    await agent.written(lambda records: {"m-1", "m-2"} <= set(records))
    await agent.kill()
    await agent.begin()
    after = await agent.report()
    assert {r.replica: r.state for r in after.replicas} == {"m-1": "ready", "m-2": "ready"}
    assert after.problems == ()
    assert next(r.pid for r in after.replicas if r.replica == "m-1") == row.pid


def test_a_folder_is_held_again_unless_another_agent_was_quicker(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.mkdir()
    mine = StateFolder(path)
    mine.hold()
    assert not mine.is_lost()
    path.rename(tmp_path / "away")
    assert mine.is_lost()
    mine.make_anew()
    assert (mine.is_lost(), path.is_dir()) == (False, True)
    with pytest.raises(StateInUse):
        StateFolder(path).hold()
    path.rename(tmp_path / "again")
    path.mkdir()
    quicker = StateFolder(path)
    quicker.hold()
    with pytest.raises(StateInUse):
        mine.make_anew()
    quicker.let_go()
    assert mine.names(NodeId("n1")) == {"n1"}
    assert mine.names(NodeId("n2")) == {"n1", "n2"}


# --- nobody asks ---------------------------------------------------------------------------------------------------


def test_an_agent_that_no_plane_asks_says_so_in_whole_days_and_a_new_agent_goes_on_counting() -> None:
    hearing = Hearing(100.0)
    assert hearing.problem(100.0 + ABANDONED_S - 1) == ""
    assert "for 1 day:" in hearing.problem(100.0 + ABANDONED_S)
    assert hearing.problem(100.0 + 3 * DAY_S) == hearing.problem(100.0 + 3 * DAY_S + 3600)
    assert "for 3 days: is this node abandoned? Its engines run on" in hearing.problem(100.0 + 3 * DAY_S)
    later = Hearing(100.0 + 2 * DAY_S)
    later.restore(100.0, 100.0 + 2 * DAY_S)
    assert later.silent_s(100.0 + 2 * DAY_S) == 2 * DAY_S
    later.note(100.0 + 2 * DAY_S)
    assert later.problem(100.0 + 2 * DAY_S) == ""
    later.restore(None, 0.0)
    later.restore(9e9, 100.0 + 2 * DAY_S)
    assert later.silent_s(100.0 + 2 * DAY_S) == 0.0, "a moment that is still to come was none of this boot"


async def test_how_long_nobody_asked_is_a_figure_and_outlives_the_agent(agent: Agent) -> None:
    await agent.send(1)
    figures = (await agent.http.get("/metrics")).text
    (line,) = [one for one in figures.splitlines() if one.startswith("llmgw_agent_plane_silent_seconds")]
    assert 0 <= float(line.split()[1]) < 3600
    assert agent.ledger()["heard_s"] > 0
