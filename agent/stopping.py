"""The end of an engine, proven: TERM, TERM, KILL to all of it, and no process left.

The proof is a census of the machine, taken after the last signal, never the success of a call. A process that KILL
does not end is reported and waited for; its devices must not be given to anybody.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from agent.engines import Engine
from agent.ledger import StopStep
from agent.proc import Process
from llmgw.wire import StopBehaviour

ORPHAN_GRACE_S = 2.0
"""What outlives its leader by this long is not cleaning up after it."""

STUCK_RETRY_S = 1.0
_POLL_S = (0.01, 0.5)

Survivors = Callable[[], Awaitable[tuple[Process, ...]]]
"""The live processes of the replica, from a census begun after the call."""


@dataclass(frozen=True)
class Rung:
    step: StopStep
    limit_s: float


def rungs(behaviour: StopBehaviour, first: StopStep) -> tuple[Rung, ...]:
    """The steps still to go, from `first` on."""
    ladder = (
        Rung(StopStep.TERM, behaviour.term_limit_s),
        Rung(StopStep.SECOND_TERM, behaviour.second_term_limit_s),
        Rung(StopStep.KILL, behaviour.kill_limit_s),
    )
    start = next(number for number, rung in enumerate(ladder) if rung.step is first)
    return ladder[start:]


async def bring_down(
    engine: Engine | None,
    survivors: Survivors,
    ladder: tuple[Rung, ...],
    on_step: Callable[[StopStep], None],
    on_stuck: Callable[[tuple[Process, ...]], None],
) -> None:
    """Return when nothing of the replica is left, however long that takes.

    `engine` None: its leader ended before. `on_step` is told each step before it is taken, `on_stuck` what survives
    the last limit, and again whenever it is tried anew.
    """
    for rung in ladder:
        on_step(rung.step)
        if await _take(rung, engine, survivors):
            return
    while left := await survivors():
        on_stuck(left)
        kill_all(left)
        await asyncio.sleep(STUCK_RETRY_S)


async def _take(rung: Rung, engine: Engine | None, survivors: Survivors) -> bool:
    """One step; True when nothing is left within its limit."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + rung.limit_s
    if rung.step is StopStep.KILL:
        if engine is not None:
            engine.send(signal.SIGKILL)
            await _ended(engine, rung.limit_s)
        return await _gone_by(deadline, survivors, kill_all)
    if engine is not None and not engine.exited.is_set():
        engine.send(signal.SIGTERM)  # to the leader alone: it ends its own children better than we can
        engine.send(signal.SIGCONT)  # a stopped process takes no signal but KILL
        if not await _ended(engine, rung.limit_s):
            return False
    else:
        signal_all(await survivors(), signal.SIGTERM)
    return await _gone_by(min(deadline, clock() + ORPHAN_GRACE_S), survivors, _leave)


async def _ended(engine: Engine, limit_s: float) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(engine.exited.wait(), limit_s)
    return engine.exited.is_set()


async def _gone_by(deadline: float, survivors: Survivors, treat: Callable[[tuple[Process, ...]], None]) -> bool:
    """Look until nothing is left (True) or the deadline has passed (False)."""
    clock = asyncio.get_running_loop().time
    pause, slowest = _POLL_S
    while left := await survivors():
        treat(left)
        if clock() >= deadline:
            return False
        await asyncio.sleep(min(pause, max(0.0, deadline - clock())))
        pause = min(slowest, pause * 2)
    return True


def signal_all(processes: tuple[Process, ...], signum: signal.Signals) -> None:
    for process in processes:
        if process.pid <= 1:  # no process of ours, and to kill(2) a whole group, or everybody
            continue
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signum)


def kill_all(processes: tuple[Process, ...]) -> None:
    """KILL each process just seen; called again after each look, so what forks faster than we look ends as well."""
    signal_all(processes, signal.SIGKILL)


def _leave(processes: tuple[Process, ...]) -> None:
    """Only wait."""


def describe(processes: tuple[Process, ...]) -> str:
    """Survivors as a reason: `pid 4711 (VLLM::EngineCor)`."""
    shown = ", ".join(_told(process) for process in processes[:5])
    return f"{shown} and {len(processes) - 5} more" if len(processes) > 5 else shown


def _told(process: Process) -> str:
    if not process.pid:
        return process.name
    return f"pid {process.pid} ({process.name}{'' if _may_signal(process.pid) else ', which this user may not signal'})"


def _may_signal(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass
    return True
