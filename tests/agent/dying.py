"""Runs an agent that is killed at one step: `python -m tests.agent.dying MODULE:NAME WHICH before|after FLAG flag…`.

The step is a call of a function of the agent since the file FLAG exists: the WHICHth, or, of a write of the ledger, the
first that shows a moment in a replica's life (`MOMENTS`). The kill is a real SIGKILL of the whole process; nothing of
the agent's own code knows of it.
"""

import functools
import importlib
import inspect
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent.ledger import Ledger, StopStep

MOMENTS: dict[str, Callable[[Ledger], bool]] = {
    "accepted": lambda ledger: bool(ledger.records),
    "executed": lambda ledger: any(record.pid for record in ledger.records.values()),
    "ready": lambda ledger: any(record.was_ready for record in ledger.records.values()),
    "wanted": lambda ledger: _stops_at_least(ledger, StopStep.TERM),
    "asked twice": lambda ledger: _stops_at_least(ledger, StopStep.SECOND_TERM),
    "forced": lambda ledger: _stops_at_least(ledger, StopStep.KILL),
    "gone": lambda ledger: not ledger.records,
}
"""What a ledger shows. Not the number of a write: on a busy machine moments share one (`LedgerFile.save_soon`)."""


def _stops_at_least(ledger: Ledger, step: StopStep) -> bool:
    order = list(StopStep)
    stops = (record.stop for record in ledger.records.values())
    return not ledger.records or any(stop and order.index(stop.step) >= order.index(step) for stop in stops)


def die_at(target: str, which: str, when: str, flag: Path) -> None:
    """Put the kill around the function."""
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner: Any = functools.reduce(getattr, owners, importlib.import_module(module))
    setattr(owner, name, _dying(getattr(owner, name), _Count(which, flag), when))


class _Count:
    def __init__(self, which: str, flag: Path) -> None:
        self._shows = MOMENTS.get(which)
        self._left = 1 if self._shows else int(which)
        self._flag = flag

    def is_due(self, args: tuple[Any, ...]) -> bool:
        if not self._flag.exists():
            return False
        if self._shows is None or self._shows(args[1]):
            self._left -= 1
        return self._left == 0


def _dying(original: Callable[..., Any], count: _Count, when: str) -> Callable[..., Any]:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def dies_async(*args: Any, **kwargs: Any) -> Any:
            due = count.is_due(args)
            if due and when == "before":
                die()
            result = await original(*args, **kwargs)
            if due:
                die()
            return result

        return dies_async

    @functools.wraps(original)
    def dies(*args: Any, **kwargs: Any) -> Any:
        due = count.is_due(args)
        if due and when == "before":
            die()
        result = original(*args, **kwargs)
        if due:
            die()
        return result

    return dies


if __name__ == "__main__":
    target_, which_, when_, flag_, *rest = sys.argv[1:]
    from agent.main import main

    die_at(target_, which_, when_, Path(flag_))
    sys.argv = ["agent", *rest]
    main()
