"""One engine process: started in its own session, or adopted, and its end noticed at once.

Both are watched by a pidfd, so a child and an adopted process are the same thing here; only a child has an exit code.
It never decides to start or stop.
"""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

from agent.launch import Invocation
from agent.proc import process_at

_RESET_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


class Engine:
    """A leader: the first process of a session. Use `start` or `adopt`; `exited` is set when it has ended."""

    def __init__(self, pid: int, start_ticks: int, pidfd: int) -> None:
        self.pid = pid
        self.start_ticks = start_ticks
        self.exited = asyncio.Event()
        self.exit_code: int | None = None
        """As waitpid tells it, negative for a signal; None while it runs, and for good if it was not our child."""
        self._pidfd = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._ended)

    def send(self, signum: signal.Signals) -> None:
        """Signal the leader alone; one that has ended is left alone."""
        if self._pidfd >= 0:
            with suppress(ProcessLookupError, PermissionError):  # what stays is seen by the census, and told
                signal.pidfd_send_signal(self._pidfd, signum)

    def close(self) -> None:
        """Stop watching; the process goes on."""
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _ended(self) -> None:
        with suppress(ChildProcessError):  # adopted: its exit code went to another parent
            result = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
            if result is not None:
                killed = result.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
                self.exit_code = -result.si_status if killed else result.si_status
        self.close()
        self.exited.set()


def start(executable: str, invocation: Invocation, log: Path) -> Engine:
    """Execute in a new session, output to `log`, no input. Raises OSError when it cannot be executed."""
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch(0o600)
    pid = os.posix_spawn(
        executable,
        invocation.argv,
        invocation.env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=_RESET_SIGNALS,
    )
    process = process_at(pid)  # our child cannot vanish before it is waited for
    try:
        return Engine(pid, process.start_ticks if process else 0, os.pidfd_open(pid))
    except OSError:  # no file handle left: what cannot be watched is not run
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def adopt(pid: int, start_ticks: int) -> Engine | None:
    """The process that was started as (pid, start_ticks); None if that one is gone."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    process = process_at(pid)  # asked after opening: the pidfd and this answer speak of the same process
    if process is None or process.start_ticks != start_ticks or not process.alive:
        os.close(pidfd)
        return None
    return Engine(pid, start_ticks, pidfd)
