"""Starts the parts of a stack in order, starts again what dies, and ends everything in reverse order.

A part is a process in a session of its own, so that Ctrl-C in a terminal reaches the supervisor alone. What a part
is, and when it is ready, is in `workers.devstack.parts`. It never touches a process that it did not start.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from workers.devstack.layout import StackError

POLL_S = 0.03
PAUSES_S = (0.2, 10.0)
"""Before a part that died is started again: at first, and at most (doubled each time it fails to become ready)."""
TAIL_LINES = 12
MAX_LOG_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """One process of the stack. `is_ready` is asked until it says so, and must not raise."""

    name: str
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    is_ready: Callable[[], Awaitable[bool]]
    ready_limit_s: float = 30.0
    term_limit_s: float = 5.0
    """From TERM to KILL."""


class PartState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DIED = "died"
    TROUBLED = "troubled"  # it lives, or comes again and again, and does not become ready
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a part; `took_ms` since it was started."""

    part: str
    state: PartState
    took_ms: int = 0
    text: str = ""


@dataclass(slots=True)
class _Run:
    """One life of a part."""

    part: Part
    process: asyncio.subprocess.Process
    log: Path
    log_start: int
    started: float


class Supervisor:
    """Parts that run, by name, in the order of their start."""

    def __init__(self, logs: Path, tell: Callable[[Change], None]) -> None:
        self._logs = logs
        self._tell = tell
        self._runs: dict[str, _Run] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}

    async def start(self, part: Part) -> None:
        """Start a part and wait until it is ready. StackError with the end of its log when it is not in time."""
        run = await self._spawn(part)
        await self._until_ready(run)
        self._keepers[part.name] = asyncio.create_task(self._keep(run))

    def pid(self, name: str) -> int:
        """Process id of a part's present life. KeyError when it was never started."""
        return self._runs[name].process.pid

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    async def let_go(self) -> None:
        """From now on, start nothing again that dies."""
        for keeper in self._keepers.values():
            keeper.cancel()
        await asyncio.gather(*self._keepers.values(), return_exceptions=True)

    async def end(self) -> None:
        """End all parts, the last started first; each gets its time, then KILL."""
        await self.let_go()
        for run in reversed(self._runs.values()):
            await self._end(run)

    # --- one life ---

    async def _spawn(self, part: Part) -> _Run:
        self._tell(Change(part.name, PartState.STARTING))
        log = self.log(part.name)
        _make_room(log)
        with log.open("ab") as file:
            start = file.tell()
            process = await asyncio.create_subprocess_exec(
                *part.argv,
                env=part.environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=file,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        run = _Run(part, process, log, start, time.monotonic())
        self._runs[part.name] = run
        return run

    async def _until_ready(self, run: _Run) -> None:
        deadline = run.started + run.part.ready_limit_s
        while not await run.part.is_ready():
            if run.process.returncode is not None:
                raise StackError(f"{run.part.name} ended with {_ending(run)} before it was ready.{_tail(run)}")
            if time.monotonic() > deadline:
                raise StackError(f"{run.part.name} is not ready after {run.part.ready_limit_s:g} s.{_tail(run)}")
            await asyncio.sleep(POLL_S)
        self._tell(Change(run.part.name, PartState.READY, _ms_since(run.started), f"process {run.process.pid}"))

    async def _keep(self, run: _Run) -> None:
        """Start the part again whenever it dies."""
        pause_s, longest_s = PAUSES_S
        while True:
            await run.process.wait()
            self._tell(Change(run.part.name, PartState.DIED, _ms_since(run.started), _ending(run)))
            await asyncio.sleep(pause_s)
            run = await self._spawn(run.part)
            try:
                await self._until_ready(run)
                pause_s = PAUSES_S[0]
            except StackError as error:
                self._tell(Change(run.part.name, PartState.TROUBLED, _ms_since(run.started), str(error)))
                pause_s = min(longest_s, 2 * pause_s)

    async def _end(self, run: _Run) -> None:
        if run.process.returncode is None:
            began = time.monotonic()
            run.process.terminate()
            try:
                await asyncio.wait_for(run.process.wait(), run.part.term_limit_s)
            except TimeoutError:
                run.process.kill()
                await run.process.wait()
            self._tell(Change(run.part.name, PartState.ENDED, _ms_since(began)))


def _ending(run: _Run) -> str:
    code = run.process.returncode or 0
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _tail(run: _Run) -> str:
    """The end of what this life wrote, and where the rest is."""
    with run.log.open("rb") as file:
        file.seek(max(run.log_start, os.fstat(file.fileno()).st_size - 16_384))
        lines = file.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
    said = "".join(f"\n    {line}" for line in lines) if lines else "\n    (it wrote nothing)"
    return f" The end of {run.log}:{said}"


def _make_room(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))


def _ms_since(start: float) -> int:
    return round((time.monotonic() - start) * 1000)
