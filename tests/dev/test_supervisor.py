"""Parts start in order, come again when they die, and leave nothing when they are ended."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from tests.dev.programs import ENDS_ON_SECOND_TERM, FAILS, IGNORES_TERM, LEAVES_CHILD, WAITS, part
from workers.devstack.layout import StackError
from workers.devstack.owned import Owned, end, owned
from workers.devstack.supervisor import Change, PartState, Supervisor


class Told:
    """What a supervisor tells, to look at and to wait for."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, PartState]] = []
        self.texts: list[str] = []
        self._new = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, change: Change) -> None:
        self.changes.append((change.part, change.state))
        self.texts.append(change.text)
        task = asyncio.ensure_future(self._wake())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wake(self) -> None:
        async with self._new:
            self._new.notify_all()

    async def until(self, part: str, state: PartState, times: int = 1) -> None:
        async with asyncio.timeout(60), self._new:
            await self._new.wait_for(lambda: self.changes.count((part, state)) >= times)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def supervisor(tmp_path: Path, told: Told) -> AsyncIterator[Supervisor]:
    made = Supervisor(tmp_path / "logs", told)
    yield made
    await made.end()
    assert await end(lambda: owned(tmp_path), ()) == ()


async def test_a_part_starts_only_when_the_one_before_is_ready(
    tmp_path: Path, supervisor: Supervisor, told: Told
) -> None:
    for name in ("first", "second"):
        await supervisor.start(part(tmp_path, name))
    assert told.changes == [
        ("first", PartState.STARTING),
        ("first", PartState.READY),
        ("second", PartState.STARTING),
        ("second", PartState.READY),
    ]


async def test_a_part_that_ends_before_it_is_ready_is_named_with_its_last_words(
    tmp_path: Path, supervisor: Supervisor
) -> None:
    with pytest.raises(StackError, match=r"worker ended with exit code 3 before it was ready(?s:.*)no such thing as"):
        await supervisor.start(part(tmp_path, "worker", FAILS))


async def test_a_part_that_is_never_ready_is_given_up_in_time_and_ended(tmp_path: Path, told: Told) -> None:
    supervisor = Supervisor(tmp_path / "logs", told)
    silent = "import signal; signal.pause()"
    with pytest.raises(StackError, match=r"router is not ready after 0.2 s"):
        await supervisor.start(part(tmp_path, "router", silent, ready_limit_s=0.2))
    assert [each.part for each in owned(tmp_path)] == ["router"]
    await supervisor.end()
    assert owned(tmp_path) == ()


async def test_a_killed_part_is_started_again(tmp_path: Path, supervisor: Supervisor, told: Told) -> None:
    await supervisor.start(part(tmp_path, "worker"))
    killed = supervisor.pid("worker")
    os.kill(killed, signal.SIGKILL)
    await told.until("worker", PartState.READY, times=2)
    assert ("worker", PartState.DIED) in told.changes
    assert "signal 9" in told.texts
    assert supervisor.pid("worker") != killed
    assert psutil.pid_exists(supervisor.pid("worker"))


async def test_parts_end_in_reverse_order_and_none_comes_again(tmp_path: Path, told: Told) -> None:
    supervisor = Supervisor(tmp_path / "logs", told)
    for name in ("temporal", "worker", "router"):
        await supervisor.start(part(tmp_path, name))
    await supervisor.end()
    ended = [name for name, state in told.changes if state is PartState.ENDED]
    assert ended == ["router", "worker", "temporal"]
    assert owned(tmp_path) == ()


async def test_a_part_that_ignores_term_is_killed(tmp_path: Path, told: Told) -> None:
    supervisor = Supervisor(tmp_path / "logs", told)
    await supervisor.start(part(tmp_path, "worker", IGNORES_TERM, term_limit_s=0.1))
    await supervisor.end()
    assert owned(tmp_path) == ()


async def test_parts_live_in_sessions_of_their_own(tmp_path: Path, supervisor: Supervisor) -> None:
    """Ctrl-C in a terminal goes to its foreground group: it must reach the supervisor alone."""
    await supervisor.start(part(tmp_path, "worker"))
    assert os.getsid(supervisor.pid("worker")) == supervisor.pid("worker")


async def test_what_a_killed_stack_left_is_found_and_told_apart(tmp_path: Path, told: Told) -> None:
    supervisor = Supervisor(tmp_path / "logs", told)
    await supervisor.start(part(tmp_path, "node-a", LEAVES_CHILD))
    assert sorted(each.part or "engine" for each in owned(tmp_path)) == ["engine", "node-a"]

    def parts() -> tuple[Owned, ...]:
        return tuple(each for each in owned(tmp_path) if each.part is not None)

    await supervisor.let_go()
    assert await end(parts, (5.0,)) == ()
    assert [each.part for each in owned(tmp_path)] == [None]
    assert await end(lambda: owned(tmp_path), (5.0,)) == ()
    assert owned(tmp_path) == ()
    await supervisor.end()


async def test_a_second_term_ends_what_hangs_on_the_first(tmp_path: Path, told: Told) -> None:
    supervisor = Supervisor(tmp_path / "logs", told)
    await supervisor.start(part(tmp_path, "engine", ENDS_ON_SECOND_TERM))
    await supervisor.let_go()
    assert await end(lambda: owned(tmp_path), (0.2, 5.0)) == ()
    await supervisor.end()


async def test_processes_of_another_folder_are_never_touched(tmp_path: Path, told: Told) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for root in (mine, other):
        root.mkdir()
    supervisor = Supervisor(tmp_path / "logs", told)
    await supervisor.start(part(mine, "worker", WAITS))
    await supervisor.start(part(other, "router", WAITS))
    await supervisor.let_go()
    assert await end(lambda: owned(mine), (5.0,)) == ()
    assert [each.part for each in owned(other)] == ["router"]
    await supervisor.end()
