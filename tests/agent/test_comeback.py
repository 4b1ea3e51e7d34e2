"""What a new agent makes of what an earlier one left, after a kill at any step and the loss of any record."""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent.ledger import Ledger, Record
from agent.marks import mark_environment, marked_records, processes_of
from agent.proc import Census, Process
from agent.recovery import recover
from llmgw.ids import NodeId, ReplicaId
from llmgw.wire import Mark
from tests.agent.running import NODE, Agent, alive, start, stop, stub, token


def _forget_process(ledger: dict[str, Any]) -> None:
    """As if the agent had ended after executing the engine and before writing its pid down."""
    for field in ("pid", "start_ticks", "started_s", "was_ready"):
        ledger["records"]["m-1"].pop(field, None)


def _never_executed(ledger: dict[str, Any]) -> None:
    """As if it had ended between accepting a second replica and executing it."""
    second = json.loads(json.dumps(ledger["records"]["m-1"]))
    for field in ("pid", "start_ticks", "started_s", "was_ready"):
        second.pop(field, None)
    second["start"]["replica"] = second["mark"]["replica"] = "m-2"
    second["port"] += 1
    ledger["records"]["m-2"] = second


def _forget_replica(ledger: dict[str, Any]) -> None:
    """As from a restored older copy of the ledger."""
    ledger["records"].clear()


@pytest.mark.parametrize(
    ("harm", "replicas"),
    [(_forget_process, ["m-1"]), (_never_executed, ["m-1", "m-2"]), (_forget_replica, ["m-1"])],
    ids=["pid not yet written", "accepted, not executed", "older ledger"],
)
async def test_each_accepted_replica_runs_exactly_once_after_a_kill_at_any_step_of_a_start(
    agent: Agent, harm: Callable[[dict[str, Any]], None], replicas: list[str]
) -> None:
    await agent.send(1, start("m-1", stub()))
    before = await agent.row("m-1", "ready")
    await agent.kill()
    ledger = agent.ledger()
    harm(ledger)
    (agent.state_dir / "ledger.json").write_text(json.dumps(ledger))
    await agent.begin()
    for replica in replicas:
        await agent.row(replica, "ready")
    assert (await agent.row("m-1", "ready")).pid == before.pid
    assert len(agent.ours()) == len(replicas)


async def test_a_ready_engine_is_ready_in_the_first_report_of_the_next_agent(agent: Agent) -> None:
    await agent.send(7, start("m-1", stub()))
    await agent.row("m-1", "ready")
    await agent.kept_as_ready()
    await agent.kill()
    await agent.begin()
    first = await agent.report()
    assert [row.state for row in first.replicas] == ["ready"]
    assert first.token == token(7)
    assert (await agent.post(6)).status_code == 409


async def test_after_a_lost_ledger_nothing_is_obeyed_before_the_state_was_told(agent: Agent) -> None:
    await agent.send(3, start("m-1", stub("--leave-child", "group")))
    await agent.row("m-1", "ready")
    await agent.kill()
    (agent.state_dir / "ledger.json").write_text("{ torn")
    await agent.begin()
    early = await agent.post(4, stop("m-1"))
    assert (early.status_code, early.json()["code"]) == (503, "not_ready")
    assert [row.state for row in (await agent.report()).replicas] == ["ready"]
    assert (await agent.post(4, stop("m-1"))).status_code == 200
    await agent.without("m-1")
    assert agent.ours() == []
    assert list(agent.state_dir.glob("ledger.bad-*")), "a damaged ledger is set aside, never deleted"


async def test_of_a_lost_replica_whose_leader_died_the_rest_is_shown_and_swept(agent: Agent) -> None:
    await agent.send(3, start("m-1", stub("--leave-child", "group")))
    row = await agent.row("m-1", "ready")
    await agent.kept_as_ready()
    await agent.kill()
    (agent.state_dir / "ledger.json").unlink()
    for process in agent.ours():
        if process.pid == row.pid:
            process.kill()
            process.wait(5)
    (left,) = agent.ours()
    await agent.begin()
    assert (await agent.row("m-1", "failed")).reason == "the engine ended while the agent was away"
    await agent.send(4, stop("m-1"))
    await agent.without("m-1")
    assert not alive(left.pid)


async def test_two_agents_on_one_state_folder_cannot_be(agent: Agent) -> None:
    argv = (sys.executable, "-m", "agent.main", "--node-id", "n1", "--listen", "127.0.0.1:0", "--devices", "1xsim")
    second = await asyncio.create_subprocess_exec(
        *argv, "--state-dir", str(agent.state_dir), stderr=asyncio.subprocess.PIPE
    )
    _, said = await second.communicate()
    assert second.returncode == 1
    assert agent.process is not None
    assert f"pid {agent.process.pid}" in said.decode()


