"""What the kernel says: this boot, this machine, and every process with its group, session and environment.

Reads /proc (Linux). It never signals, starts or judges a process; `agent.marks` says whose a process is.
"""

import errno
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
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
    stopped: bool = False
    """By SIGSTOP, or by a debugger: it does nothing until it is continued."""
    environ: bytes = b""


@dataclass(frozen=True, slots=True)
class Census:
    """All processes at one moment, the dead ones left out."""

    processes: tuple[Process, ...] = ()

    def by_pid(self, pid: int) -> Process | None:
        return next((process for process in self.processes if process.pid == pid), None)


def take_census(marker: bytes, proc: Path = PROC) -> Census:
    """Every live process; environments only of those that hold `marker` (and that we may read).

    Raises OSError when the kernel's list cannot be read whole (no file handle left, another /proc): who is not in a
    part of it need not be gone.
    """
    found = tuple(_read_all(marker, proc))
    if all(process.pid != os.getpid() for process in found):
        raise OSError(errno.ENOENT, f"{proc} does not list this agent itself")
    return Census(tuple(process for process in found if process.alive))


def process_at(pid: int) -> Process | None:
    """The process with this pid, dead or alive; None if there is none. Its environment is not read."""
    try:
        return parse_stat((PROC / str(pid) / "stat").read_bytes())
    except (OSError, ValueError, IndexError):
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
        stopped=state in (b"T", b"t"),
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


def host_memory_mib(proc: Path = PROC) -> int | None:
    """Main memory that engines started here may have: the machine's, or less where this agent itself is limited.

    None where the kernel does not tell.
    """
    with suppress(OSError, ValueError, IndexError):
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemTotal:") and (total := int(line.split()[1]) // 1024):
                return min((total, *_own_limits_mib(proc)))
    return None


def _own_limits_mib(proc: Path) -> Iterator[int]:
    """`memory.max` of this process's cgroup and of those above it."""
    folder, mount = place_in_cgroups(proc)
    if folder is None or mount is None:
        return
    for group in (folder, *folder.parents):
        if group == mount or mount in group.parents:
            with suppress(OSError, ValueError):  # `max`, and the root, which has none
                yield int((group / "memory.max").read_text()) // (1024 * 1024)


def place_in_cgroups(proc: Path = PROC) -> tuple[Path | None, Path | None]:
    """(folder of this process's cgroup of version 2, where that hierarchy is mounted); None where there is none."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
        mounts = (line.split() for line in (proc / "self/mountinfo").read_text().splitlines())
        mount = next(words for words in mounts if words[words.index("-") + 1] == "cgroup2")
        path = next(line.removeprefix("0::") for line in lines if line.startswith("0::"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None, None
    inner, at = mount[3], Path(mount[4])
    return at / path.removeprefix(inner.rstrip("/")).lstrip("/"), at


def boottime_s() -> float:
    """Seconds since boot, sleep included: the one clock an agent shares with the agent before it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


_GONE_OR_ANOTHERS = (FileNotFoundError, ProcessLookupError, PermissionError)


def _read_all(marker: bytes, proc: Path) -> Iterator[Process]:
    for entry in proc.iterdir():
        if entry.name.isdigit():
            try:
                process = parse_stat((entry / "stat").read_bytes())
            except _GONE_OR_ANOTHERS:
                continue
            except (ValueError, IndexError) as error:
                raise OSError(errno.EIO, f"{entry}/stat is none: {error}") from error
            yield _with_environ(process, marker, entry)


def _with_environ(process: Process, marker: bytes, entry: Path) -> Process:
    try:
        environ = (entry / "environ").read_bytes()
    except _GONE_OR_ANOTHERS:
        return process
    return replace(process, environ=environ) if marker in environ else process
