"""What must be true of a fleet at every moment, looked at where it shows: in what nodes and routers are told.

A promise that is broken is kept as a sentence; nothing is raised, so that a long run tells all of them.
"""

from collections import defaultdict

from pydantic import BaseModel

from bench.fleet.skins import FleetSkin
from llmgw.ids import NodeId, ReplicaId
from llmgw.wire import CommandBatch, Start, Stop


class Promises:
    def __init__(self, skin: FleetSkin) -> None:
        self.broken: list[str] = []
        self.starts = 0
        self.stops = 0
        self._skin = skin
        self._homes: defaultdict[ReplicaId, set[NodeId]] = defaultdict(set)

    def heard(self, _: str, document: BaseModel) -> None:
        """Called with each document right after the simulated side took it."""
        if not isinstance(document, CommandBatch):
            return
        for command in document.commands:
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

    def _stopped(self, node: NodeId, stop: Stop) -> None:
        """Withdraw before stop: no router that can be reached still sends requests to what is told to stop."""
        engine = self._skin.nodes[node].engines.get(stop.replica)
        if engine is None or engine.exit_code is not None:
            return
        for router in self._skin.routers.values():
            if router.id not in self._skin.unreached and stop.replica in router.table.endpoints:
                self.broken.append(f"{stop.replica} was told to stop while {router.id} still routed to it")
