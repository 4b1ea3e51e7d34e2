"""A cgroup of its own for each engine, where this agent may make one (version 2, own subtree).

A process leaves its session and sheds its mark when it wants to; it cannot leave its cgroup. So what is in there is the
engine's, and one write ends all of it. No limits are set: that is the machine's business.
https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from agent.proc import PROC, place_in_cgroups
from llmgw.ids import ReplicaId


class Cgroups:
    """`root` None: this agent may make none, and sessions and marks are all there is."""

    def __init__(self, root: Path | None) -> None:
        self._root = root

    @property
    def works(self) -> bool:
        return self._root is not None

    def enter(self, replica: ReplicaId, pid: int) -> None:
        """Put a process just started into its replica's cgroup; what it starts is born there."""
        if self._root is not None:
            with suppress(OSError):
                folder = self._root / replica
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "cgroup.procs").write_text(str(pid))

    def pids(self, replica: ReplicaId) -> frozenset[int]:
        """All that live in it, sub-groups of the engine's own making included."""
        if self._root is None:
            return frozenset()
        found: set[int] = set()
        for file in (self._root / replica).rglob("cgroup.procs"):
            with suppress(OSError):  # threaded groups tell no processes; their parent does
                found.update(int(line) for line in file.read_text().split())
        return frozenset(found)

    def replicas(self) -> tuple[ReplicaId, ...]:
        """Those that have a cgroup, empty or not."""
        root = self._root
        if root is None or not root.is_dir():
            return ()
        return tuple(ReplicaId(path.name) for path in root.iterdir() if path.is_dir())

    def kill(self, replica: ReplicaId) -> None:
        """KILL to all of it at once, also to what forks faster than one looks (Linux 5.14)."""
        if self._root is not None:
            with suppress(OSError):
                (self._root / replica / "cgroup.kill").write_text("1")

    def memory_deaths(self, replica: ReplicaId) -> int:
        """Its processes that the kernel ended for want of memory; 0 where that is not counted."""
        if self._root is not None:
            with suppress(OSError, ValueError, IndexError):
                for line in (self._root / replica / "memory.events").read_text().splitlines():
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        return 0

    def remove(self, replica: ReplicaId) -> None:
        """Of a replica that is gone; its cgroup is empty."""
        if self._root is not None:
            folders = sorted((self._root / replica).rglob("*/"), key=lambda path: -len(path.parts))
            for folder in (*folders, self._root / replica):
                with suppress(OSError):
                    folder.rmdir()
            with suppress(OSError):  # others are still in it
                self._root.rmdir()

    def holds(self, pid: int) -> bool:
        """Whether a process lives in one of ours."""
        if self._root is None:
            return False
        with suppress(OSError):
            return f"/{self._root.name}/" in (PROC / str(pid) / "cgroup").read_text()
        return False


def cgroups_for(home: str, proc: Path = PROC) -> Cgroups:
    """Below the agent's own cgroup, one folder per state folder; none where it cannot be made or used."""
    own = own_cgroup(proc)
    if own is None:
        return Cgroups(None)
    name = f"llmgw-{hashlib.sha256(home.encode()).hexdigest()[:12]}"
    probe = own / f"{name}-{os.getpid()}"
    try:
        probe.mkdir()
        usable = os.access(probe / "cgroup.procs", os.W_OK) and os.access(own / "cgroup.procs", os.W_OK)
        probe.rmdir()
    except OSError:
        return Cgroups(None)
    return Cgroups(own / name if usable else None)


def own_cgroup(proc: Path = PROC) -> Path | None:
    """The folder of this process's cgroup of version 2; None where there is no such hierarchy.

    An agent taken over from inside an engine's cgroup (a restart by hand) goes by the folder above it.
    """
    folder, mount = place_in_cgroups(proc)
    if folder is None or mount is None:
        return None
    parts = folder.relative_to(mount).parts
    ours = next((n for n, part in enumerate(parts) if part.startswith("llmgw-")), len(parts))
    return mount.joinpath(*parts[:ours])
