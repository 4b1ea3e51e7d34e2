"""What must be true of a fleet at every moment, looked at where it shows: in what nodes and routers are told.

A promise that is broken is kept as a sentence; nothing is raised, so that a long run tells all of them.
"""

from collections import defaultdict

from pydantic import BaseModel

from bench.fleet.skins import FleetSkin
from llmgw.ids import NodeId, ReplicaId
from llmgw.wire import CommandBatch, EngineState, Start, Stop


class Promises:
    def __init__(self, skin: FleetSkin) -> None:
        self.broken: list[str] = []
        self.starts = 0
        self.stops = 0
        self.is_paused = False
        """The plane was paused, and everything that was under way then has arrived."""
        self.canaries: dict[str, int] = {}
        """Version, as its engines are told by `--version`, to how many may run of it while it is tried."""
        self._skin = skin
        self._homes: defaultdict[ReplicaId, set[NodeId]] = defaultdict(set)

    def heard(self, _: str, document: BaseModel) -> None:
        """Called with each document right after the simulated side took it."""
        if not isinstance(document, CommandBatch):
            return
        for command in document.commands:
            if self.is_paused and isinstance(command, Start | Stop):
                self.broken.append(f"{command.replica} was told to {command.kind} during a pause")
            if isinstance(command, Start):
                self.starts += 1
                self._started(document.node, command)
            elif isinstance(command, Stop):
                self.stops += 1
                self._stopped(document.node, command)

    def _started(self, node: NodeId, start: Start) -> None:
        """A replica has one home for all its life, and what it was given is nobody else's."""
        homes = self._homes[start.replica]
        homes.add(node)
        if len(homes) > 1:
            self.broken.append(f"{start.replica} was started on {', '.join(sorted(homes))}")
        claimed = {claim.device for claim in start.claims}
        for other, engine in self._skin.nodes[node].engines.items():
            if other != start.replica and claimed & {claim.device for claim in engine.start.claims}:
                self.broken.append(f"{start.replica} was given devices of {other} on {node}")

        self._tried(_version(start))

    def _tried(self, version: str) -> None:
        """No more of a version that is only tried than its canaries."""
        most = self.canaries.get(version)
        if most is None:
            return
        engines = (engine for node in self._skin.nodes.values() for engine in node.engines.values())
        lives = (EngineState.STARTING, EngineState.READY)
        running = sum(engine.state in lives and _version(engine.start) == version for engine in engines)
        if running > most:
            self.broken.append(f"{running} replicas run of version {version}, of which {most} may be tried")

    def _stopped(self, node: NodeId, stop: Stop) -> None:
        """Withdraw before stop: no router that can be reached still sends requests to what is told to stop."""
        engine = self._skin.nodes[node].engines.get(stop.replica)
        if engine is None or engine.exit_code is not None:
            return
        for router in self._skin.routers.values():
            if router.id not in self._skin.unreached and stop.replica in router.table.endpoints:
                self.broken.append(f"{stop.replica} was told to stop while {router.id} still routed to it")


def _version(start: Start) -> str:
    argv = start.launch.argv
    return argv[argv.index("--version") + 1] if "--version" in argv else ""
