"""Small real processes that stand in for parts: each waits for signals, and says when it is ready by a file."""

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from workers.devstack.owned import mark
from workers.devstack.supervisor import Part

WAITS = """
import pathlib, signal, sys, time
pathlib.Path(sys.argv[1]).write_text("ready")
signal.pause()
"""
IGNORES_TERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITS
ENDS_ON_SECOND_TERM = """
import signal, sys
heard = []
def term(*_):
    heard.append(1)
    if len(heard) > 1:
        sys.exit(0)
signal.signal(signal.SIGTERM, term)
import pathlib
pathlib.Path(sys.argv[1]).write_text("ready")
while True:
    signal.pause()
"""
FAILS = "import sys; print('no such thing as', sys.argv[1]); sys.exit(3)"
LEAVES_CHILD = (
    """
import os, subprocess, sys
env = {k: v for k, v in os.environ.items() if not k.startswith("LLMGW_")}
subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], env=env, start_new_session=True)
"""
    + WAITS
)
"""As an agent starts an engine: in a session of its own, without the variables of llmgw."""


def part(root: Path, name: str, program: str = WAITS, **more: float) -> Part:
    """A part that is ready when its file is there."""
    flag = root / f"{name}.ready"
    flag.unlink(missing_ok=True)
    argv = (sys.executable, "-c", program, str(flag))
    return Part(name, argv, mark(os.environ, root, name), when_there(flag), **more)


def when_there(flag: Path) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return flag.exists()  # noqa: ASYNC240 - a moment, in a test

    return look
