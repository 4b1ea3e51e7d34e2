"""The best of several plans: in order, with quotas per layout, and on small fleets in other orders as well."""

from collections.abc import Sequence

from llmgw.placing.displace import may_displace
from llmgw.placing.field import Field
from llmgw.placing.need import Request
from llmgw.placing.placement import Placing
from llmgw.placing.planner import SMALL_FLEET, Planner

ORDERS = 8
TINY_FLEET = 24
ORDERS_OF_TINY = 32
"""Up to so many nodes it costs little to try many: a fleet of a few nodes has no slack to hide a bad order in."""
MOST_TRIED = 1_600
"""Replicas placed in all these orders together."""


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
