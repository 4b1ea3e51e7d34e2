"""Making room by displacing what is of a strictly lower rank: only where it really helps, and as little as will do.

A node is looked at as it will be once the displaced are gone: devices, memory, groups that keep apart, all together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmgw.placing.holding import Holding
from llmgw.placing.need import Request
from llmgw.placing.seeker import Hit, Seeker
from llmgw.placing.yard import bits

if TYPE_CHECKING:
    from llmgw.placing.planner import Planner

MAX_LOOKED_AT = 64
"""Nodes of one layout and way among which the mildest choice is made."""


@dataclass(frozen=True, slots=True)
class _Choice:
    cost: tuple[int, int, float, int, int]
    node: int
    way: int
    victims: tuple[Holding, ...]


def displace(planner: "Planner", request: Request) -> Sequence[Holding] | None:
    """Place one replica of the request instead of others; those others, or None where it helps nowhere.

    The lowest possible rank gives way, then on the most preferred way to run, then the fewest devices and replicas.
    """
    ranks = sorted({m.rank for m in planner.field.ranked() if m.rank < request.rank})
    if not ranks or not _nodes(planner, request, ranks[-1] + 1):
        return None
    for top in ranks:
        choice = _best(planner, request, top + 1)
        if choice is not None and (victims := _carry_out(planner, request, choice)) is not None:
            return victims
    return None


def _nodes(planner: "Planner", request: Request, below: int) -> dict[int, int]:
    """Per way: nodes on which it would fit if everything below a rank were gone."""
    ok = ~planner.books.full(request.model) & ~planner.field.nodes(request.never)
    found = {}
    for way, need in enumerate(request.needs):
        seeker = planner.field.seeker(need)
        if nodes := planner.field.shadow(below).nodes(seeker) & seeker.base & ok:
            found[way] = nodes
    return found


def _best(planner: "Planner", request: Request, below: int) -> _Choice | None:
    best: _Choice | None = None
    for way, nodes in _nodes(planner, request, below).items():
        seeker = planner.field.seeker(request.needs[way])
        looked_at = 0
        for node in bits(nodes):
            victims = _victims(planner, request, seeker, node, below)
            if victims is None:
                continue
            cost = (
                way,
                sum(v.rank for v in victims) if len({v.rank for v in victims}) > 1 else len(victims) * victims[0].rank,
                round(sum(v.units for v in victims), 6),
                len(victims),
                node,
            )
            if best is None or cost < best.cost:
                best = _Choice(cost, node, way, victims)
            looked_at += 1
            if looked_at >= MAX_LOOKED_AT:
                break
    return best


def _victims(planner: "Planner", request: Request, seeker: Seeker, node: int, below: int) -> tuple[Holding, ...] | None:
    """The fewest that make room on the node; None where they do not."""
    held = planner.yard.holdings[node].values()
    low = sorted((h for h in held if h.rank < below), key=lambda h: (h.rank, -h.units, h.replica))
    mates = planner.books.mates(request, held)
    if any(mate.rank >= below for mate in mates):
        return None
    rest = [h for h in low if h not in mates]
    if mates and seeker.would_fit(node, mates):
        return tuple(mates)
    one = [h for h in rest if seeker.would_fit(node, [*mates, h])]
    if one:
        return (*mates, min(one, key=lambda h: (h.rank, h.units, h.replica)))
    taken = list(mates)
    for holding in rest:
        taken.append(holding)
        if seeker.would_fit(node, taken):
            return tuple(_without_needless(seeker, node, taken, mates))
    return None


def _without_needless(seeker: Seeker, node: int, taken: Iterable[Holding], must: Sequence[Holding]) -> list[Holding]:
    """Let stay whom it does not need, the highest rank first."""
    kept = list(taken)
    for holding in sorted(kept, key=lambda h: (-h.rank, h.units, h.replica)):
        fewer = [h for h in kept if h is not holding]
        if holding not in must and fewer and seeker.would_fit(node, fewer):
            kept = fewer
    return kept


def _carry_out(planner: "Planner", request: Request, choice: _Choice) -> Sequence[Holding] | None:
    seeker = planner.field.seeker(request.needs[choice.way])
    for victim in choice.victims:
        planner.drop(victim, request.model)
    place = seeker.place_on(choice.node)
    if place is not None and planner.start(request, Hit(choice.node, choice.way, *place, 0.0)) is not None:
        for victim in choice.victims:
            if not victim.is_new:
                planner.mark_late(victim)
        return choice.victims
    for victim in choice.victims:
        planner.restore(victim)
    return None
