"""What must outlive the agent: whom it obeys, what it started, which ports rest. One JSON file, replaced whole.

A write is on the disk (fsync of file and folder) before `save` returns; writes wanted while one runs share the next.
It never holds a secret's value, and nothing in it is trusted over the kernel (`agent.recovery`).
"""

import asyncio
import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from pydantic import ValidationError

from llmgw.ids import DeviceId, NodeId, ReplicaId
from llmgw.wire import Mark, Start, Token, Wire


class StopStep(StrEnum):
    """Where a stop stands; a stop that an agent's death interrupts goes on at its step."""

    TERM = "term"
    SECOND_TERM = "second_term"
    KILL = "kill"


class StopIntent(Wire):
    reason: str = ""
    step: StopStep = StopStep.TERM
    drain_s: float = 0.0
    """Before its first step: how long the engine may go on with what it works on."""


class Failure(Wire):
    """How a replica ended that nobody stopped."""

    reason: str
    exit_code: int | None = None
    log_tail: tuple[str, ...] = ()


class Record(Wire):
    """One accepted replica. Times are seconds on the boot clock (`agent.proc.boottime_s`)."""

    start: Start
    mark: Mark
    home: str
    """The state folder of the agent that started it."""
    node: NodeId = NodeId("")
    """As it was called when this started; empty: as it is called now."""
    port: int
    extra_ports: dict[str, int] = {}
    moves: int = 0
    """How often it was started again on other ports, because somebody else had taken one."""
    started_s: float | None = None
    pid: int | None = None
    start_ticks: int | None = None
    was_ready: bool = False
    idle_mib: dict[DeviceId, int] = {}
    """Use of its devices before it came; what is above that at its end has not come back."""
    stop: StopIntent | None = None
    failure: Failure | None = None

    @property
    def replica(self) -> ReplicaId:
        return self.start.replica

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.port, *self.extra_ports.values())


class Ledger(Wire):
    version: int = 1
    boot_id: str
    machine_id: str = ""
    """The machine it was written on: a copy on another tells nothing of what runs there. Empty: not told."""
    token: Token | None = None
    """The highest token heard; its installation and fleet are the owner."""
    records: dict[ReplicaId, Record] = {}
    resting_ports: dict[int, float] = {}
    """Port -> moment on the boot clock at which it began to rest."""
    resting_with: dict[int, int] = {}
    """Extra port that rests -> the first port of its engine: they are let go together."""
    heard_s: float | None = None
    """When a plane was last heard, on the boot clock."""


class LedgerError(Exception):
    """The ledger cannot be written: nothing may be promised."""


def read_ledger(path: Path) -> Ledger | None:
    """The ledger on disk; None when there is none or it cannot be understood (then it is set aside, never deleted)."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return Ledger.model_validate_json(raw)
    except ValidationError:
        path.replace(path.with_suffix(f".bad-{os.getpid()}"))
        return None


def write_ledger(path: Path, ledger: Ledger) -> None:
    """Replace the file at `path`; on the disk when this returns. Raises OSError."""
    draft = path.with_suffix(".new")
    with draft.open("wb") as file:
        file.write(ledger.model_dump_json(exclude_defaults=True).encode())
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


SOON_S = 0.05


class LedgerFile:
    """The one writer. `snapshot` is called at the moment of writing, so a write holds all that was wanted before."""

    def __init__(self, path: Path, snapshot: Callable[[], Ledger], folder_lost: Callable[[], None]) -> None:
        """`folder_lost`: makes the folder anew, in a thread; raises OSError when it cannot."""
        self._path = path
        self._snapshot = snapshot
        self._folder_lost = folder_lost
        self._waiting: list[asyncio.Future[None]] = []
        self._writer: asyncio.Task[None] | None = None
        self._soon: asyncio.TimerHandle | None = None
        self.problem = ""
        """Why the last write failed; empty after one that succeeded."""

    async def save(self) -> None:
        """Write the present state. Raises LedgerError when the disk refuses it."""
        await self._want()

    def save_soon(self) -> None:
        """Write the present state without waiting; a failure is kept in `problem` and mended by the next write.

        A moment later: what changed is told to the plane first, and what changes meanwhile is written along.
        """
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON_S, self._write_soon)

    async def settle(self) -> None:
        """Write what is still to be written, and wait until nothing is being written."""
        if self._soon is not None:
            self._soon.cancel()
            self._write_soon()
        if self._writer is not None:
            await asyncio.wait([self._writer])

    def _write_soon(self) -> None:
        self._soon = None
        self._want().add_done_callback(lambda done: done.exception())

    def _want(self) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all(), name="ledger")
        return future

    async def _write_all(self) -> None:
        while self._waiting:
            served, self._waiting = self._waiting, []
            try:
                await asyncio.to_thread(self._write, self._snapshot())
                self.problem = ""
            except OSError as error:
                self.problem = f"cannot write {self._path}: {error.strerror or error}"
            for future in served:
                if future.done():  # its caller was cancelled
                    continue
                if self.problem:
                    future.set_exception(LedgerError(self.problem))
                else:
                    future.set_result(None)

    def _write(self, ledger: Ledger) -> None:
        try:
            write_ledger(self._path, ledger)
        except FileNotFoundError:
            self._folder_lost()
            write_ledger(self._path, ledger)
