"""The nodes that may take a replica, parted by what speaks for and against them: prices in devices, never strict."""

from collections.abc import Sequence

from llmgw.placing.books import Books
from llmgw.placing.field import Field
from llmgw.placing.need import Request
from llmgw.placing.seeker import Tier

SPREAD = 1.0
"""Putting all replicas of a model on one node costs so many devices; it is shared out over the replicas."""
LOCALITY = 0.3
"""A node that has the weights is worth so many devices."""
PREFERRED = 10.0
"""A preferred label is worth so many devices: more than any price, less than a node where the model failed."""
AVOIDED = 1000.0
"""A node where the model failed comes last."""
MAX_TIERS = 32


def tiers_of(field: Field, books: Books, request: Request, way: int, among: int) -> list[Tier]:
    """The nodes of `among`, for one way to meet the request, in tiers of what they cost more or less."""
    tiers: list[Tier] = [(among, 0.0)]
    weights = request.weights[way] if way < len(request.weights) else None
    if weights is not None:
        tiers = _parted(tiers, field.cached(weights), -LOCALITY)
    for label in sorted(request.needs[way].prefers):
        tiers = _parted(tiers, field.labelled(label), -PREFERRED)
    hosts = books.staying(request.model)
    if hosts:
        tiers = _parted(tiers, hosts, round(SPREAD / max(1, request.desired or request.count), 2), last=True)
    if request.avoid:
        tiers = _parted(tiers, field.nodes(request.avoid), AVOIDED, last=True)
    return tiers


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
