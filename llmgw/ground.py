"""The fleet as one pass places on it: a field (`llmgw.placing`) made from reports and assignments when first asked.

A device is taken from the decision until it is proven free. One that is being released may be claimed and is waited
for. What an engine holds that no assignment claims is taken as well. The plan for all that lacks a place is made once,
with the first search; each model then finds its places reserved.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from llmgw import asking, demand, plan_size, rolling
from llmgw.catalog import Catalog, Model, Profile
from llmgw.draft import Draft
from llmgw.ids import DeviceId, ModelName, NodeId, ReplicaId
from llmgw.memo import Latest
from llmgw.nodes import NodeView
from llmgw.placing.best import plan
from llmgw.placing.books import Books
from llmgw.placing.field import Field
from llmgw.placing.holding import Holding
from llmgw.placing.need import Request, Site
from llmgw.placing.placement import Displaced
from llmgw.placing.planner import Planner
from llmgw.placing.refusals import refusal
from llmgw.placing.seeker import Hit
from llmgw.placing.succession import share_a_place
from llmgw.sites import site_of
from llmgw.wire import DeviceClaim
from llmgw.world import Assignment

NEVER_DISPLACED = 1 << 60
"""Rank of replicas whose model left the catalog (taken back within their grace, nothing of them stops), and of those
whose record cannot be read."""

MORE_PLANNED = 20
"""So many more replicas are placed ahead in one pass than it can start; the rest is counted with."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A node and the claims a replica would have there. `profile`: which of those asked for."""

    view: NodeView
    claims: tuple[DeviceClaim, ...]
    vendor: str | None
    profile: int
    waits: bool = False
    """Some of the devices are still being released."""
    displaced: tuple[ReplicaId, ...] = ()
    """Who gives way for it."""


@dataclass(frozen=True, slots=True)
class _Offer:
    site: Site
    sorts: frozenset[asking.Sort]
    """Of its devices."""


_OFFERS: Latest[tuple[str, NodeId, int], _Offer] = Latest(20_000)
_HOLDINGS: Latest[tuple[str, NodeId, int, tuple[tuple[int, ...], ...]], list[Holding]] = Latest(20_000)


