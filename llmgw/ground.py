"""The fleet as one pass places on it: a field (`llmgw.placing`) made from reports and assignments when first asked.

A device is taken from the decision until it is proven free. One that is being released may be claimed and is waited
for. What an engine holds that no assignment claims is taken as well. The plan for all that lacks a place is made once,
with the first search; each model then finds its places reserved.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from llmgw import asking, demand, rolling
from llmgw.catalog import Catalog, Model, Profile
from llmgw.draft import Draft, by_node
from llmgw.ids import DeviceId, ModelName, NodeId, ReplicaId
from llmgw.nodes import NodeView
from llmgw.placing.books import Books
from llmgw.placing.field import Field
from llmgw.placing.holding import Holding
from llmgw.placing.need import Request
from llmgw.placing.planner import Displaced, Planner, plan
from llmgw.placing.refusals import refusal
from llmgw.sites import site_of
from llmgw.wire import DeviceClaim
from llmgw.world import Assignment

NEVER_DISPLACED = 1 << 60
"""Rank of replicas whose model left the catalog (taken back within their grace, nothing of them stops), and of those
whose record cannot be read."""

MAX_PLANNED = 120
"""Replicas that are placed ahead in one pass, a few more than a pass starts; the rest is counted with."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A node and the claims a replica would have there. `profile`: which of those asked for."""

    view: NodeView
    claims: tuple[DeviceClaim, ...]
    vendor: str | None
    profile: int
    waits: bool = False
    """Some of the devices are still being released."""


