"""`llmgw dev --check`: the stack, unattended. A timeline for people on stderr, one line of JSON on stdout, 0 or 1."""

import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable
from dataclasses import asdict, dataclass
from pathlib import Path

from workers.devstack.layout import StackError, free_row
from workers.devstack.parts import find_programs
from workers.devstack.show import Lines
from workers.devstack.stack import absolute, prepared
from workers.devstack.steps import END, STEPS, Scene, Step, StepFailedError


@dataclass(frozen=True, slots=True)
class Outcome:
    """One step's line of the answer; `ms` is what it took."""

    name: str
    ms: int
    ok: bool
    detail: str


class Timeline(Lines):
    """Lines with milliseconds."""

    def stamp(self) -> str:
        return f"{self.since_start_s() * 1000:7.0f} ms"


async def run_check(root: Path | None, first_port: int | None, stop: asyncio.Event) -> int:
    """Run every step, in a folder of its own unless `root` is given. 0 when all held. The folder stays on failure."""
    folder = absolute(root or Path(tempfile.mkdtemp(prefix="llmgw-check-")))
    show, began = Timeline(sys.stderr), time.monotonic()
    try:
        # Ports of its own too: a check runs beside whatever else runs here.
        first_port = free_row() if first_port is None and root is None else first_port
        async with prepared(folder, find_programs(), first_port, show.part) as stack:
            outcomes = await _steps(Scene(stack), show, stop)
    except StackError as error:
        outcomes = [Outcome("prepare", _ms_since(began), False, str(error))]
        show.say(f"FAILED  {error}")
    ok = all(outcome.ok for outcome in outcomes)
    answer = {"check": "ok" if ok else "failed", "ms": _ms_since(began), "steps": [asdict(o) for o in outcomes]}
    if not ok:
        answer["state_dir"] = str(folder)
        show.say(f"failed; logs and state are kept in {folder}")
    elif root is None:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(answer, ensure_ascii=False), flush=True)
    return 0 if ok else 1


async def _steps(scene: Scene, show: Lines, stop: asyncio.Event) -> list[Outcome]:
    """The steps until one fails, and the teardown in any case."""
    outcomes: list[Outcome] = []
    try:
        for step in STEPS:
            outcomes.append(await _unless(stop, step.name, run_step(step, scene)))
            _tell(show, outcomes[-1])
            if not outcomes[-1].ok:
                break
    finally:
        outcomes.append(await run_step(END, scene))
        _tell(show, outcomes[-1])
    return outcomes


async def run_step(step: Step, scene: Scene) -> Outcome:
    began = time.monotonic()
    try:
        async with asyncio.timeout(step.limit_s):
            detail, ok = await step.act(scene), True
    except TimeoutError:
        detail, ok = f"not done after {step.limit_s:g} s", False
    except (StepFailedError, StackError) as error:
        detail, ok = str(error), False
    except Exception as error:  # the check answers whatever happens; what is unforeseen is told by its type too
        detail, ok = f"{type(error).__name__}: {error}", False
    if not ok:
        detail += f" (logs: {scene.stack.layout.logs})"
    return Outcome(step.name, _ms_since(began), ok, detail)


async def _unless(stop: asyncio.Event, name: str, work: Awaitable[Outcome]) -> Outcome:
    """The step's outcome, or its failure when somebody stops the check meanwhile."""
    began, running, stopped = time.monotonic(), asyncio.ensure_future(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        return Outcome(name, _ms_since(began), False, "stopped by a signal")
    finally:
        for task in (running, stopped):
            task.cancel()
        await asyncio.gather(running, stopped, return_exceptions=True)


def _tell(show: Lines, outcome: Outcome) -> None:
    show.say(f"{'ok    ' if outcome.ok else 'FAILED'}  {outcome.name} ({outcome.ms} ms): {outcome.detail}")


def _ms_since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