@dataclass
class Ground:
    draft: Draft
    catalog: Catalog
    crashing: frozenset[NodeId] = frozenset()
    """Nodes on which many models failed: nothing goes there."""
    _wording: asking.Wording = field(init=False)
    _made: Field | None = None
    _reserved: defaultdict[ModelName, list[Holding]] = field(default_factory=lambda: defaultdict(list))
    _replaced: set[ReplicaId] = field(default_factory=set)
    """Replicas that newer ones are to take over from."""
    _displaced: list[Displaced] = field(default_factory=list)
    """Who gives way once its place is taken."""
    _wanted: dict[ModelName, Request] = field(default_factory=dict)
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
        offers = [self._offer(view) for view in self.draft.survey.nodes.values()]
        sorts = frozenset().union(*(offer.sorts for offer in offers))
        self._wording = asking.wording(self.draft.world.fleet, self.catalog, sorts)
        wanted = asking.requests(self.draft, self.catalog, self._wording, self.crashing)
        self._wanted = {request.model: request for request in wanted}
        made = Field([offer.site for offer in offers], wanted)
        self._replaced = {a.replica for r in wanted if r.count for a in self._to_replace(r.model)}
        holdings: list[Holding] = []
        for id_ in sorted(self.draft.nodes_assigned()):
            node = made.yard.index.get(id_)
            if node is not None:
                holdings += self._held_on(made, node, self.draft.on_node(id_))
        made.load(holdings)
        return made

    def _offer(self, view: NodeView) -> _Offer:
        """What a node offers, without the devices held by engines there that no assignment claims."""
        mine, percent = self.draft.on_node(view.node.id), self.catalog.policy.max_shared_percent

        def made() -> _Offer:
            known = {a.replica for a in mine if a.node == view.node.id}
            strays = () if view.seen is None else (row for row in view.seen.replicas if row.replica not in known)
            site = site_of(view, {claim.device for row in strays for claim in row.claims}, percent)
            return _Offer(site, frozenset((slot.vendor, slot.identity) for slot in site.slots))

        return _OFFERS.get((self.draft.world.fleet, view.node.id, percent), (view, mine), made)

    def _held_on(self, made: Field, node: int, mine: Sequence[Assignment]) -> Sequence[Holding]:
        """What the assignments of a node hold there. What is being released is not held: it is said so."""
        site, models = made.yard.sites[node], [self.draft.models.get(a.model) for a in mine]

        def holdings() -> list[Holding]:
            places = _places(made, node)
            return [self._holding(assignment, node, places) for assignment in mine]

        name = self.draft.world.fleet, site.id, node, made.yard.bank_slots[node]
        found = _HOLDINGS.get(name, (site, mine, *models), holdings)
        leaving = {a.replica for a in mine if a.stop is not None and self._is_leaving(a)}
        for holding in found if leaving else ():
            if holding.replica in leaving:
                made.yard.release(node, _held(holding))
        if not leaving and self._replaced.isdisjoint(a.replica for a in mine):
            return found
        kept = (holding for holding in found if holding.replica not in leaving)
        return [replace(h, leaves=True) if h.replica in self._replaced else h for h in kept]

    def _is_leaving(self, assignment: Assignment) -> bool:
        stop = assignment.stop
        return stop is not None and (stop.commanded or demand.is_displaced(self.draft, assignment))

    def _holding(self, assignment: Assignment, node: int, places: dict[DeviceId, tuple[int, int]]) -> Holding:
        model = self.draft.models.get(assignment.model)
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
        )

    def _to_replace(self, name: ModelName) -> list[Assignment]:
        """Replicas of a model that newer ones are to take over from."""
        prints = rolling.version(self.draft, self.draft.models[name]).prints
        mine = (a for a in self.draft.of_model(name) if not a.unreadable)
        return [a for a in mine if demand.why_moves(self.draft, a, prints) is not None]

    def _plan(self, made: Field) -> None:
        asked = [request for request in self._wanted.values() if request.count]
        least = min((plan_size.start_bytes(r.model, "", n.devices) for r in asked for n in r.needs), default=1)
        limit = plan_size.MAX_START_BYTES // least + MORE_PLANNED
        found = plan(made, list(self._wanted.values()), limit=limit)
        for gone in found.displaced:
            made.yard.give(gone.holding)
            made.yard.release(gone.holding.node, _held(gone.holding))
            self._displaced.append(gone)
        for start in found.starts:
            made.yard.take(start)
            self._reserved[start.model].append(start)

    # --- changes of the pass ---

    def take(self, assignment: Assignment) -> None:
        """From now on it holds its claims, and who has to give way for it does."""
        node = self.all.yard.index[assignment.node]
        holding = self._holding(assignment, node, _places(self.all, node))
        self.all.yard.take(holding)
        leave = [gone for gone in self._displaced if self._gives_way(gone, holding)]
        self._displaced = [gone for gone in self._displaced if gone not in leave]
        for gone in leave:
            self.draft.displace(ReplicaId(gone.holding.replica), assignment)
            self.draft.more = True
        self._known.clear()

    def _gives_way(self, gone: Displaced, taker: Holding) -> bool:
        """Whether it goes with the coming of another: of whoever has its devices first, and where that is nobody who is
        still to come, of the one it was displaced for."""
        if gone.holding.node != taker.node:
            return False
        if share_a_place(gone.holding, taker):
            return gone.by == taker.model or taker.rank > gone.holding.rank
        to_come = (h for h in self._reserved[taker.model] if h.node == taker.node)
        return gone.by == taker.model and not any(share_a_place(gone.holding, h) for h in to_come)

    def turn_over(self, model: ModelName) -> None:
        """The model has taken what it takes. What was planned for it beside that is free for those that follow, and
        what was to give way for it stays."""
        if self._made is None:
            return
        self._unplan(model)
        for gone in [gone for gone in self._displaced if gone.by == model]:
            self._displaced.remove(gone)
            self._pass_on(self._made, gone)

    def _pass_on(self, made: Field, gone: Displaced) -> None:
        """It gives way to another that has a place there, or stays."""
        here = [h for held in self._reserved.values() for h in held if h.node == gone.holding.node]
        heirs = [h for h in here if h.rank > gone.holding.rank]
        if heirs:
            heir = max(heirs, key=lambda h: (share_a_place(h, gone.holding), h.rank))
            self._displaced.append(replace(gone, by=heir.model))
            return
        for holding in here:
            if share_a_place(holding, gone.holding):
                self._reserved[holding.model].remove(holding)
                made.yard.give(holding)
        made.yard.take(gone.holding)
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
        gone = tuple(ReplicaId(g.holding.replica) for g in self._displaced if self._gives_way(g, holding))
        return Spot(view, tuple(claim for _, claim in claims), vendor, holding.way, holding.waits, gone)

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

    @contextmanager
    def nobody_displaced(self, spot: Spot) -> Iterator[None]:
        """Meanwhile those that are to give way for it have their places."""
        held = [gone.holding for gone in self._displaced if gone.holding.replica in spot.displaced]
        for holding in held:
            self.all.yard.take(holding)
        try:
            yield
        finally:
            for holding in held:
                self.all.yard.give(holding)

    def instead(self, model: Model, profile: Profile, spot: Spot, held: Sequence[Assignment]) -> Spot:
        """The place of all of `held`, which are on one node and make room for the profile; who was to give way for
        `spot` stays."""
        made, yard = self.all, self.all.yard
        for gone in [gone for gone in self._displaced if gone.holding.replica in spot.displaced]:
            self._displaced.remove(gone)
            self._pass_on(made, gone)
        node = yard.index[held[0].node]
        for holding in [yard.holdings[node][a.replica] for a in held]:
            yard.give(holding)
            yard.release(node, _held(holding))
            self._displaced.append(Displaced(holding, model.name))
        request = asking.request_of(self._wording, model, [profile], never=self.crashing)
        place = made.seeker(request.needs[0]).place_on(node)
        start = None if place is None else Planner(made, [request]).start(request, Hit(node, 0, *place, 0.0))
        assert start is not None, "they make room"  # noqa: S101 - `makes_room` has said so
        yard.give(start)
        return replace(self._spot(start), profile=spot.profile)

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