@dataclass
class Ground:
    draft: Draft
    catalog: Catalog
    crashing: frozenset[NodeId] = frozenset()
    """Nodes on which many models failed: nothing goes there."""
    _wording: asking.Wording = field(init=False)
    _made: Field | None = None
    _reserved: defaultdict[ModelName, list[Holding]] = field(default_factory=lambda: defaultdict(list))
    _displaced: list[Displaced] = field(default_factory=list)
    _wanted: dict[ModelName, Request] = field(default_factory=dict)
    _leaves: dict[tuple[ModelName, int], list[ReplicaId]] = field(default_factory=dict)
    """Who gives way to a model on a node once it takes the place."""
    _known: dict[tuple[object, ...], str] = field(default_factory=dict)

    @classmethod
    def of(cls, draft: Draft, catalog: Catalog, crashing: frozenset[NodeId] = frozenset()) -> "Ground":
        return cls(draft, catalog, crashing)

    # --- the field ---

    @property
    def all(self) -> Field:
        """The field with everything held and everything planned."""
        if self._made is None:
            self._made = self._build()
            self._plan(self._made)
        return self._made

    def _build(self) -> Field:
        percent = self.catalog.policy.max_shared_percent
        sites = [site_of(view, self._strays(view), percent) for view in self.draft.survey.nodes.values()]
        self._wording = asking.Wording(
            self.catalog, {(slot.vendor, slot.identity) for site in sites for slot in site.slots}
        )
        wanted = asking.requests(self.draft, self.catalog, self._wording, self.crashing)
        self._wanted = {request.model: request for request in wanted}
        made = Field(sites, wanted)
        groups = by_node(self.draft.assignments.values())
        holdings: list[Holding] = []
        for id_, mine in sorted(groups.items()):
            node = made.yard.index.get(id_)
            if node is None:
                continue
            places = _places(made, node)
            for assignment in mine:
                holding = self._holding(assignment, node, places)
                if self._is_leaving(assignment):
                    made.yard.release(node, _held(holding))
                else:
                    holdings.append(holding)
        made.load(holdings)
        return made

    def _strays(self, view: NodeView) -> set[DeviceId]:
        """Devices held by engines there that no assignment claims."""
        known = self.draft.assignments
        rows = () if view.seen is None else view.seen.replicas
        return {
            claim.device
            for row in rows
            if (mine := known.get(row.replica)) is None or mine.node != view.node.id
            for claim in row.claims
        }

    def _is_leaving(self, assignment: Assignment) -> bool:
        stop = assignment.stop
        return stop is not None and (stop.commanded or demand.is_displaced(self.draft, assignment))

    def _holding(self, assignment: Assignment, node: int, places: dict[DeviceId, tuple[int, int]]) -> Holding:
        model = self.draft.models.get(assignment.model)
        wanted = self._wanted.get(assignment.model)
        banks = max((bank for bank, _ in places.values()), default=-1) + 1
        whole, shares = [0] * banks, []
        for claim in assignment.claims:
            if (place := places.get(claim.device)) is None:
                continue
            if claim.memory_mib is None:
                whole[place[0]] |= 1 << place[1]
            else:
                shares.append((*place, claim.memory_mib))
        return Holding(
            replica=assignment.replica,
            model=assignment.model,
            rank=NEVER_DISPLACED if model is None or assignment.unreadable else model.priority,
            node=node,
            whole=tuple(whole),
            shares=tuple(sorted(shares)),
            host_mib=assignment.host_memory_mib,
            units=float(len(assignment.claims)),
            leaves=wanted is not None and wanted.count > 0 and self._is_replaced(assignment),
        )

    def _is_replaced(self, assignment: Assignment) -> bool:
        """Whether a newer replica of its model is to take over from it."""
        model = self.draft.models.get(assignment.model)
        if model is None or assignment.unreadable:
            return False
        return demand.why_moves(self.draft, assignment, rolling.version(self.draft, model).prints) is not None

    def _plan(self, made: Field) -> None:
        found = plan(made, list(self._wanted.values()), limit=MAX_PLANNED)
        for gone in found.displaced:
            made.yard.give(gone.holding)
            made.yard.release(gone.holding.node, _held(gone.holding))
            self._displaced.append(gone)
            self._leaves.setdefault((gone.by, gone.holding.node), []).append(ReplicaId(gone.holding.replica))
        for start in found.starts:
            made.yard.take(start)
            self._reserved[start.model].append(start)

    # --- changes of the pass ---

    def take(self, assignment: Assignment) -> None:
        """From now on it holds its claims, and who has to give way for it does."""
        node = self.all.yard.index[assignment.node]
        self.all.yard.take(self._holding(assignment, node, _places(self.all, node)))
        for replica in self._leaves.pop((assignment.model, node), ()):
            self.draft.displace(replica, assignment)
            self.draft.more = True
        self._known.clear()

    def give_back(self, assignment: Assignment) -> None:
        """It is gone: proven, or never begun."""
        yard = self.all.yard
        node = yard.index.get(assignment.node)
        if node is not None and (holding := yard.holdings[node].get(assignment.replica)) is not None:
            yard.give(holding)
            self._known.clear()

    # --- searching ---

    def find(
        self, model: Model, profiles: Sequence[Profile], *, avoid: frozenset[NodeId], never: frozenset[NodeId]
    ) -> Spot | tuple[str, ...]:
        """A place for one more replica, by one of the profiles in their order; else why not, per profile."""
        made = self.all
        before = self._wanted.get(model.name)
        desired = before.desired if before is not None else 0
        request = asking.request_of(
            self._wording, model, profiles, desired=desired, avoid=avoid, never=never | self.crashing
        )
        planned = self._planned(request)
        if planned is not None:
            return self._spot(planned)
        self._unplan(model.name)
        planner = Planner(made, [request])
        hit = planner.find(request)
        start = None if hit is None else planner.start(request, hit)
        if start is None:
            return tuple(self._refusal(planner.books, request, way) for way in range(len(request.needs)))
        made.yard.give(start)
        return self._spot(start)

    def _planned(self, request: Request) -> Holding | None:
        """The next place that the plan has for the model, if it still asks for such a one."""
        mine = self._reserved[request.model]
        wanted = self._wanted.get(request.model)
        for number, holding in enumerate(mine):
            need = None if wanted is None else wanted.needs[holding.way]
            if need in request.needs and self.all.yard.sites[holding.node].id not in request.never:
                del mine[number]
                self.all.yard.give(holding)
                holding.way = request.needs.index(need)
                return holding
        return None

    def _unplan(self, model: ModelName) -> None:
        """It asks for other places than the plan has for it: these are free again."""
        for holding in self._reserved.pop(model, ()):
            self.all.yard.give(holding)

    def _spot(self, holding: Holding) -> Spot:
        site = self.all.yard.sites[holding.node]
        slots = self.all.yard.bank_slots[holding.node]
        claims: list[tuple[int, DeviceClaim]] = []
        for bank, place in _held(holding):
            position = slots[bank][place]
            mib = next((mib for b, p, mib in holding.shares if (b, p) == (bank, place)), None)
            claims.append((position, DeviceClaim(device=site.slots[position].id, memory_mib=mib)))
        claims.sort(key=lambda item: item[0])
        vendor = site.slots[claims[0][0]].vendor if claims else None
        view = self.draft.survey.nodes[site.id]
        return Spot(view, tuple(claim for _, claim in claims), vendor, holding.way, holding.waits)

    def _refusal(self, books: Books, request: Request, way: int) -> str:
        need = request.needs[way]
        key = (need, request.never, request.group, request.model if request.max_per_node or request.group else None)
        text = self._known.get(key)
        if text is None:
            text = self._known[key] = refusal(self.all, books, request, need)
        return text

    def would_fit(self, model: Model, profile: Profile, instead_of: Assignment) -> bool:
        """Whether the node of `instead_of` could take the profile once that replica is gone."""
        yard = self.all.yard
        node = yard.index.get(instead_of.node)
        if node is None:
            return False
        request = asking.request_of(self._wording, model, [profile])
        books, seeker = self.all.books({model.name: request}), self.all.seeker(request.needs[0])
        if not seeker.base >> node & 1 or books.apart(request) >> node & 1:
            return False
        held = yard.holdings[node].get(instead_of.replica)
        if books.full(model.name) >> node & 1 and (held is None or held.model != model.name):
            return False
        return seeker.would_fit(node, [] if held is None else [held])

    def makes_room(self, model: Model, profile: Profile, gone: Sequence[Assignment]) -> bool:
        """Whether the node that all of `gone` are on could take the profile once they are gone."""
        yard, nodes = self.all.yard, {assignment.node for assignment in gone}
        node = yard.index.get(nodes.pop()) if len(nodes) == 1 else None
        if node is None:
            return False
        held = [yard.holdings[node][a.replica] for a in gone if a.replica in yard.holdings[node]]
        request = asking.request_of(self._wording, model, [profile], never=self.crashing)
        books, seeker = self.all.books({model.name: request}), self.all.seeker(request.needs[0])
        ok = seeker.base & ~books.full(model.name) & ~self.all.nodes(request.never)
        if books.apart(request) >> node & 1:
            left = [h for h in yard.holdings[node].values() if h not in held]
            ok &= 0 if books.mates(request, left) else -1
        return bool(ok >> node & 1) and len(held) == len(gone) and seeker.would_fit(node, held)


def _places(made: Field, node: int) -> dict[DeviceId, tuple[int, int]]:
    """Bank, and place in it, of each device of a node."""
    slots = made.yard.sites[node].slots
    return {
        slots[position].id: (bank, place)
        for bank, positions in enumerate(made.yard.bank_slots[node])
        for place, position in enumerate(positions)
    }


def _held(holding: Holding) -> Iterable[tuple[int, int]]:
    """Places of a holding."""
    for bank, mask in enumerate(holding.whole):
        for place in range(mask.bit_length()):
            if mask >> place & 1:
                yield bank, place
    for bank, place, _ in holding.shares:
        yield bank, place
