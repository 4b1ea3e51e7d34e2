"""Making room by displacing what is of a strictly lower rank: only where it really helps, and as little as will do.

A node is looked at as it will be once the displaced are gone: devices, memory, groups that keep apart, all together.
On a small fleet choices are tried out first, to see which of the displaced find a place elsewhere.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from llmgw.placing.holding import Holding
from llmgw.placing.need import Request
from llmgw.placing.seeker import Hit, Seeker
from llmgw.placing.yard import bits

if TYPE_CHECKING:
    from llmgw.placing.planner import Planner

MAX_LOOKED_AT = 64
"""Nodes of one layout and way among which the mildest choice is made."""
MAX_TRIED = 24
"""Choices that are tried out for one replica."""
MAX_SETS = 4
"""Ways to make room on one node that are looked at where choices are tried out."""

_Cost = tuple[int, int, float, int, int]


@dataclass(frozen=True, slots=True)
class _Choice:
    cost: _Cost
    node: int
    way: int
    victims: tuple[Holding, ...]


def displace(planner: "Planner", request: Request) -> Sequence[Holding] | None:
    """Place one replica of the request instead of others; those others, or None where it helps nowhere.

    The lowest possible rank gives way, then on the most preferred way to run, then the fewest devices and replicas.
    Where choices are tried out, the one by which the least is lost for good comes before all of these.
    """
    ranks = _lower(planner, request)
    if not ranks or not _nodes(planner, request, ranks[-1] + 1):
        return None
    if planner.tries_out:
        return _mildest(planner, request, ranks)
    for top in ranks:
        choice = min(_choices(planner, request, top + 1), key=_by_cost, default=None)
        if choice is not None and _swap(planner, request, choice):
            return _carried_out(planner, choice)
    return None


def may_displace(planner: "Planner", request: Request) -> bool:
    """Whether one replica would fit somewhere if all of a lower rank were gone."""
    ranks = _lower(planner, request)
    return bool(ranks) and bool(_nodes(planner, request, ranks[-1] + 1))


def _lower(planner: "Planner", request: Request) -> list[int]:
    return sorted({m.rank for m in planner.field.ranked() if m.rank < request.rank})


def _nodes(planner: "Planner", request: Request, below: int) -> dict[int, int]:
    """Per way: nodes on which it would fit if everything below a rank were gone."""
    ok = ~planner.books.full(request.model) & ~planner.field.nodes(request.never)
    found = {}
    for way, need in enumerate(request.needs):
        seeker = planner.field.seeker(need)
        if nodes := planner.field.shadow(below).nodes(seeker) & seeker.base & ok:
            found[way] = nodes
    return found


# --- what could give way ---


def _choices(planner: "Planner", request: Request, below: int) -> Iterator[_Choice]:
    """What could give way below a rank: per node the mildest, or several where they are tried out."""
    most = MAX_SETS if planner.tries_out else 1
    for way, nodes in _nodes(planner, request, below).items():
        seeker = planner.field.seeker(request.needs[way])
        looked_at = 0
        for node in bits(nodes):
            found = list(islice(_victims(planner, request, seeker, node, below), most))
            yield from (_Choice((way, *_harm(victims), node), node, way, victims) for victims in found)
            looked_at += bool(found)
            if looked_at >= MAX_LOOKED_AT:
                break


def _harm(victims: Sequence[Holding]) -> tuple[int, float, int]:
    """Their ranks together, their devices, and how many they are."""
    return sum(v.rank for v in victims), round(sum(v.units for v in victims), 6), len(victims)


def _by_cost(choice: _Choice) -> _Cost:
    return choice.cost


def _victims(
    planner: "Planner", request: Request, seeker: Seeker, node: int, below: int
) -> Iterator[tuple[Holding, ...]]:
    """Who could make room on the node: one that is enough, the mildest of each model; then several smaller ones."""
    held = planner.yard.holdings[node].values()
    low = sorted((h for h in held if h.rank < below), key=lambda h: (h.rank, -h.units, h.replica))
    mates = planner.books.mates(request, held)
    if any(mate.rank >= below for mate in mates):
        return
    rest = [h for h in low if h not in mates]
    if mates and seeker.would_fit(node, mates):
        yield tuple(mates)
        return
    enough = sorted(
        (h for h in rest if seeker.would_fit(node, [*mates, h])), key=lambda h: (h.rank, h.units, h.replica)
    )
    first = {holding.model: holding for holding in reversed(enough)}
    yield from ((*mates, holding) for holding in enough if first[holding.model] is holding)
    taken = list(mates)
    for holding in (h for h in rest if h not in enough):
        taken.append(holding)
        if seeker.would_fit(node, taken):
            yield tuple(_without_needless(seeker, node, taken, mates))
            return


def _without_needless(seeker: Seeker, node: int, taken: Iterable[Holding], must: Sequence[Holding]) -> list[Holding]:
    """Let stay whom it does not need, the highest rank first."""
    kept = list(taken)
    for holding in sorted(kept, key=lambda h: (-h.rank, h.units, h.replica)):
        fewer = [h for h in kept if h is not holding]
        if holding not in must and fewer and seeker.would_fit(node, fewer):
            kept = fewer
    return kept


# --- trying out ---


def _mildest(planner: "Planner", request: Request, ranks: Sequence[int]) -> Sequence[Holding] | None:
    """Carry out the choice by which the least is lost for good; of equals the mildest."""
    choices = [c for top in ranks for c in sorted(_choices(planner, request, top + 1), key=_by_cost)]
    best: tuple[tuple[float, ...], _Choice] | None = None
    for choice in choices[:MAX_TRIED]:
        loss = _loss(planner, request, choice, ranks)
        if loss is not None and (best is None or loss < best[0]):
            best = loss, choice
    if best is None or not _swap(planner, request, best[1]):
        return None
    return _carried_out(planner, best[1])


def _loss(planner: "Planner", request: Request, choice: _Choice, ranks: Sequence[int]) -> tuple[float, ...] | None:
    """Devices of those who find no place elsewhere, per rank from above, then how many that run have to move; None
    where the choice does not help. All is put back."""
    if not _swap(planner, request, choice):
        return None
    made = [next(reversed(planner.new.values()))]
    lost = dict.fromkeys(sorted(ranks, reverse=True), 0.0)
    for victim in sorted(choice.victims, key=lambda h: (-h.rank, -h.units, h.replica)):
        asker = planner.requests.get(victim.model)
        hit = None if asker is None else planner.find(asker)
        place = None if asker is None or hit is None else planner.start(asker, hit)
        if place is None:
            lost[victim.rank] = lost.get(victim.rank, 0.0) + victim.units
        else:
            made.append(place)
    for holding in reversed(made):
        planner.drop(holding, None)
    for victim in choice.victims:
        planner.restore(victim)
    return *lost.values(), float(sum(1 for v in choice.victims if not v.is_new))


def _swap(planner: "Planner", request: Request, choice: _Choice) -> bool:
    """Place the request where the victims were; whether that was possible."""
    seeker = planner.field.seeker(request.needs[choice.way])
    for victim in choice.victims:
        planner.drop(victim, request.model)
    place = seeker.place_on(choice.node)
    if place is not None and planner.start(request, Hit(choice.node, choice.way, *place, 0.0)) is not None:
        return True
    for victim in choice.victims:
        planner.restore(victim)
    return False


def _carried_out(planner: "Planner", choice: _Choice) -> Sequence[Holding]:
    for victim in choice.victims:
        if not victim.is_new:
            planner.mark_late(victim)
    return choice.victims
