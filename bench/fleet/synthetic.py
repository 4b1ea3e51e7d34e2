"""A synthetic fleet of mixed devices and models, made from a seed, and the bare greedy pass that is the floor.

Eight devices a node of four kinds, three weights cached on each, sixteen zones; models of 1, 2, 4 or 8 devices, of
four priorities, most of which may fall back on the other kinds.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llmgw.ids import DeviceId, ModelName, NodeId
from llmgw.placing.field import Field
from llmgw.placing.holding import Holding
from llmgw.placing.need import Ask, Need, Request, Site, Slot
from llmgw.placing.placement import Placing

KINDS = {"h100": 0.4, "a100": 0.3, "l40s": 0.2, "h200": 0.1}
SIZES = [1] * 50 + [2] * 20 + [4] * 20 + [8] * 10
PER_NODE = 8
MODELS = 120
ZONES = 16


@dataclass(frozen=True, slots=True)
class Fleet:
    sites: tuple[Site, ...]
    requests: tuple[Request, ...]
    held: tuple[Holding, ...] = ()


def fleet(nodes: int, fill: float, seed: int = 1) -> Fleet:
    """`fill`: devices asked for, of those there are."""
    rng = random.Random(seed)
    kinds = [kind for kind, share in KINDS.items() for _ in range(round(100 * share))]
    raw = [(rng.choice(SIZES), rng.choice(kinds), rng.randint(1, 20)) for _ in range(MODELS)]
    scale = fill * nodes * PER_NODE / sum(size * count for size, _, count in raw)
    requests = []
    for n, (size, kind, count) in enumerate(raw):
        needs = [Need((Ask(size, (kind,)),))]
        if rng.random() < 0.7:
            needs.append(Need((Ask(size, tuple(sorted(k for k in KINDS if k != kind))),)))
        replicas, rank = max(1, round(count * scale)), rng.randint(0, 3)
        requests.append(_request(f"m{n:03d}", needs, replicas, rank, f"w{n}", spread=rng.random() < 0.3))
    sites = [_site(i, rng.choice(kinds), [f"w{rng.randrange(MODELS)}" for _ in range(3)]) for i in range(nodes)]
    return Fleet(tuple(sites), tuple(requests))


def _request(name: str, needs: Sequence[Need], replicas: int, rank: int, weights: str, *, spread: bool) -> Request:
    return Request(
        ModelName(name),
        tuple(needs),
        replicas,
        rank,
        desired=replicas,
        weights=(weights,) * len(needs),
        spread_zones=spread,
    )


def _site(number: int, kind: str, weights: Sequence[str]) -> Site:
    name = f"n{number:05d}"
    slots = tuple(Slot(DeviceId(f"{name}-{d}"), kind) for d in range(PER_NODE))
    return Site(NodeId(name), slots, zone=f"z{number % ZONES:02d}", weights=frozenset(weights))


def field(fleet: Fleet) -> Field:
    made = Field(fleet.sites, fleet.requests)
    made.load(replace(holding) for holding in fleet.held)
    return made


def applied(fleet: Fleet, placing: Placing) -> Fleet:
    """The fleet once the plan runs."""
    held = tuple(replace(h, replica=f"r{n:06d}", is_new=False) for n, h in enumerate(placing.starts))
    have = Counter(h.model for h in held)
    return Fleet(fleet.sites, tuple(replace(r, count=r.count - have[r.model]) for r in fleet.requests), held)


def busiest(fleet: Fleet) -> int:
    """The node with the most replicas, the first of equals."""
    return max(Counter(h.node for h in fleet.held).items(), key=lambda item: (item[1], -item[0]))[0]


def without_node(fleet: Fleet, node: int) -> Fleet:
    """A node is lost, and what it had is missing."""
    sites = [replace(site, closed="lost") if i == node else site for i, site in enumerate(fleet.sites)]
    gone = Counter(h.model for h in fleet.held if h.node == node)
    requests = tuple(replace(r, count=r.count + gone[r.model]) for r in fleet.requests)
    return Fleet(tuple(sites), requests, tuple(h for h in fleet.held if h.node != node))


def with_model(fleet: Fleet, name: str, *, replicas: int, devices: int, kinds: tuple[str, ...], rank: int) -> Fleet:
    new = _request(name, [Need((Ask(devices, kinds),))], replicas, rank, "w1", spread=False)
    return replace(fleet, requests=(*fleet.requests, new))


def greedy(fleet: Fleet) -> int:
    """The floor: each replica into the fullest node of a kind that has room, by buckets of free devices."""
    buckets: dict[tuple[str, int], int] = {}
    for i, site in enumerate(fleet.sites):
        key = (site.slots[0].kind, PER_NODE)
        buckets[key] = buckets.get(key, 0) | 1 << i
    placed = 0
    for request in fleet.requests:
        for _ in range(request.count):
            placed += _put(buckets, request)
    return placed


def _put(buckets: dict[tuple[str, int], int], request: Request) -> bool:
    for need in request.needs:
        ask = need.asks[0]
        for free in range(ask.count, PER_NODE + 1):
            for kind in ask.kinds:
                nodes = buckets.get((kind, free), 0)
                if nodes:
                    node = nodes & -nodes
                    buckets[kind, free] = nodes ^ node
                    buckets[kind, free - ask.count] = buckets.get((kind, free - ask.count), 0) | node
                    return True
    return False
