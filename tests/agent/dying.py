"""Runs an agent that is killed at one step: `python -m tests.agent.dying MODULE:NAME NTH before|after FLAG flag…`.

The step is the NTH call of a function of the agent since the file FLAG exists. The kill is a real SIGKILL of the whole
process; nothing of the agent's own code knows of it.
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


def die_at(target: str, nth: int, when: str, flag: Path) -> None:
    """Put the kill around the function."""
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner: Any = functools.reduce(getattr, owners, importlib.import_module(module))
    setattr(owner, name, _dying(getattr(owner, name), _Count(nth, flag), when))


class _Count:
    def __init__(self, nth: int, flag: Path) -> None:
        self._left = nth
        self._flag = flag

    def is_due(self) -> bool:
        if self._flag.exists():
            self._left -= 1
        return self._left == 0 and self._flag.exists()


def _dying(original: Callable[..., Any], count: _Count, when: str) -> Callable[..., Any]:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def dies_async(*args: Any, **kwargs: Any) -> Any:
            due = count.is_due()
            if due and when == "before":
                die()
            result = await original(*args, **kwargs)
            if due:
                die()
            return result

        return dies_async

    @functools.wraps(original)
    def dies(*args: Any, **kwargs: Any) -> Any:
        due = count.is_due()
        if due and when == "before":
            die()
        result = original(*args, **kwargs)
        if due:
            die()
        return result

    return dies


if __name__ == "__main__":
    target_, nth_, when_, flag_, *rest = sys.argv[1:]
    from agent.main import main

    die_at(target_, int(nth_), when_, Path(flag_))
    sys.argv = ["agent", *rest]
    main()
