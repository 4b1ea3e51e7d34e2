"""Where each model's replicas are, as bits: for limits per node, spread, zones and groups that keep apart."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from llmgw.ids import ModelName
from llmgw.placing.holding import Holding
from llmgw.placing.need import Request
from llmgw.placing.yard import Yard


class Books:
    """Filled per model when it is first asked for, and told of every change by `come` and `leave` after the yard."""

    def __init__(self, yard: Yard, requests: Mapping[ModelName, Request]) -> None:
        self._requests = requests
        self.zone_of = [site.zone for site in yard.sites]
        zones: defaultdict[str | None, int] = defaultdict(int)
        for i, zone in enumerate(self.zone_of):
            zones[zone] |= 1 << i
        self._zones = dict(zones)
        self._yard = yard
        self._hosts: dict[ModelName, int] = {}
        self._full: dict[ModelName, int] = {}
        self._stay: dict[ModelName, int] = {}
        self._staying: defaultdict[ModelName, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        self._counts: defaultdict[ModelName, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        self._in_zone: defaultdict[ModelName, defaultdict[str | None, int]] = defaultdict(lambda: defaultdict(int))
        self._groups: defaultdict[str, dict[ModelName, None]] = defaultdict(dict)
        for name, request in requests.items():
            if request.group is not None:
                self._groups[request.group][name] = None

    def hosts(self, model: ModelName) -> int:
        """Nodes that have a replica of the model."""
        if model not in self._hosts:
            self._hosts[model] = self._stay[model] = 0
            for holding in self._yard.by_model.get(model, {}).values():
                self._count(holding, 1)
        return self._hosts[model]

    def staying(self, model: ModelName) -> int:
        """Nodes that have a replica of the model which is not about to be replaced: those that count for spread."""
        self.hosts(model)
        return self._stay[model]

    def full(self, model: ModelName) -> int:
        """Nodes that may have no more of it."""
        self.hosts(model)
        return self._full.get(model, 0)

    def come(self, holding: Holding) -> None:
        if holding.model in self._hosts:
            self._count(holding, 1)

    def leave(self, holding: Holding) -> None:
        if holding.model in self._hosts:
            self._count(holding, -1)

    def _count(self, holding: Holding, change: int) -> None:
        model, node = holding.model, holding.node
        counts, bit = self._counts[model], 1 << node
        counts[node] += change
        self._hosts[model] = self._hosts[model] | bit if counts[node] else self._hosts[model] & ~bit
        if not holding.leaves:
            staying = self._staying[model]
            staying[node] += change
            self._stay[model] = self._stay[model] | bit if staying[node] else self._stay[model] & ~bit
        request = self._requests.get(model)
        if request is None:
            return
        if request.max_per_node is not None:
            full = self._full.get(model, 0)
            self._full[model] = full | bit if counts[node] >= request.max_per_node else full & ~bit
        if request.spread_zones and not holding.leaves:
            self._in_zone[model][self.zone_of[node]] += change

    def apart(self, request: Request) -> int:
        """Nodes where a model of the same group is."""
        if request.group is None:
            return 0
        nodes = 0
        for other in self._groups[request.group]:
            if other != request.model:
                nodes |= self.hosts(other)
        return nodes

    def mates(self, request: Request, held: Iterable[Holding]) -> list[Holding]:
        """Of what a node holds, the models of the same group."""
        group = self._groups.get(request.group, {}) if request.group is not None else {}
        return [h for h in held if h.model in group and h.model != request.model]

    def zones(self, request: Request) -> list[int]:
        """Nodes by zone, the zone with the fewest replicas of the model first."""
        if not request.spread_zones:
            return [-1]
        self.hosts(request.model)
        counts = self._in_zone[request.model]
        ordered = sorted(self._zones, key=lambda zone: (counts[zone], zone is None, zone or ""))
        return [self._zones[zone] for zone in ordered]
