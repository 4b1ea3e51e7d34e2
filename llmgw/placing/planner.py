"""A plan for everything that is asked for at once: who gets which place, and what gives way for it.

The highest rank first, then whoever was asked for first, what has the fewest nodes to go to, and the largest. What
finds no place may move what this very plan has put somewhere (nobody notices), and then displace what is of a strictly
lower rank, if that really makes room. Nothing else that runs is ever moved. Pure: it answers a plan and leaves the yard
as it found it.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from llmgw.ids import ModelName
from llmgw.placing import succession
from llmgw.placing.books import Books
from llmgw.placing.displace import displace, may_displace
from llmgw.placing.field import Field
from llmgw.placing.holding import Holding
from llmgw.placing.need import Request, has_several_measures
from llmgw.placing.pick import hold
from llmgw.placing.quota import Quota, quotas
from llmgw.placing.rearrange import Rearranging
from llmgw.placing.seeker import Hit, Seeker, Tier
from llmgw.placing.yard import bits

SPREAD = 1.0
"""Putting all replicas of a model on one node costs so many devices; it is shared out over the replicas."""
LOCALITY = 0.3
"""A node that has the weights is worth so many devices."""
PREFERRED = 10.0
"""A preferred label is worth so many devices: more than any price, less than a node where the model failed."""
AVOIDED = 1000.0
"""A node where the model failed comes last."""

SMALL_FLEET = 200
"""Up to so many nodes, other orders are tried where something finds no place."""
ORDERS = 8
TINY_FLEET = 24
ORDERS_OF_TINY = 32
"""Up to so many nodes it costs little to try many: a fleet of a few nodes has no slack to hide a bad order in."""
MOST_TRIED = 1_600
"""Replicas placed in all these orders together."""
MAX_TIERS = 32


@dataclass(frozen=True, slots=True)
class Displaced:
    """A replica that gives way, and for which model."""

    holding: Holding
    by: ModelName


@dataclass(frozen=True, slots=True)
class Placing:
    """The answer: places per new replica in the order of their decision, what gives way, and what found no place."""

    starts: tuple[Holding, ...] = ()
    displaced: tuple[Displaced, ...] = ()
    lacking: Mapping[ModelName, int] = field(default_factory=dict)


@dataclass(order=True, slots=True)
class _Turn:
    """One model's turn; the least comes first."""

    key: tuple[int, float, float, float, ModelName]
    """Rank and arrival, then what the order of a plan is about, and the name."""
    count: int = field(compare=False)
    urgent: int = field(compare=False)

    @property
    def model(self) -> ModelName:
        return self.key[4]


def plan(field_: Field, requests: Sequence[Request], limit: int | None = None) -> Placing:
    """The best plan found: all in order, else with quotas per layout, else on small fleets in other orders as well.

    Better is more devices' worth of demand met, at the highest rank first; then fewer replicas that give way.
    `limit`: no more than so many are placed, in order of rank and name, and the rest is only counted with.
    """
    if limit is not None and sum(r.count for r in requests) > limit:
        first_of_many = Planner(field_, requests, by_quota=True, limit=limit).run()
        assert first_of_many is not None  # noqa: S101 - only a plan that stops when short is given up
        return first_of_many
    first = Planner(field_, requests, stop_when_short=True).run()
    if first is not None:
        return first
    best = Planner(field_, requests, by_quota=True).run()
    assert best is not None  # noqa: S101 - only a plan that stops when short is given up
    if len(field_.yard.sites) <= SMALL_FLEET and _could_help(field_, requests, best):
        worth = _worth(best, requests)
        tried = {(True, Planner(field_, requests, by_quota=True).sequence())}
        for order in range(_orders(field_, requests) - 1):
            planner = Planner(field_, requests, by_quota=order % 2 == 1, order=order)
            if (way := (order % 2 == 1, planner.sequence())) in tried:
                continue
            tried.add(way)
            other = planner.run()
            if other is not None and (found := _worth(other, requests)) > worth:
                best, worth = other, found
    return best


