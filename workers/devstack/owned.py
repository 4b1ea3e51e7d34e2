"""The processes of one dev stack, known by a variable that each inherits, whoever started it and whatever died since.

Ending is the only thing done to a process here, and only to one that carries the stack's own mark: `psutil` holds
pid and start time together, so a reused pid is never signalled.
"""

import asyncio
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "DEVSTACK_OF_LLMGW"
"""Holds the stack's folder. Without the prefix `LLMGW_`, which agents keep from engines: engines inherit this one."""
PART = "LLMGW_DEVSTACK_PART"
"""Names a part of the stack itself. Engines do not inherit it, which tells them apart."""
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Owned:
    """A live process of the stack. `part` None: an engine, or something an engine started."""

    process: psutil.Process
    part: str | None
    name: str

    def __str__(self) -> str:
        return f"{self.part or 'engine'} {self.name} (process {self.process.pid})"


def mark(environ: Mapping[str, str], root: Path, part: str) -> dict[str, str]:
    """`environ` with the marks of the stack in `root`."""
    return {**environ, MARK: str(root), PART: part}


def owned(root: Path) -> tuple[Owned, ...]:
    """Every live process that carries the mark of the stack in `root`, but not this one."""
    found: list[Owned] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # gone meanwhile, or another user's
            environ = process.environ()
            if environ.get(MARK) == str(root) and process.pid != psutil.Process().pid and is_alive(process):
                found.append(Owned(process, environ.get(PART), process.name()))
    return tuple(found)


def is_alive(process: psutil.Process) -> bool:
    """Whether it still runs. A zombie does not: it holds nothing, and its parent may never ask for it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


async def end(look: Callable[[], Sequence[Owned]], limits_s: Iterable[float]) -> tuple[Owned, ...]:
    """TERM at the beginning of every limit, KILL after the last one; returns who is left even then.

    `look` is asked anew each time, so that what forks meanwhile ends as well. A second TERM is no impatience:
    llama.cpp hangs on the first one while a stream is open.
    """
    for limit_s in limits_s:
        if not (left := look()):
            return ()
        _signal(left, signal.SIGTERM)
        await _gone(left, limit_s)
    for _ in range(3):
        if not (left := look()):
            return ()
        _signal(left, signal.SIGKILL)
        await _gone(left, 1.0)
    return tuple(look())


def _signal(processes: Iterable[Owned], number: signal.Signals) -> None:
    for each in processes:
        with suppress(psutil.Error):
            each.process.send_signal(number)


async def _gone(processes: Sequence[Owned], limit_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            while any(is_alive(each.process) for each in processes):  # noqa: ASYNC110 - not our children: no event tells
                await asyncio.sleep(POLL_S)
