"""What an agent looks after by itself: logs, its folder, its disk, and whether anybody asks for it."""

import asyncio
import errno
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from agent.ledger import LedgerError
from agent.proc import boottime_s, machine_id
from agent.statefolder import StateInUse, kept_machine_id
from llmgw.ids import ReplicaId
from llmgw.wire import DiskReport, EngineState

if TYPE_CHECKING:
    from agent.node import Node

HOUSEKEEPING_S = 5.0
LOGS_S = 1.0
FAST_LOGS_S = 0.1
HEARD_WRITTEN_S = 3600.0
_UNKNOWN_YET = (EngineState.STARTING, EngineState.LOADING)

log = structlog.get_logger("agent")


class Housekeeping:
    def __init__(self, node: "Node") -> None:
        self.disk: DiskReport | None = None
        """Of the weights' root, else of the state folder."""
        self._node = node
        self._silence_told = ""
        self._heard_written_s = boottime_s()

    async def keep(self) -> None:
        while True:
            live = [(replica.record.replica, replica.record.start.attempt) for replica in self._node.replicas.values()]
            await asyncio.to_thread(self._node.logs.forget_old, {replica for replica, _ in live})
            await self._look_after_folder()
            self._node.memory_deaths.sample()
            self._say_silence()
            self._node.note_head()
            self.disk = await asyncio.to_thread(
                _disk_of, self._node.settings.weights_root or self._node.settings.state_dir
            )
            await asyncio.sleep(HOUSEKEEPING_S)

    async def bound_logs(self) -> None:
        """More often while an engine writes fast, and of engines that start, of which nobody knows yet how fast they
        write: what comes between two looks is on the disk."""
        clock = asyncio.get_running_loop().time
        all_due_s = clock()
        while True:
            every = clock() >= all_due_s
            looked_at = [one for one in self._node.replicas.values() if every or one.state in _UNKNOWN_YET]
            logs = [(one.record.replica, one.record.start.attempt) for one in looked_at]
            halved = await asyncio.to_thread(self._bound, logs) if logs else False
            if every:
                all_due_s = clock() + (0.0 if halved else LOGS_S)
            often = halved or any(one.state in _UNKNOWN_YET for one in self._node.replicas.values())
            await asyncio.sleep(FAST_LOGS_S if often else LOGS_S)

    def _bound(self, logs: list[tuple[ReplicaId, int]]) -> bool:
        """Whether one was over its limit. In a thread."""
        return sum(self._node.logs.bound(*one) for one in logs) > 0

    async def _look_after_folder(self) -> None:
        if await asyncio.to_thread(self._node.folder.is_lost):
            with suppress(OSError, LedgerError):  # told as the ledger's problem, and tried again
                await asyncio.to_thread(self.make_folder_anew)
                await self._node.ledger.save()

    def _say_silence(self) -> None:
        """Once a day; what was heard is written down once an hour."""
        now_s = boottime_s()
        if (problem := self._node.hearing.problem(now_s)) and problem != self._silence_told:
            log.warning("no plane", problem=problem)
        self._silence_told = problem
        if self._node.hearing.heard_s - self._heard_written_s >= HEARD_WRITTEN_S:
            self._heard_written_s = self._node.hearing.heard_s
            self._node.ledger.save_soon()

    def make_folder_anew(self) -> None:
        """In a thread. Where another agent has taken the place meanwhile, this one ends: two would both be right."""
        try:
            self._node.folder.make_anew()
        except StateInUse as error:
            log.critical("another agent has taken the state folder: this one ends", problem=str(error))
            os.kill(os.getpid(), signal.SIGTERM)
            raise OSError(errno.EEXIST, str(error)) from error
        self._node.folder.names(self._node.settings.node)
        if self._node.settings.machine_id is None and not machine_id():
            kept_machine_id(self._node.settings.state_dir / "machine-id", self._node.machine_id)
        log.error("state folder lost", problem=self._node.folder.problem)


def _disk_of(path: Path) -> DiskReport | None:
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None
    return DiskReport(free_bytes=usage.free, total_bytes=usage.total)
