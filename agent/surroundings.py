"""What a replica uses of its node, and who is told of its changes."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from agent.again import KeepAt
from agent.census import CensusTaker
from agent.cgroups import Cgroups
from agent.containers import ContainerTool
from agent.devices import Known
from agent.enginelogs import EngineLogs
from agent.ledger import LedgerFile
from agent.local import Executables, Secrets, find_tool
from agent.oom import MemoryDeaths
from agent.ports import Ports
from agent.readiness import Prober
from agent.settings import Settings
from llmgw.wire import LaunchSpec, Refusal

if TYPE_CHECKING:
    from agent.replica import Replica


class Watcher(Protocol):
    """Who is told of a replica's changes."""

    def changed(self, replica: "Replica") -> None: ...
    def became_ready(self, replica: "Replica", after_s: float) -> None: ...
    def gone(self, replica: "Replica") -> None: ...


@dataclass(frozen=True)
class Surroundings:
    """What a replica uses of its node."""

    settings: Settings
    environ: Mapping[str, str]
    executables: Executables
    secrets: Secrets
    containers: ContainerTool | None
    """None where this node has none, or is to use none."""
    ports: Ports
    logs: EngineLogs
    ledger: LedgerFile
    census: CensusTaker
    cgroups: Cgroups
    memory_deaths: MemoryDeaths
    prober: Prober
    devices: Callable[[], Known]
    look_at_devices: Callable[[], Awaitable[Known]] | None
    """None where no tool measures devices: then its processes are all the proof there is."""
    keep_at: KeepAt
    watcher: Watcher

    def program(self, launch: LaunchSpec) -> str | Refusal:
        """The path to execute for a launch: its own program, or the container tool."""
        if launch.container is None:
            return self.executables.find(launch.argv[0])
        return find_tool(self.containers, launch.container, self.settings.allow_images)