def _could_help(field_: Field, requests: Sequence[Request], found: Placing) -> bool:
    """Whether another order could place any of what lacks a place: some node has room, or what is lower has it."""
    if not found.lacking or found.displaced:
        return bool(found.lacking)
    planner = Planner(field_, requests)
    lacking = (planner.requests[model] for model in found.lacking)
    return any(planner.find(request) is not None or may_displace(planner, request) for request in lacking)


def _orders(field_: Field, requests: Sequence[Request]) -> int:
    if len(field_.yard.sites) > TINY_FLEET:
        return ORDERS
    return max(ORDERS, min(ORDERS_OF_TINY, MOST_TRIED // sum(r.count for r in requests)))


def _worth(placing: Placing, requests: Sequence[Request]) -> tuple[float, ...]:
    ranks = sorted({r.rank for r in requests}, reverse=True)
    lost = dict.fromkeys(ranks, 0.0)
    for request in requests:
        missing = placing.lacking.get(request.model, 0)
        lost[request.rank] -= missing * max(1, request.needs[0].devices if request.needs else 0)
    return (*(lost[rank] for rank in ranks), -float(len(placing.displaced)))


class Planner:
    """One attempt. `order`: 0 the usual, others shuffle equals. `stop_when_short`: give up as soon as one has no
    place."""

    def __init__(
        self,
        field_: Field,
        requests: Sequence[Request],
        *,
        by_quota: bool = False,
        order: int = 0,
        stop_when_short: bool = False,
        limit: int | None = None,
    ) -> None:
        self.field, self.yard = field_, field_.yard
        self.requests = {r.model: r for r in sorted(requests, key=lambda r: r.model)}
        self.books: Books = field_.books(self.requests)
        self.new: dict[str, Holding] = {}
        self.displaced: dict[str, Displaced] = {}
        self._by_quota, self._order, self._stop_when_short = by_quota, order, stop_when_short
        self._limit = limit
        self.tries_out = len(self.yard.sites) <= SMALL_FLEET and limit is None
        """Whether it is looked at what becomes of the displaced before they are."""
        self._seekers: dict[ModelName, list[Seeker]] = {}
        self._rearranging = Rearranging(self)

    # --- the whole ---

    def run(self) -> Placing | None:
        turns = [self._turn(r, r.count, r.count if r.urgent is None else r.urgent) for r in self._open()]
        quota: Quota = quotas(self.field, self._in_turn(turns)) if self._by_quota and turns else {}
        heapq.heapify(turns)
        lacking: dict[ModelName, _Turn] = {}
        while turns:
            while turns and (self._limit is None or len(self.new) < self._limit):
                equals = [heapq.heappop(turns)]
                while turns and turns[0].key[:4] == equals[0].key[:4]:
                    equals.append(heapq.heappop(turns))
                short = self._plainly(_united(equals), quota)
                if short and self._stop_when_short:
                    self._undo()
                    return None
                for turn, left in short:
                    still, victims = self._by_force(turn, left)
                    for victim in victims:
                        heapq.heappush(turns, victim)
                    if still:
                        lacking[turn.model] = _merged(lacking.get(turn.model), turn, still)
            if turns:  # the limit is reached
                break
            if self._rearranging.take_moved() and lacking:  # what moved may have made room for one given up on
                turns, lacking = sorted(lacking.values()), {}
        more = succession.settle(self) if self.displaced else {}
        lost = {m: n for m in self.requests if (n := more.get(m, 0) + (lacking[m].count if m in lacking else 0))}
        found = Placing(tuple(self.new.values()), tuple(self.displaced.values()), lost)
        self._undo()
        return found

    def _plainly(self, equals: Sequence[_Turn], quota: Quota) -> list[tuple[_Turn, int]]:
        """Place without moving anybody; the turns in which so many found no place."""
        left = {turn.model: turn.count for turn in equals}
        shares = {turn.model: quota.pop(turn.model, []) for turn in equals}
        full: set[ModelName] = set()
        for model in self._mixed(equals):
            if model in full:
                continue
            if self._one(self.requests[model], shares[model]):
                left[model] -= 1
            elif self._stop_when_short:
                break
            else:
                full.add(model)
        return [(turn, left[turn.model]) for turn in equals if left[turn.model]]

    def _mixed(self, equals: Sequence[_Turn]) -> list[ModelName]:
        """Whose replica comes next. Where memory or processors are asked for beside devices, models take turns: many
        of one sort side by side leave lopsided nodes, all memory gone and devices idle."""
        if len(equals) == 1 or not any(has_several_measures(self.requests[turn.model]) for turn in equals):
            return [turn.model for turn in equals for _ in range(turn.count)]
        steps = sorted(((n + 0.5) / turn.count, turn.model) for turn in equals for n in range(turn.count))
        return [model for _, model in steps]

    def _one(self, request: Request, shares: list[tuple[int, int, int]]) -> bool:
        """Place one replica, by its quota as long as that holds."""
        while shares:
            way, layout, share = shares[0]
            hit = self.find(request, only=(way, layout))
            if hit is not None and self.start(request, hit) is not None:
                shares[0] = (way, layout, share - 1)
                if share == 1:
                    del shares[0]
                return True
            del shares[0]
        hit = self.find(request)
        return hit is not None and self.start(request, hit) is not None

    def _open(self) -> list[Request]:
        return [r for r in self.requests.values() if r.count > 0]

    def sequence(self) -> tuple[tuple[ModelName, ...], ...]:
        """All models in the order of their turns, equals together: planners that agree in it make the same plan."""
        turns = sorted(self._turn(request, 1, 1) for request in self.requests.values())
        return tuple(tuple(t.model for t in equals) for _, equals in groupby(turns, key=lambda t: t.key[:4]))

    def _in_turn(self, turns: Sequence[_Turn]) -> list[tuple[Request, int]]:
        return [(self.requests[t.model], t.count) for t in sorted(turns)]

    def _turn(self, request: Request, count: int, urgent: int) -> _Turn:
        options = float(self.field.options(request))
        size = -float(max((need.devices for need in request.needs), default=0))
        if self._limit is not None:
            return _Turn((-request.rank, request.asked_s, 0.0, 0.0, request.model), count, urgent)
        match self._order:
            case 0:
                first, second = options, size
            case 1:
                first, second = size, options
            case 2:
                first, second = -size, options
            case _:
                first, second = self.field.lot(request.model, self._order), size
        return _Turn((-request.rank, request.asked_s, first, second, request.model), count, urgent)

    def _by_force(self, turn: _Turn, left: int) -> tuple[int, list[_Turn]]:
        """Rearrange this plan's own starts, then displace what is of lower rank. Those displaced queue again."""
        request = self.requests[turn.model]
        again: list[_Turn] = []
        may = turn.urgent - (turn.count - left)
        while left and may > 0:
            if not self._rearranging.make_room(request):
                victims = displace(self, request)
                if victims is None:
                    break
                self._rearranging.note_moved()
                again += [self._turn(self.requests[v.model], 1, 1) for v in victims if v.model in self.requests]
            left, may = left - 1, may - 1
        return left, again

    # --- one place ---

    def find(self, request: Request, *, within: int = -1, only: tuple[int, int] | None = None) -> Hit | None:
        """The best place for one more replica: ways in order of preference, then nodes where nothing is being
        released, then zones, then cost."""
        ok = within & ~self.books.full(request.model) & ~self.books.apart(request)
        ok &= ~self.field.nodes(request.never)
        for way in range(len(request.needs)):
            if only is not None and only[0] != way:
                continue
            seeker = self.seekers(request)[way]
            tiers = self._tiers(request, way, seeker, ok)
            for calm in (self.yard.calm, ~self.yard.calm) if self.yard.late else (-1,):
                for zone in self.books.zones(request):
                    among = tiers if calm == zone == -1 else [(n & calm & zone, extra) for n, extra in tiers]
                    best = seeker.best(among, None if only is None else only[1])
                    if best is not None:
                        cost, room, node = best
                        return Hit(node, way, *seeker.how(room), cost)
        return None

    def seekers(self, request: Request) -> list[Seeker]:
        """A search per way to run."""
        found = self._seekers.get(request.model)
        if found is None:
            found = self._seekers[request.model] = [self.field.seeker(need) for need in request.needs]
        return found

    def _tiers(self, request: Request, way: int, seeker: Seeker, ok: int) -> list[Tier]:
        """The nodes that may take it, parted by what speaks for and against them."""
        tiers: list[Tier] = [(seeker.base & ok, 0.0)]
        weights = request.weights[way] if way < len(request.weights) else None
        if weights is not None:
            tiers = _parted(tiers, self.field.cached(weights), -LOCALITY)
        for label in sorted(seeker.need.prefers):
            tiers = _parted(tiers, self.field.labelled(label), -PREFERRED)
        hosts = self.books.staying(request.model)
        if hosts:
            tiers = _parted(tiers, hosts, round(SPREAD / max(1, request.desired or request.count), 2), last=True)
        if request.avoid:
            tiers = _parted(tiers, self.field.nodes(request.avoid), AVOIDED, last=True)
        return tiers

    def start(self, request: Request, hit: Hit) -> Holding | None:
        need = request.needs[hit.way]
        blank = Holding(
            replica=self.field.next_id(request.model),
            model=request.model,
            rank=request.rank,
            node=hit.node,
            host_mib=need.host_mib,
            cpu_milli=need.cpu_milli,
            way=hit.way,
            is_new=True,
        )
        made = hold(self.yard, hit.node, hit.draw, hit.chosen_mib, blank)
        if made is not None:
            self.put(made)
        return made

    # --- changes that can be undone ---

    def put(self, holding: Holding) -> None:
        self.yard.take(holding)
        self.books.come(holding)
        self.new[holding.replica] = holding

    def drop(self, holding: Holding, by: ModelName | None) -> None:
        """Take a replica off its node; `by`: who displaces it, if it runs."""
        self.yard.give(holding)
        self.books.leave(holding)
        if self.new.pop(holding.replica, None) is None:
            assert by is not None, "only a displaced replica of the past is dropped"  # noqa: S101
            self.displaced[holding.replica] = Displaced(holding, by)

    def restore(self, holding: Holding) -> None:
        self.yard.take(holding)
        self.books.come(holding)
        if self.displaced.pop(holding.replica, None) is None:
            self.new[holding.replica] = holding

    def mark_late(self, holding: Holding) -> None:
        """What a displaced replica held is free only when it has stopped."""
        places = [(b, place) for b, mask in enumerate(holding.whole) for place in bits(mask)]
        self.yard.release(holding.node, [*places, *((b, place) for b, place, _ in holding.shares)])

    def nodes_with_new(self) -> int:
        """Nodes on which this plan has put something."""
        nodes = 0
        for holding in self.new.values():
            nodes |= 1 << holding.node
        return nodes

    def _undo(self) -> None:
        for holding in list(self.new.values()):
            self.yard.give(holding)
        for gone in self.displaced.values():
            self.yard.take(gone.holding)


def _parted(tiers: Sequence[Tier], nodes: int, extra: float, *, last: bool = False) -> list[Tier]:
    """Each tier in two: those of `nodes`, at `extra`, come first (or last), and the rest."""
    if len(tiers) >= MAX_TIERS:
        return list(tiers)
    parted: list[Tier] = []
    rest: list[Tier] = []
    for among, cost in tiers:
        if inside := among & nodes:
            (rest if last else parted).append((inside, cost + extra))
        if outside := among & ~nodes:
            (parted if last else rest).append((outside, cost))
    return parted + rest


def _united(turns: Sequence[_Turn]) -> list[_Turn]:
    """One turn per model."""
    by_model: dict[ModelName, _Turn] = {}
    for turn in turns:
        by_model[turn.model] = _merged(by_model.get(turn.model), turn, turn.count)
    return list(by_model.values())


def _merged(before: _Turn | None, turn: _Turn, count: int) -> _Turn:
    """What is lacking of a model, together with what was found lacking before."""
    more = 0 if before is None else before.count
    return _Turn(turn.key, more + count, more + min(count, turn.urgent))
