"""Everything a plan looks things up in: the yard, what places cost, a search per need, nodes by label and weights.

Built once per pass from sites, holdings and the whole catalog's demand; plans are made over it.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from llmgw.ids import ModelName, NodeId, PoolName
from llmgw.placing.books import Books
from llmgw.placing.holding import Holding
from llmgw.placing.need import Label, Need, Request, Site
from llmgw.placing.seeker import Seeker
from llmgw.placing.shadow import Shadow
from llmgw.placing.worth import Worth, mix_of
from llmgw.placing.yard import Yard


class Field:
    """`models`: every model of the catalog as a request (its `count` does not matter), for the mix of what is asked.
    `expected`: replicas to count on per model; absent: what the request desires."""

    def __init__(
        self,
        sites: Sequence[Site],
        models: Sequence[Request],
        expected: Mapping[ModelName, int] | None = None,
    ) -> None:
        self.models = {m.model: m for m in sorted(models, key=lambda m: m.model)}
        needs = {need: None for model in self.models.values() for need in model.needs}
        self.yard = Yard(sorted(sites, key=lambda s: s.id), needs)
        self._expected = {m: (expected or {}).get(m, r.desired or r.count) for m, r in self.models.items()}
        self._seekers: dict[Need, Seeker] = {}
        self._nodes: dict[frozenset[NodeId], int] = {}
        self._cached: dict[str, int] | None = None
        self._outside: dict[PoolName, int] = {}
        self._labelled: dict[Label, int] = {}
        self._worth: Worth | None = None
        self._shadows: dict[int, Shadow] = {}
        self._options: dict[ModelName, tuple[tuple[Need, ...], int]] = {}
        self._ids = 0
        self.open = _bits(i for i, site in enumerate(self.yard.sites) if not site.closed)
        self.troubled = _bits(i for i, site in enumerate(self.yard.sites) if any(slot.trouble for slot in site.slots))
        """Nodes with devices that cannot be had for a reason of their own."""
        self.blind = _bits(i for i, site in enumerate(self.yard.sites) if site.blind)

    def load(self, holdings: Iterable[Holding]) -> None:
        """What is held already; to be told before anything is looked for."""
        self.yard.load(holdings)

    @property
    def worth(self) -> Worth:
        if self._worth is None:
            mix = mix_of({m: (r.needs, self._expected[m]) for m, r in self.models.items()})
            leans = [
                (frozenset(r.needs), float(self._expected[m] * r.needs[0].devices))
                for m, r in self.models.items()
                if r.needs
            ]
            self._worth = Worth(self.yard, mix, leans)
        return self._worth

    def reprice(self) -> None:
        """Price layouts by how full they are now."""
        if self._worth is not None:
            self._worth.reprice()
            self._seekers.clear()
            self.yard.forget_empty()

    def seeker(self, need: Need) -> Seeker:
        found = self._seekers.get(need)
        if found is None:
            found = self._seekers[need] = Seeker(self.yard, self.worth, need, self.base(need))
        return found

    def base(self, need: Need) -> int:
        """Nodes that may take it, whatever is left on them."""
        base = self.open
        if need.asks:
            base &= ~self.blind
        if need.nodes:
            base &= self.nodes(need.nodes)
        return base

    def options(self, request: Request) -> int:
        """Nodes of a layout on which one of its needs could ever be met."""
        known = self._options.get(request.model)
        if known is not None and known[0] is request.needs:
            return known[1]
        layouts = {c for need in request.needs for c, ways in enumerate(self.worth.draws(need)) if ways}
        nodes = sum(self.yard.layout_sizes[c] for c in layouts)
        self._options[request.model] = request.needs, nodes
        return nodes

    def ranked(self) -> Iterable[Request]:
        return self.models.values()

    def shadow(self, below: int) -> Shadow:
        """The yard as if everything below a rank were gone."""
        found = self._shadows.get(below)
        if found is None:
            found = self._shadows[below] = Shadow(self.yard, below)
        return found

    # --- nodes as bits ---

    def nodes(self, ids: frozenset[NodeId]) -> int:
        if not ids:
            return 0
        found = self._nodes.get(ids)
        if found is None:
            index = self.yard.index
            found = self._nodes[ids] = _bits(index[id_] for id_ in ids if id_ in index)
        return found

    def cached(self, weights: str) -> int:
        """Nodes that have these weights."""
        if self._cached is None:
            found: dict[str, list[int]] = {}
            for i, site in enumerate(self.yard.sites):
                for source in site.weights:
                    found.setdefault(source, []).append(i)
            self._cached = {source: _bits(nodes) for source, nodes in found.items()}
        return self._cached.get(weights, 0)

    def outside(self, pool: PoolName) -> int:
        """Nodes of other pools."""
        found = self._outside.get(pool)
        if found is None:
            sites = enumerate(self.yard.sites)
            found = self._outside[pool] = _bits(i for i, site in sites if site.pool != pool)
        return found

    def labelled(self, label: Label) -> int:
        found = self._labelled.get(label)
        if found is None:
            key, value = label
            sites = enumerate(self.yard.sites)
            found = self._labelled[label] = _bits(i for i, site in sites if site.labels.get(key) == value)
        return found

    def books(self, requests: Mapping[ModelName, Request]) -> Books:
        return Books(self.yard, {**self.models, **requests})

    # --- names and lots ---

    def next_id(self, model: ModelName) -> str:
        """A name for a place in the making; it never leaves the plan."""
        self._ids += 1
        return f"{model}#{self._ids}"

    def lot(self, model: ModelName, order: int) -> float:
        """A number in [0, 1) by which models are shuffled, the same in every process."""
        return int.from_bytes(blake2b(f"{model}/{order}".encode(), digest_size=6).digest()) / 2**48


def _bits(numbers: Iterable[int]) -> int:
    numbers = list(numbers)
    row = bytearray(max(numbers, default=-1) // 8 + 1)
    for number in numbers:
        row[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(row, "little")
