"""Whether the kernel ended an engine for want of memory: a KILL that nobody here sent.

The engine's own cgroup counts it where the memory controller is on; else the machine's counter tells that somebody was
ended so in these seconds. https://docs.kernel.org/admin-guide/cgroup-v2.html (memory.events), proc_vmstat(5)
"""

import signal
from contextlib import suppress
from pathlib import Path

from agent.cgroups import Cgroups
from agent.proc import PROC
from llmgw.ids import ReplicaId


class MemoryDeaths:
    """`sample` it now and then: what happened before the last sample but one is nobody's present death."""

    def __init__(self, cgroups: Cgroups, proc: Path = PROC) -> None:
        self._cgroups = cgroups
        self._proc = proc
        self._samples = (self._machines(), self._machines())

    def sample(self) -> None:
        self._samples = (self._samples[1], self._machines())

    def why(self, replica: ReplicaId, exit_code: int | None) -> str:
        """What is added to the end of an engine that ended with this code; empty when memory has no part in it."""
        if exit_code != -signal.SIGKILL:
            return ""
        if own := self._cgroups.memory_deaths(replica):
            return f": out of memory (the kernel ended {own} of its processes, memory.events)"
        since = self._machines() - self._samples[0]
        return f": out of memory, it seems (the kernel ended {since} processes for that just now)" if since > 0 else ""

    def _machines(self) -> int:
        with suppress(OSError, ValueError, IndexError):
            for line in (self._proc / "vmstat").read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0
