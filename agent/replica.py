"""One replica's life on this node: executed or adopted, watched, failed or stopped, and gone when that is proven.

The only place that changes a replica's state. It runs on the agent's one event loop and never talks to the plane.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace

from agent import engines
from agent.beginning import what_to_execute
from agent.contained import Contained
from agent.finishing import let_finish
from agent.freeing import why_not_free
from agent.ledger import Failure, LedgerError, Record, StopStep
from agent.marks import processes_of
from agent.portloss import tells_of_a_lost_port
from agent.ports import NoPort
from agent.proc import Process, boottime_s
from agent.readiness import FAILURES, TICK_S, Finding, LogSize, grown_or_due, loading_interval_s
from agent.sleeping import Sleep
from agent.stopping import bring_down, describe, rungs
from agent.surroundings import Surroundings
from agent.symptoms import LOOK_AFTER_S, answering_host, why_unheard
from agent.telling import how_it_ended, row_of
from agent.vitals import Vitals
from llmgw.wire import EngineState, ReplicaReport

AWAY = "the engine ended while the agent was away"

FREE_POLL_S = (0.1, 2.0)
"""Between two looks at memory that has not come back yet: at first, and at most."""

MOST_MOVES = 5
"""So many times an engine is started on other ports; then its end is a failure like any other."""


class Replica:
    def __init__(self, record: Record, around: Surroundings) -> None:
        self.record = record
        self.state = EngineState.STARTING
        self.reason = ""
        self.stuck = ""
        """What survived KILL, or memory that did not come back; its devices are quarantined while this is set."""
        self.leaves_container = record.start.launch.container is not None
        """Its end is not its container's: that stays until it is removed."""
        self.freed = around.look_at_devices is None or not record.start.claims
        """Its devices need no proof beyond its processes, or the proof was given."""
        self.looked = asyncio.Event()
        """Set once the engine's own answer, or its end, decided the state."""
        self._around = around
        self._ends_by_force = False
        self._engine: engines.Engine | None = None
        self._since_s = _now_s()
        self._told: tuple[Record, EngineState, str, str, bool, ReplicaReport] | None = None
        self._task: asyncio.Task[None] | None = None
        self._pids: frozenset[int] = frozenset()
        """Processes that it had, as far as they were seen."""
        self._host = around.settings.probe_hosts[0]
        """Where it answered last."""
        self._unheard = (0.0, "")
        """(its age when it was last asked why it is not heard, what was found)."""
        self._log = around.logs.path(record.replica, record.start.attempt)
        self._vitals = Vitals(record.start.launch, self._log, _now_s)
        self._sleep = Sleep(around.prober, record.start.launch, asleep=record.dozes, clock=_now_s)
        tool = around.containers if record.start.launch.container is not None else None
        self._container = Contained(tool, around.settings.node, self._log) if tool is not None else None

    # --- what the node does with it --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Execute a new replica, in the background."""
        self._go(self._live())

    def resume(self) -> None:
        """Go on with a replica of an earlier agent, where that one was."""
        record = self.record
        if record.pid is not None and record.start_ticks is not None:
            self._engine = engines.adopt(record.pid, record.start_ticks)
        if record.stop is not None:
            self.stop()
        elif record.failure is not None:
            self._set(EngineState.FAILED, record.failure.reason)
            self.looked.set()
            if not self.freed:
                self._go(self._wait_until_free())
        elif self._engine is not None:
            awake = EngineState.READY if record.was_ready else EngineState.STARTING
            self.state = EngineState.LOADING if record.dozes and record.was_ready else awake
            self.begin()
        elif record.pid is not None and self._container is None:
            self._fail(AWAY)
        else:
            self.begin()  # accepted, and the agent ended before it could start it

    def stop(self) -> None:
        """Stop at the step of `record.stop`, in the background; a stop under way goes on from there."""
        self.looked.set()
        self._set(EngineState.STOPPING, self.record.stop.reason if self.record.stop else "")
        self._go(self._end())

    def follow_rest(self) -> None:
        """Go on with what `record.asleep` says now: at once, whatever is being waited for."""
        self._sleep.nudge()
        self._around.watcher.changed(self)

    def believe_free(self) -> None:
        """Somebody says that what its devices' memory still shows is not its own: that is waited for no longer."""
        self.freed = True
        self._go(self._end() if self.record.stop is not None else self._wait_until_free())

    def detach(self) -> None:
        """Let go of the engine without touching it: the agent ends, the fleet does not."""
        if self._task is not None:
            self._task.cancel()
        if self._engine is not None:
            self._engine.close()

    def update(self, **changes: object) -> None:
        """Replace fields of the record; the caller saves."""
        self.record = self.record.model_copy(update=changes)

    def report(self) -> ReplicaReport:
        """Its row. What lasts is made once per change: reports of hundreds of replicas leave at every change of one."""
        asleep = self._sleep.asleep and self.state is EngineState.LOADING
        seen = (self.record, self.state, self.reason, self.stuck, asleep)
        if self._told is None or self._told[0] is not self.record or self._told[1:5] != seen[1:]:
            url = self._url(self._around.settings.reach_host)
            row = row_of(self.record, self.state, self.stuck or self.reason, url, asleep=asleep)
            self._told = (*seen, row)
        now_s = _now_s()
        usage = self._vitals.usage if self.state is EngineState.READY else None
        return self._told[5].model_copy(update={"state_age_s": round(now_s - self._since_s, 3), "usage": usage})

    # --- its life --------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """Until its end; an engine that found its port taken lives again on another."""
        while await self._live_once():
            pass

    async def _live_once(self) -> bool:
        """One process. True when it lost its port and has others now."""
        engine = self._engine or await self._take_up() or await self._execute()
        if engine is None:
            return False
        self._engine = engine
        self._around.watcher.changed(self)
        ended = asyncio.create_task(engine.exited.wait(), name="exit")
        watch = asyncio.create_task(self._watch(), name="watch")
        try:
            await asyncio.wait({ended, watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            passed = watch.cancel() is False
        if engine.exited.is_set():
            self._engine = await self._take_up() or engine
            if self._engine is not engine:  # its client ended, the container did not
                return True
            if self._lost_its_port() and await self._move():
                return True
            self._fail(await self._how_it_ended(engine.exit_code), engine.exit_code)
        elif passed:
            await self._give_up(watch.result())
        return False

    async def _how_it_ended(self, exit_code: int | None) -> str:
        """In words. Only for one that ended well is the machine looked at: a death is to be told at once."""
        words = how_it_ended(exit_code, self.state)
        if self._container is not None:
            return words + await self._container.why_ended(self.record)
        if exit_code == 0 and not self.record.was_ready and (left := await self._survivors()):
            return f"{words}, and left {describe(left)}: an engine must stay in the foreground"
        return words + self._around.memory_deaths.why(self.record.replica, exit_code)

    def _lost_its_port(self) -> bool:
        record = self.record
        if record.was_ready or record.moves >= MOST_MOVES:
            return False
        return tells_of_a_lost_port(self._around.logs.last_words(record.replica, record.start.attempt))

    async def _move(self) -> bool:
        """Other ports, written down before anything is started on them; False when there are none."""
        await self._bring_down(StopStep.KILL)  # what the dead leader may have left
        old = self.record.ports
        try:
            port, *extra = self._around.ports.take(len(old), boottime_s())
        except NoPort:
            return False
        moved = {"port": port, "extra_ports": dict(zip(self.record.extra_ports, extra, strict=True))}
        self.update(**moved, pid=None, start_ticks=None, started_s=None, moves=self.record.moves + 1)
        self._around.ports.rest(old, boottime_s())
        self._around.logs.begin_anew(self.record.replica, self.record.start.attempt)
        self._engine = None
        self._set(EngineState.STARTING, f"port {old[0]} was taken by somebody else: starting on {port}")
        with suppress(LedgerError):  # kept as the ledger's problem; the marks tell as much
            await self._around.ledger.save()
        return True

    async def _take_up(self) -> engines.Engine | None:
        """The leader of a container that runs without one; None for a process, and where no container runs."""
        engine = await self._container.attach(self.record) if self._container is not None else None
        if engine is not None:
            self.update(pid=engine.pid, start_ticks=engine.start_ticks, started_s=self.record.started_s or boottime_s())
            self._around.ledger.save_soon()
        return engine

    async def _execute(self) -> engines.Engine | None:
        """Start the process; None when that fails, and the state says why."""
        if self.record.pid is not None:  # it ran, and no container of it does
            self._fail(AWAY)
            return None
        if self._container is not None and (reason := await self._container.clear(self.record)):
            self._fail(reason)
            return None
        record = self.record.model_copy(update={"started_s": boottime_s()})  # part of the mark it will carry
        what = what_to_execute(record, self._around, self._container)
        if isinstance(what, str):
            self._fail(what)
            return None
        executable, invocation = what
        self.record = record
        self._around.ports.hand_over(self.record.ports)
        try:
            engine = engines.start(executable, invocation, self._log)
        except OSError as error:
            at = f" ({error.filename})" if error.filename and str(error.filename) != executable else ""
            self._fail(f"cannot execute {executable}: {error.strerror}{at}")
            return None
        if self._container is None:  # podman's client is the parent of what watches over the container
            self._around.cgroups.enter(self.record.replica, engine.pid)
        self.update(pid=engine.pid, start_ticks=engine.start_ticks)
        self._around.ledger.save_soon()
        return engine

    async def _watch(self) -> str:
        """Keep the state true; return only when the engine is to be ended, with what to say about it."""
        size = LogSize(str(self._log))
        while True:
            if self.record.was_ready and (reason := self._vitals.why_hung()):
                return reason
            if self.record.was_ready and await self._sleeps():
                if reason := self._sleep.why_lost():
                    return reason
                continue
            left_s = await self._start_left_s()
            if left_s <= 0:
                return f"start limit {self.record.start.launch.start_limit_s:g} s reached while {self.state}"
            if self.state is EngineState.STARTING and not self._port_answers():
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
        if not await self._sleep.follow(self._url(self._host), self.record.asleep, self._figures_of_use):
            return False
        self._vitals.failures = 0
        if not self.record.dozes:
            self.update(dozes=True)
            self._around.ledger.save_soon()
        if self._sleep.heard:
            self._vitals.hear()
        self._set(EngineState.LOADING, self._sleep.reason)
        self.looked.set()
        await self._sleep.pause(self.record.asleep)
        return True

    async def _figures_of_use(self) -> bool:
        """Whether it works on requests, by its own figures: such as no router sent."""
        if (figures := await self._figures()) is not None:
            self._vitals.take_figures(figures)
        return self._vitals.in_use

    async def _look(self) -> None:
        if len(self._around.settings.probe_hosts) > 1:
            self._port_answers()
        base, launch = self._url(self._host), self.record.start.launch
        if self.record.was_ready:  # asking for a completion again would be use
            launch = launch.model_copy(
                update={"readiness": launch.readiness.model_copy(update={"probe_completion": False})}
            )
        finding = await self._around.prober.look(base, launch, was_ready=self.state is EngineState.READY)
        if not finding.heard and (why := self._why_unheard()):
            finding = replace(finding, reason=why)
        self._settle(finding)
        if self.record.was_ready and (figures := await self._around.prober.figures(base, launch)) is not None:
            self._vitals.take_figures(figures)

    async def _pause(self, size: LogSize, left_s: float) -> None:
        """Until the next look: sooner while loading, when the log grows."""
        if self.state is EngineState.READY:
            await self._sleep.wait(self._vitals.pause_s(self._since_s))
        elif self.state is EngineState.STARTING:
            await asyncio.sleep(TICK_S)
        else:
            await grown_or_due(size, max(0.0, min(loading_interval_s(self._age_s()), left_s)))

    def _settle(self, finding: Finding) -> None:
        """Move the state to what was found."""
        passed = "" if self.record.was_ready else self._vitals.extension(self._age_s())
        if finding.heard:
            self._vitals.hear()
        if finding.ready:
            self._vitals.failures = 0
            self._became_ready()
            if self.record.dozes and not self.record.asleep:
                self.update(dozes=False)
                self._around.ledger.save_soon()
            self._set(EngineState.READY, self._sleep.reason)
        elif self.state is EngineState.READY:
            self._vitals.failures += 1
            if self._vitals.failures >= FAILURES:
                self._set(EngineState.LOADING, f"was ready, then failed {FAILURES} probes: {finding.reason}")
        elif finding.answers or self.state is EngineState.LOADING:
            self._set(EngineState.LOADING, passed + finding.reason)
        else:
            self._set(EngineState.STARTING, passed + finding.reason)
        self.looked.set()

    def _became_ready(self) -> None:
        if self.record.was_ready:
            return
        self.update(was_ready=True)
        self._around.ledger.save_soon()
        self._around.watcher.became_ready(self, self._age_s())

    async def _give_up(self, reason: str) -> None:
        """End an engine that never became ready, or is hung, then count it as failed."""
        self._set(EngineState.LOADING if self.state is EngineState.READY else self.state, reason)
        await self._bring_down(StopStep.KILL)
        self._fail(reason, self._engine.exit_code if self._engine else None)

    def _fail(self, reason: str, exit_code: int | None = None) -> None:
        clean = self._around.secrets.clean
        reason, tail = clean(reason), self._around.logs.tail(self.record.replica, self.record.start.attempt, clean)
        self.stuck = ""
        self.update(failure=Failure(reason=reason[:300], exit_code=exit_code, log_tail=tail))
        self._around.ledger.save_soon()
        self.looked.set()
        self._set(EngineState.FAILED, reason)
        if not self.freed:
            self._go(self._wait_until_free())

    # --- its end ---------------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        if self._engine is None or self._engine.exited.is_set():
            self._engine = await self._take_up() or self._engine
        stop = self.record.stop
        if stop is not None and stop.step is StopStep.TERM and self.record.was_ready:
            await let_finish(self._figures, self.record.start.launch, stop.drain_s, self._still_at_work)
        await self._bring_down(stop.step if stop else StopStep.TERM)
        await self._wait_until_free()
        self._around.watcher.gone(self)

    async def _figures(self) -> Mapping[str, float] | None:
        if self._engine is None or self._engine.exited.is_set():
            return None
        base = self._url(self._host)
        return await self._around.prober.figures(base, self.record.start.launch)

    def _still_at_work(self, requests: int) -> None:
        reason = self.record.stop.reason if self.record.stop else ""
        told = f"{requests} request{'s' * (requests != 1)} that no router sent"
        self._set(EngineState.STOPPING, f"waits for {told}; {reason}"[:300])

    async def _wait_until_free(self) -> None:
        """Return when the devices' memory has come back, however long that takes; told as stuck past the limit."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.record.start.launch.stop.kill_limit_s
        pause, slowest = FREE_POLL_S
        while not self.freed and (look := self._around.look_at_devices) is not None:
            pids = self._pids | ({self.record.pid} if self.record.pid is not None else set())
            reason = why_not_free(self.record.start.claims, self.record.idle_mib, await look(), pids)
            self.freed = not reason
            if reason:
                if clock() >= deadline:
                    self._tell_stuck(reason)
                await asyncio.sleep(pause)
                pause = min(slowest, pause * 2)
        if self.stuck:
            self.stuck = ""
            self._around.watcher.changed(self)

    async def _bring_down(self, first: StopStep) -> None:
        ladder = rungs(self.record.start.launch.stop, first)
        await bring_down(self._engine, self._survivors, ladder, self._on_step, self._on_stuck)

    async def _survivors(self) -> tuple[Process, ...]:
        around, census = self._around, await self._around.census.take()
        grouped = around.cgroups.pids(self.record.replica)  # after the census: what it holds and that misses is new
        processes = processes_of(self.record, around.settings.node, census, grouped)
        self._pids |= {process.pid for process in processes}
        if self._container is None:
            return processes
        return (*processes, *await self._container.left(self.record, force=self._ends_by_force))

    def _on_step(self, step: StopStep) -> None:
        self._ends_by_force = step is StopStep.KILL
        if self._ends_by_force:
            self._around.cgroups.kill(self.record.replica)
        if self.record.stop is not None and self.record.stop.step is not step:
            self.update(stop=self.record.stop.model_copy(update={"step": step}))
            self._around.ledger.save_soon()

    def _on_stuck(self, left: tuple[Process, ...]) -> None:
        limit_s = self.record.start.launch.stop.kill_limit_s
        if self.state is not EngineState.STOPPING:
            self._since_s = _now_s()
            self.state = EngineState.STOPPING
        self._tell_stuck(f"still there after KILL and {limit_s:g} s: {describe(left)}")

    def _tell_stuck(self, reason: str) -> None:
        if reason != self.stuck:
            self.stuck = reason
            self._around.watcher.changed(self)

    # --- small things ----------------------------------------------------------------------------------------------

    def _go(self, life: Coroutine[None, None, None]) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = self._around.make_task(life, f"replica {self.record.replica}")

    def _set(self, state: EngineState, reason: str) -> None:
        if (state, reason) == (self.state, self.reason):
            return
        if state is not self.state:
            self._since_s = _now_s()
        self.state, self.reason = state, reason
        self._around.watcher.changed(self)

    def _port_answers(self) -> bool:
        host = answering_host(self._around.settings.probe_hosts, self.record.port)
        self._host = host or self._host
        return host is not None

    def _why_unheard(self) -> str:
        """Looked for once a second at most; in between, what was found last."""
        age_s = self._age_s()
        if age_s >= LOOK_AFTER_S and abs(age_s - self._unheard[0]) >= 1.0:
            self._unheard = (age_s, why_unheard(self.record.pid, self.record.port, self._around.settings.probe_hosts))
        return self._unheard[1]

    def _url(self, host: str) -> str:
        return f"http://{f'[{host}]' if ':' in host else host}:{self.record.port}"

    def _age_s(self) -> float:
        return boottime_s() - (self.record.started_s or boottime_s())

    async def _start_left_s(self) -> float:
        """Until the start has failed, as far as is known now."""
        if self.record.was_ready:
            return float("inf")
        if self._vitals.wants_io(self._age_s()):
            self._vitals.take_io(process.pid for process in await self._survivors())
        return self._vitals.start_left_s(self._age_s())


def _now_s() -> float:
    return asyncio.get_running_loop().time()