async def test_a_ledger_that_cannot_be_written_promises_nothing_and_mends_itself(agent: Agent) -> None:
    await agent.send(1)
    blocked = agent.state_dir / "ledger.new"
    blocked.mkdir()
    answer = await agent.post(2, start("m-1", stub()))
    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    assert (await agent.http.get("/healthz")).status_code == 503
    report = await agent.report()
    assert (report.replicas, report.token) == ((), token(1))
    assert agent.ours() == []
    blocked.rmdir()
    await agent.send(2, start("m-1", stub()))
    await agent.row("m-1", "ready")
    assert (await agent.http.get("/healthz")).status_code == 200


async def test_an_agent_that_begins_with_a_full_disk_watches_what_runs_and_promises_nothing(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub()))
    before = await agent.row("m-1", "ready")
    await agent.kill()
    blocked = agent.state_dir / "ledger.new"
    blocked.mkdir()
    await agent.begin(*agent.flags, health=503)
    assert (await agent.row("m-1", "ready")).pid == before.pid
    answer = await agent.post(2, start("m-2", stub()))
    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    assert len(agent.ours()) == 1
    blocked.rmdir()
    await agent.send(2, start("m-2", stub()))
    await agent.row("m-2", "ready")
    assert (await agent.http.get("/healthz")).status_code == 200


# --- pure ----------------------------------------------------------------------------------------------------------

HOME = "/state"


def record(replica: str = "m-1", **fields: Any) -> Record:
    mark = Mark(installation="here", fleet="f", replica=ReplicaId(replica), epoch=1, seq=fields.pop("seq", 1))
    return Record(start=start(replica, stub("", "", "--load-s", "0")), mark=mark, home=HOME, port=21000, **fields)


def process(pid: int, of: Record | None = None, session: int | None = None, ticks: int = 1000) -> Process:
    pairs = mark_environment(of, NODE) if of is not None else {}
    environ = b"\0".join(f"{name}={value}".encode() for name, value in pairs.items())
    lead = session or pid
    return Process(pid=pid, group=lead, session=lead, start_ticks=ticks, alive=True, environ=environ)


def test_a_mark_tells_all_of_a_record_but_argv_and_env() -> None:
    one = record(started_s=10.0)
    found = marked_records(Census((process(50, one),)), NODE, HOME)[ReplicaId("m-1")]
    launch = one.start.launch.model_copy(update={"argv": one.start.launch.argv[:1], "env": {}})
    assert found == one.model_copy(
        update={"start": one.start.model_copy(update={"launch": launch}), "pid": 50, "start_ticks": 1000}
    )


def test_other_agents_engines_are_never_taken_for_ours() -> None:
    census = Census((process(50, record(started_s=10.0)),))
    assert marked_records(census, NodeId("n2"), HOME) == {}
    assert marked_records(census, NODE, "/elsewhere") == {}
    foreign = record().model_copy(update={"mark": replace(record().mark, installation="another")})
    assert processes_of(foreign, NODE, census) == ()


def test_a_child_that_made_a_session_is_not_taken_for_the_leader() -> None:
    one = record(started_s=10.0)
    both = Census((process(60, one, ticks=1400), process(50, one, ticks=1000)))
    assert marked_records(both, NODE, HOME)[ReplicaId("m-1")].pid == 50
    only_child = marked_records(Census((process(60, one, ticks=1400),)), NODE, HOME)[ReplicaId("m-1")]
    assert only_child.start_ticks is None


@pytest.mark.parametrize(
    ("others", "found"),
    [
        ([process(51, session=50), process(52, session=99)], {51}),
        ([process(50, ticks=1000), process(51, session=50)], {50, 51}),
        ([process(50, ticks=9999), process(51, session=50)], set()),
        ([process(70, record(), session=70)], {70}),
    ],
    ids=["leader dead, session known", "leader alive", "the pid is another process's now", "left the session, marked"],
)
def test_a_replicas_processes_are_its_session_and_what_is_marked(others: list[Process], found: set[int]) -> None:
    ours = record(pid=50, start_ticks=1000)
    assert {p.pid for p in processes_of(ours, NODE, Census(tuple(others)))} == found


def test_a_new_boot_voids_replicas_and_ports_and_keeps_the_owner() -> None:
    old = Ledger(boot_id="a", token=token(5), records={ReplicaId("m-1"): record()}, resting_ports={21000: 1.0})
    found = recover(old, Census(), "b", NODE, HOME)
    assert found.ledger == Ledger(boot_id="b", token=token(5))
    assert not found.rebuilt


def test_an_owner_lost_with_the_ledger_is_known_again_by_the_newest_mark() -> None:
    marked = Census(tuple(process(50 + seq, record(f"m-{seq}", seq=seq, started_s=10.0)) for seq in (3, 9, 4)))
    assert recover(None, marked, "a", NODE, HOME).ledger.token == token(9)
    nothing = recover(None, Census(), "a", NODE, HOME)
    assert (nothing.ledger.token, nothing.rebuilt) == (None, False)


def test_a_damaged_mark_is_no_mark() -> None:
    damaged = Process(50, 50, 50, 1, alive=True, environ=b"LLMGW_RECORD={torn\0LLMGW_NODE=n1")
    assert marked_records(Census((damaged,)), NODE, HOME) == {}
