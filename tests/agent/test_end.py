"""How engines end: crash, sickness, force, what they leave behind, and what not even KILL ends."""

import ctypes
import os
import signal
from collections.abc import Iterator

import pytest

from llmgw.wire import DeviceHealth, Outcome, RefusalCode
from tests.agent.running import Agent, alive, start, stop, stub

_PTRACE_SEIZE, _PTRACE_DETACH, _PTRACE_O_TRACEEXIT = 0x4206, 17, 0x40


class Grip:
    """Holds a process at its exit, as a driver does that hangs in the kernel: KILL does not end it."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._held: int | None = None

    def hold(self, pid: int) -> None:
        if self._libc.ptrace(_PTRACE_SEIZE, pid, None, ctypes.c_void_p(_PTRACE_O_TRACEEXIT)) != 0:
            pytest.skip(f"this machine does not let us trace a process: {os.strerror(ctypes.get_errno())}")
        self._held = pid

    def let_go(self) -> None:
        if self._held is not None:
            os.waitpid(self._held, 0x40000000)  # __WALL: another's child; returns when it has stopped at its exit
            self._libc.ptrace(_PTRACE_DETACH, self._held, None, None)
            self._held = None


@pytest.fixture
def grip() -> Iterator[Grip]:
    made = Grip()
    yield made
    made.let_go()


async def test_a_process_that_survives_kill_quarantines_its_devices_until_it_is_gone(agent: Agent, grip: Grip) -> None:
    device = (await agent.report()).inventory.devices[0].id
    quick = stub(term_limit_s=0.1)
    quick = quick.model_copy(update={"stop": quick.stop.model_copy(update={"kill_limit_s": 0.2})})
    await agent.send(1, start("m-1", quick, device))
    row = await agent.row("m-1", "ready")
    assert row.pid is not None
    grip.hold(row.pid)
    await agent.send(2, stop("m-1", force=True))
    report = await agent.report(lambda r: device in r.quarantined)
    assert f"pid {row.pid}" in report.quarantined[device]
    assert [(r.replica, r.state) for r in report.replicas] == [("m-1", "stopping")]
    assert next(d for d in report.inventory.devices if d.id == device).health is DeviceHealth.QUARANTINED
    refused = (await agent.send(3, start("m-2", stub(), device))).results[0].refusal
    assert refused is not None
    assert refused.code is RefusalCode.DEVICE_QUARANTINED
    lifted = await agent.http.post("/v1/restore", json={"device": device})
    assert lifted.status_code == 409
    assert f"m-1 still runs as pid {row.pid}" in lifted.json()["message"]
    grip.let_go()
    report = await agent.without("m-1")
    assert report.quarantined == {}
    assert (await agent.send(4, start("m-2", stub(), device))).results[0].outcome is Outcome.ACCEPTED
    await agent.row("m-2", "ready")


async def test_a_killed_engine_is_told_with_its_signal_and_its_devices_pass_on_in_one_batch(agent: Agent) -> None:
    device = (await agent.report()).inventory.devices[0].id
    await agent.send(1, start("m-1", stub(), device))
    row = await agent.row("m-1", "ready")
    assert row.pid is not None
    os.kill(row.pid, signal.SIGKILL)
    row = await agent.row("m-1", "failed")
    assert (row.exit_code, row.was_ready) == (-9, True)
    assert "SIGKILL" in row.reason
    reply = await agent.send(2, start("m-2", stub(), device), stop("m-1"))
    assert [result.outcome for result in reply.results] == [Outcome.ACCEPTED, Outcome.ACCEPTED]
    assert [result.gone for result in reply.results] == [False, True], "the answer is the proof"
    assert [r.replica for r in (await agent.report()).replicas] == ["m-2"]
    await agent.row("m-2", "ready")


async def test_a_failed_replica_is_started_again_by_a_higher_attempt_and_by_no_other(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub("--crash-after-s", "0", "--load-s", "9")))
    await agent.row("m-1", "failed")
    assert (await agent.send(2, start("m-1", stub()))).results[0].outcome is Outcome.ALREADY
    assert (await agent.send(3, start("m-1", stub(), attempt=2))).results[0].outcome is Outcome.ACCEPTED
    assert (await agent.row("m-1", "ready")).attempt == 2


async def test_what_a_dead_engine_leaves_keeps_its_devices_until_a_stop_has_swept_it(agent: Agent) -> None:
    device = (await agent.report()).inventory.devices[0].id
    await agent.send(1, start("m-1", stub("--leave-child", "group"), device))
    await agent.tell("m-1", "crash")
    await agent.row("m-1", "failed")
    (left,) = agent.ours()
    refused = (await agent.send(2, start("m-1", stub(), device, attempt=2))).results[0].refusal
    assert refused is not None
    assert refused.code is RefusalCode.DEVICE_CLAIMED
    assert f"pid {left.pid}" in refused.message
    assert not (await agent.send(3, stop("m-1"))).results[0].gone
    await agent.without("m-1")
    assert not alive(left.pid)


async def test_force_ends_a_stop_under_way_without_waiting_for_its_limits(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub("--ignore-term", term_limit_s=600)))
    await agent.row("m-1", "ready")
    assert (await agent.send(2, stop("m-1"))).results[0].outcome is Outcome.ACCEPTED
    assert (await agent.send(3, stop("m-1"))).results[0].outcome is Outcome.ALREADY
    refused = (await agent.send(4, start("m-1", stub(), attempt=2))).results[0].refusal
    assert refused is not None
    assert refused.code is RefusalCode.CONFLICT
    assert (await agent.send(5, stop("m-1", force=True))).results[0].outcome is Outcome.ACCEPTED
    await agent.without("m-1")
    assert agent.ours() == []
    assert (await agent.send(6, stop("m-1"))).results[0].outcome is Outcome.ALREADY


async def test_a_sick_engine_is_no_longer_ready_is_not_killed_and_may_recover(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub()))
    before = await agent.row("m-1", "ready")
    await agent.tell("m-1", "sicken")
    sick = await agent.row("m-1", "loading")
    assert "500" in sick.reason
    assert sick.pid == before.pid
    await agent.tell("m-1", "heal")
    assert (await agent.row("m-1", "ready")).pid == before.pid


async def test_a_program_that_cannot_run_fails_with_the_systems_words(agent: Agent) -> None:
    broken = agent.state_dir.parent / "broken"
    broken.write_text("#!/nowhere/at/all\n")
    broken.chmod(0o755)
    await agent.send(1, start("m-1", stub().model_copy(update={"argv": (str(broken),)})))
    row = await agent.row("m-1", "failed")
    assert "cannot execute" in row.reason
    assert row.pid is None
    await agent.send(2, stop("m-1"))
    await agent.without("m-1")
