"""One replica's life on this node: executed or adopted, watched, failed or stopped, and gone when that is proven.

It begins and ends engines; `agent.watching` keeps the state true in between, `agent.ending` brings them down. It runs
on the agent's one event loop and never talks to the plane.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress

from agent import engines
from agent.beginning import what_to_execute
from agent.contained import Contained
from agent.course import Course
from agent.ending import Ending
from agent.finishing import let_finish
from agent.ledger import Failure, LedgerError, Record, StopStep
from agent.portloss import tells_of_a_lost_port
from agent.ports import NoPort
from agent.proc import boottime_s
from agent.stopping import describe
from agent.surroundings import Surroundings
from agent.telling import how_it_ended
from agent.watching import Watch
from llmgw.wire import EngineState, ReplicaReport

AWAY = "the engine ended while the agent was away"

MOST_MOVES = 5
"""So many times an engine is started on other ports; then its end is a failure like any other."""


class Replica(Course):
    def __init__(self, record: Record, around: Surroundings) -> None:
        super().__init__(record, around)
        self.leaves_container = record.start.launch.container is not None
        """Its end is not its container's: that stays until it is removed."""
        self._engine: engines.Engine | None = None
        self._task: asyncio.Task[None] | None = None
        self._log = around.logs.path(record.replica, record.start.attempt)
        tool = around.containers if record.start.launch.container is not None else None
        self._container = Contained(tool, around.settings.node, self._log) if tool is not None else None
        self._ending = Ending(self, around, self._container)
        self._watching = Watch(
            self, around, self._log, self._ending.survivors, lambda age_s: around.watcher.became_ready(self, age_s)
        )

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
            self.become(EngineState.FAILED, record.failure.reason)
            self.looked.set()
            if not self.freed:
                self._go(self._ending.wait_until_free())
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
        self.become(EngineState.STOPPING, self.record.stop.reason if self.record.stop else "")
        self._go(self._end())

    def follow_rest(self) -> None:
        """Go on with what `record.asleep` says now: at once, whatever is being waited for."""
        self._watching.nudge()
        self.tell()

    def believe_free(self) -> None:
        """Somebody says that what its devices' memory still shows is not its own: that is waited for no longer."""
        self.freed = True
        self._go(self._end() if self.record.stop is not None else self._ending.wait_until_free())

    def detach(self) -> None:
        """Let go of the engine without touching it: the agent ends, the fleet does not."""
        if self._task is not None:
            self._task.cancel()
        if self._engine is not None:
            self._engine.close()

    def tell(self) -> None:
        self._around.watcher.changed(self)

    def report(self) -> ReplicaReport:
        """Its row."""
        return self.row(self._watching.usage, asleep=self._watching.asleep)

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
        self.tell()
        ended = asyncio.create_task(engine.exited.wait(), name="exit")
        watch = asyncio.create_task(self._watching.run(), name="watch")
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
        if exit_code == 0 and not self.record.was_ready and (left := await self._ending.survivors()):
            return f"{words}, and left {describe(left)}: an engine must stay in the foreground"
        return words + self._around.memory_deaths.why(self.record.replica, exit_code)

    def _lost_its_port(self) -> bool:
        record = self.record
        if record.was_ready or record.moves >= MOST_MOVES:
            return False
        return tells_of_a_lost_port(self._around.logs.last_words(record.replica, record.start.attempt))

    async def _move(self) -> bool:
        """Other ports, written down before anything is started on them; False when there are none."""
        await self._ending.bring_down(self._engine, StopStep.KILL)  # what the dead leader may have left
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
        self.become(EngineState.STARTING, f"port {old[0]} was taken by somebody else: starting on {port}")
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

    async def _give_up(self, reason: str) -> None:
        """End an engine that never became ready, or is hung, then count it as failed."""
        self.become(EngineState.LOADING if self.state is EngineState.READY else self.state, reason)
        await self._ending.bring_down(self._engine, StopStep.KILL)
        self._fail(reason, self._engine.exit_code if self._engine else None)

    def _fail(self, reason: str, exit_code: int | None = None) -> None:
        clean = self._around.secrets.clean
        reason, tail = clean(reason), self._around.logs.tail(self.record.replica, self.record.start.attempt, clean)
        self.stuck = ""
        self.update(failure=Failure(reason=reason[:300], exit_code=exit_code, log_tail=tail))
        self._around.ledger.save_soon()
        self.looked.set()
        self.become(EngineState.FAILED, reason)
        if not self.freed:
            self._go(self._ending.wait_until_free())

    # --- its end ---------------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        if self._engine is None or self._engine.exited.is_set():
            self._engine = await self._take_up() or self._engine
        stop = self.record.stop
        if stop is not None and stop.step is StopStep.TERM and self.record.was_ready:
            await let_finish(self._figures, self.record.start.launch, stop.drain_s, self._still_at_work)
        await self._ending.bring_down(self._engine, stop.step if stop else StopStep.TERM)
        await self._ending.wait_until_free()
        self._around.watcher.gone(self)

    async def _figures(self) -> Mapping[str, float] | None:
        if self._engine is None or self._engine.exited.is_set():
            return None
        return await self._watching.figures()

    def _still_at_work(self, requests: int) -> None:
        reason = self.record.stop.reason if self.record.stop else ""
        told = f"{requests} request{'s' * (requests != 1)} that no router sent"
        self.become(EngineState.STOPPING, f"waits for {told}; {reason}"[:300])

    # --- small things ----------------------------------------------------------------------------------------------

    def _go(self, life: Coroutine[None, None, None]) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = self._around.make_task(life, f"replica {self.record.replica}")
