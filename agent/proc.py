"""What the kernel says: this boot, this machine, and every process with its group, session and environment.

Reads /proc (Linux). It never signals, starts or judges a process; `agent.marks` says whose a process is.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a census. `environ` is its raw environment if that holds the marker asked for, else empty."""

    pid: int
    group: int
    session: int
    start_ticks: int
    """Clock ticks from boot to its start: with the pid an identity that outlives neither reuse nor doubt."""
    alive: bool
    name: str = ""
    environ: bytes = b""


@dataclass(frozen=True, slots=True)
class Census:
    """All processes at one moment, the dead ones left out."""

    processes: tuple[Process, ...] = ()

    def by_pid(self, pid: int) -> Process | None:
        return next((process for process in self.processes if process.pid == pid), None)


def take_census(marker: bytes) -> Census:
    """Every live process; environments only of those that hold `marker` (and that we may read)."""
    return Census(tuple(process for process in _read_all(marker) if process.alive))


def process_at(pid: int) -> Process | None:
    """The process with this pid, dead or alive; None if there is none. Its environment is not read."""
    try:
        return parse_stat((PROC / str(pid) / "stat").read_bytes())
    except (OSError, ValueError):
        return None


def parse_stat(line: bytes) -> Process:
    """One line of /proc/PID/stat (proc(5)); the name may hold blanks and brackets.

    A zombie is dead, unless it is a leader whose other threads still run (and still hold devices).
    """
    head, _, tail = line.rpartition(b")")
    pid, _, name = head.partition(b"(")
    fields = tail.split()
    state, threads = fields[0], int(fields[17])
    return Process(
        pid=int(pid),
        group=int(fields[2]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
        alive=state not in (b"Z", b"X") or threads > 1,
        name=name.decode(errors="replace"),
    )


def boot_id() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def machine_id() -> str:
    """The machine's own id; empty where the system has none."""
    for path in (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id")):
        with suppress(OSError):
            if found := path.read_text().strip():
                return found
    return ""


def host_memory_mib() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in (PROC / "meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) // 1024
    return None


def boottime_s() -> float:
    """Seconds since boot, sleep included: the one clock an agent shares with the agent before it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _read_all(marker: bytes) -> Iterator[Process]:
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (process := process_at(int(entry.name))) is not None:
            yield _with_environ(process, marker)


def _with_environ(process: Process, marker: bytes) -> Process:
    try:
        environ = (PROC / str(process.pid) / "environ").read_bytes()
    except OSError:  # gone meanwhile, or another user's
        return process
    if marker not in environ:
        return process
    return Process(
        pid=process.pid,
        group=process.group,
        session=process.session,
        start_ticks=process.start_ticks,
        alive=process.alive,
        name=process.name,
        environ=environ,
    )
