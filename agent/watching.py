"""Watching one engine that runs: whether it serves, sleeps, moves on while it loads, or hangs.

It keeps the replica's state true, and says when the engine is to be ended and why; it neither starts nor ends one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

from agent.course import Course, now_s
from agent.proc import Process, boottime_s
from agent.readiness import FAILURES, TICK_S, Finding, LogSize, grown_or_due, loading_interval_s
from agent.sleeping import Sleep
from agent.surroundings import Surroundings
from agent.symptoms import LOOK_AFTER_S, answering_host, why_unheard
from agent.vitals import Vitals
from llmgw.wire import EngineState, EngineUsage


class Watch:
    """`survivors`: the engine's processes; `ready`: told when it serves for the first time, with its age."""

    def __init__(
        self,
        course: Course,
        around: Surroundings,
        log: Path,
        survivors: Callable[[], Awaitable[tuple[Process, ...]]],
        ready: Callable[[float], None],
    ) -> None:
        launch = course.record.start.launch
        self._course = course
        self._around = around
        self._log = log
        self._survivors = survivors
        self._ready = ready
        self._unheard = (0.0, "")
        """(its age when it was last asked why it is not heard, what was found)."""
        self._vitals = Vitals(launch, log, now_s)
        self._sleep = Sleep(around.prober, launch, asleep=course.record.dozes, clock=now_s)

    @property
    def asleep(self) -> bool:
        return self._sleep.asleep and self._course.state is EngineState.LOADING

    @property
    def usage(self) -> EngineUsage | None:
        return self._vitals.usage if self._course.state is EngineState.READY else None

    def nudge(self) -> None:
        """There is another word about its sleep."""
        self._sleep.nudge()

    async def figures(self) -> Mapping[str, float] | None:
        """The engine's own, asked now; None when it does not tell them."""
        return await self._around.prober.figures(self._course.url(self._course.host), self._course.record.start.launch)

    async def run(self) -> str:
        """Keep the state true; return only when the engine is to be ended, with what to say about it."""
        size = LogSize(str(self._log))
        while True:
            if self._course.record.was_ready and (reason := self._vitals.why_hung()):
                return reason
            if self._course.record.was_ready and await self._sleeps():
                if reason := self._sleep.why_lost():
                    return reason
                continue
            left_s = await self._start_left_s()
            if left_s <= 0:
                limit_s = self._course.record.start.launch.start_limit_s
                return f"start limit {limit_s:g} s reached while {self._course.state}"
            if self._course.state is EngineState.STARTING and not self._port_answers():
                self._settle(Finding(answers=False, ready=False, reason=self._why_unheard()))
                await asyncio.sleep(min(TICK_S, left_s))
                continue
            try:
                async with asyncio.timeout(left_s if left_s != float("inf") else None):
                    await self._look()
            except TimeoutError:
                continue
            await self._pause(size, await self._start_left_s())

    async def _sleeps(self) -> bool:
        """Whether it sleeps, as far as that can be had its way; then a while has passed, or there is news."""
        if not await self._sleep.follow(
            self._course.url(self._course.host), self._course.record.asleep, self._figures_of_use
        ):
            return False
        self._vitals.failures = 0
        if not self._course.record.dozes:
            self._course.update(dozes=True)
            self._around.ledger.save_soon()
        if self._sleep.heard:
            self._vitals.hear()
        self._course.become(EngineState.LOADING, self._sleep.reason)
        self._course.looked.set()
        await self._sleep.pause(self._course.record.asleep)
        return True

    async def _figures_of_use(self) -> bool:
        """Whether it works on requests, by its own figures: such as no router sent."""
        if (figures := await self.figures()) is not None:
            self._vitals.take_figures(figures)
        return self._vitals.in_use

    async def _look(self) -> None:
        if len(self._around.settings.probe_hosts) > 1:
            self._port_answers()
        base, launch = self._course.url(self._course.host), self._course.record.start.launch
        if self._course.record.was_ready:  # asking for a completion again would be use
            launch = launch.model_copy(
                update={"readiness": launch.readiness.model_copy(update={"probe_completion": False})}
            )
        finding = await self._around.prober.look(base, launch, was_ready=self._course.state is EngineState.READY)
        if not finding.heard and (why := self._why_unheard()):
            finding = replace(finding, reason=why)
        self._settle(finding)
        if self._course.record.was_ready and (figures := await self._around.prober.figures(base, launch)) is not None:
            self._vitals.take_figures(figures)

    async def _pause(self, size: LogSize, left_s: float) -> None:
        """Until the next look: sooner while loading, when the log grows."""
        if self._course.state is EngineState.READY:
            await self._sleep.wait(self._vitals.pause_s(self._course.since_s))
        elif self._course.state is EngineState.STARTING:
            await asyncio.sleep(TICK_S)
        else:
            await grown_or_due(size, max(0.0, min(loading_interval_s(self._age_s()), left_s)))

    def _settle(self, finding: Finding) -> None:
        """Move the state to what was found."""
        passed = "" if self._course.record.was_ready else self._vitals.extension(self._age_s())
        if finding.heard:
            self._vitals.hear()
        if finding.ready:
            self._vitals.failures = 0
            self._became_ready()
            if self._course.record.dozes and not self._course.record.asleep:
                self._course.update(dozes=False)
                self._around.ledger.save_soon()
            self._course.become(EngineState.READY, self._sleep.reason)
        elif self._course.state is EngineState.READY:
            self._vitals.failures += 1
            if self._vitals.failures >= FAILURES:
                self._course.become(EngineState.LOADING, f"was ready, then failed {FAILURES} probes: {finding.reason}")
        elif finding.answers or self._course.state is EngineState.LOADING:
            self._course.become(EngineState.LOADING, passed + finding.reason)
        else:
            self._course.become(EngineState.STARTING, passed + finding.reason)
        self._course.looked.set()

    def _became_ready(self) -> None:
        if self._course.record.was_ready:
            return
        self._course.update(was_ready=True)
        self._around.ledger.save_soon()
        self._ready(self._age_s())

    def _port_answers(self) -> bool:
        host = answering_host(self._around.settings.probe_hosts, self._course.record.port)
        self._course.host = host or self._course.host
        return host is not None

    def _why_unheard(self) -> str:
        """Looked for once a second at most; in between, what was found last."""
        age_s = self._age_s()
        if age_s >= LOOK_AFTER_S and abs(age_s - self._unheard[0]) >= 1.0:
            self._unheard = (
                age_s,
                why_unheard(self._course.record.pid, self._course.record.port, self._around.settings.probe_hosts),
            )
        return self._unheard[1]

    async def _start_left_s(self) -> float:
        """Until the start has failed, as far as is known now."""
        if self._course.record.was_ready:
            return float("inf")
        if self._vitals.wants_io(self._age_s()):
            self._vitals.take_io(process.pid for process in await self._survivors())
        return self._vitals.start_left_s(self._age_s())

    def _age_s(self) -> float:
        return boottime_s() - (self._course.record.started_s or boottime_s())
