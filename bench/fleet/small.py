"""Fleets of three to seven nodes, made from a seed, on which the best plan there is can still be found exactly.

Six classes of instances, asked for 85 to 115 % of their devices: one kind or several, sizes that divide one another
or not, one rank or three, and fleets with a past: half of what runs was placed under other numbers and ranks, models
may be limited per node, and a node may have been lost.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from llmgw.ids import DeviceId, ModelName, NodeId
from llmgw.placing.best import plan
from llmgw.placing.field import Field
from llmgw.placing.holding import Holding
from llmgw.placing.need import Ask, Need, Request, Site, Slot
from llmgw.placing.placement import Placing

KINDS = ("a", "b", "c")
EVEN, ODD = (1, 1, 2, 4, 8), (1, 2, 3, 4, 6, 8)
LARGEST = 8


@dataclass(frozen=True, slots=True)
class Sort:
    """A class of instances."""

    several_kinds: bool = True
    sizes: Sequence[int] = EVEN
    ranks: int = 1
    past: bool = False


SORTS = {
    "one kind": Sort(several_kinds=False),
    "one kind, odd sizes": Sort(several_kinds=False, sizes=ODD),
    "several kinds": Sort(),
    "several kinds, ranks": Sort(ranks=3),
    "several kinds, ranks, odd sizes": Sort(ranks=3, sizes=ODD),
    "with a past": Sort(ranks=3, past=True),
}


@dataclass(frozen=True, slots=True)
class Instance:
    """`requests` count what each model lacks beside what is `held`; `desired` is what it is to have."""

    sites: tuple[Site, ...]
    requests: tuple[Request, ...]
    held: tuple[Holding, ...] = ()

    def planned(self) -> Placing:
        field = Field(self.sites, self.requests)
        field.load(replace(holding) for holding in self.held)
        return plan(field, self.requests)


def instances(sort: Sort, count: int, seed: int) -> Iterator[Instance]:
    rng = random.Random(seed)
    for _ in range(count):
        yield _instance(rng, sort)


def _instance(rng: random.Random, sort: Sort) -> Instance:
    kinds = KINDS[: rng.randint(2, 3)] if sort.several_kinds else KINDS[:1]
    sites = tuple(_site(i, rng.choice(kinds), rng.choice((4, 8, 8))) for i in range(rng.randint(3, 7)))
    room = sum(len(site.slots) for site in sites)
    asked, target, requests = 0, room * rng.uniform(0.85, 1.15), list[Request]()
    while asked < target:
        size, replicas = rng.choice(sort.sizes), rng.randint(1, 4)
        requests.append(_request(rng, sort, f"m{len(requests):02d}", kinds, size, replicas))
        asked += size * replicas
    if not sort.past:
        return Instance(sites, tuple(requests))
    return _aged(rng, sites, requests)


def _site(number: int, kind: str, devices: int) -> Site:
    name = f"n{number}"
    return Site(NodeId(name), tuple(Slot(DeviceId(f"{name}-{d}"), kind) for d in range(devices)))


def _request(rng: random.Random, sort: Sort, name: str, kinds: Sequence[str], size: int, replicas: int) -> Request:
    first = rng.choice(kinds)
    needs = [_need(size, first)]
    if len(kinds) > 1 and rng.random() < 0.6:
        needs.append(_need(rng.choice((size, size, min(LARGEST, 2 * size))), *(k for k in kinds if k != first)))
    return Request(
        ModelName(name),
        tuple(needs),
        replicas,
        rng.randrange(sort.ranks),
        desired=replicas,
        max_per_node=rng.choice((None, None, None, 1)) if sort.past else None,
    )


def _need(size: int, *kinds: str) -> Need:
    return Need((Ask(size, kinds),))


# --- a past ---


def _aged(rng: random.Random, sites: tuple[Site, ...], requests: Sequence[Request]) -> Instance:
    """What other numbers and ranks led to, less one node half of the time; then what is asked for now."""
    former = []
    for request in requests:
        replicas = max(1, request.count + rng.randint(-1, 1))
        former.append(replace(request, count=replicas, desired=replicas, rank=rng.randrange(3)))
    past = Instance(sites, tuple(former)).planned()
    lost = rng.randrange(len(sites)) if rng.random() < 0.5 else -1
    here = tuple(replace(site, closed="lost") if i == lost else site for i, site in enumerate(sites))
    by_model = {request.model: request for request in requests}
    alive = [
        replace(holding, replica=f"r{n:03d}", rank=by_model[holding.model].rank, is_new=False)
        for n, holding in enumerate(past.starts)
        if holding.node != lost
    ]
    held = [holding for request in requests for holding in _kept(alive, request)]
    have = Counter(holding.model for holding in held)
    return Instance(here, tuple(replace(r, count=r.desired - have[r.model]) for r in requests), tuple(held))


def _kept(alive: Sequence[Holding], request: Request) -> list[Holding]:
    """What stays of a model that has too many: by profile, then where it is least crowded, as `llmgw.demand` has it."""
    mine = [holding for holding in alive if holding.model == request.model]
    crowd = Counter(holding.node for holding in mine)
    return sorted(mine, key=lambda h: (h.way, crowd[h.node], h.replica))[: request.desired]
