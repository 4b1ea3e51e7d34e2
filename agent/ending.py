"""The end of one replica's engine: what is left of it, signals until nothing is, and the wait for its devices' memory.

It decides neither that nor why an engine ends; `agent.replica` does. What does not go is told as stuck, with pid and
reason.
"""

import asyncio

from agent import engines
from agent.contained import Contained
from agent.course import Course, now_s
from agent.freeing import why_not_free
from agent.ledger import StopStep
from agent.marks import processes_of
from agent.proc import Process
from agent.stopping import bring_down, describe, rungs
from agent.surroundings import Surroundings
from llmgw.wire import EngineState

FREE_POLL_S = (0.1, 2.0)
"""Between two looks at memory that has not come back yet: at first, and at most."""


class Ending:
    def __init__(self, course: Course, around: Surroundings, container: Contained | None) -> None:
        self._course = course
        self._around = around
        self._container = container
        self._by_force = False
        self._pids: frozenset[int] = frozenset()
        """Processes that it had, as far as they were seen."""

    async def bring_down(self, engine: engines.Engine | None, first: StopStep) -> None:
        """From this step on, until nothing of it is left; what stays is told, and waited for."""
        ladder = rungs(self._course.record.start.launch.stop, first)
        await bring_down(engine, self.survivors, ladder, self._on_step, self._on_stuck)

    async def survivors(self) -> tuple[Process, ...]:
        """Whatever of it still lives, in a census taken now."""
        around, census = self._around, await self._around.census.take()
        grouped = around.cgroups.pids(
            self._course.record.replica
        )  # after the census: what it holds and that misses is new
        processes = processes_of(self._course.record, around.settings.node, census, grouped)
        self._pids |= {process.pid for process in processes}
        if self._container is None:
            return processes
        return (*processes, *await self._container.left(self._course.record, force=self._by_force))

    async def wait_until_free(self) -> None:
        """Return when the devices' memory has come back, however long that takes; told as stuck past the limit."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._course.record.start.launch.stop.kill_limit_s
        pause, slowest = FREE_POLL_S
        while not self._course.freed and (look := self._around.look_at_devices) is not None:
            pids = self._pids | ({self._course.record.pid} if self._course.record.pid is not None else set())
            reason = why_not_free(self._course.record.start.claims, self._course.record.idle_mib, await look(), pids)
            self._course.freed = not reason
            if reason:
                if clock() >= deadline:
                    self._course.tell_stuck(reason)
                await asyncio.sleep(pause)
                pause = min(slowest, pause * 2)
        self._course.tell_stuck("")

    def _on_step(self, step: StopStep) -> None:
        self._by_force = step is StopStep.KILL
        if self._by_force:
            self._around.cgroups.kill(self._course.record.replica)
        if self._course.record.stop is not None and self._course.record.stop.step is not step:
            self._course.update(stop=self._course.record.stop.model_copy(update={"step": step}))
            self._around.ledger.save_soon()

    def _on_stuck(self, left: tuple[Process, ...]) -> None:
        limit_s = self._course.record.start.launch.stop.kill_limit_s
        if self._course.state is not EngineState.STOPPING:
            self._course.since_s = now_s()
            self._course.state = EngineState.STOPPING
        self._course.tell_stuck(f"still there after KILL and {limit_s:g} s: {describe(left)}")
