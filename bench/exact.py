"""The best plan there is, for small fleets of whole devices: an integer programme, solved to the end (HiGHS).

Best is as the planner has it: the most devices' worth of demand (a replica counts what its first way to run asks
for) at the highest rank, then at the next one, and so on. Unlike the planner it may stop and move whatever runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import highspy

from bench.fleet.small import Instance
from llmgw.ids import ModelName
from llmgw.placing.holding import Holding
from llmgw.placing.kinds import is_kind
from llmgw.placing.need import Need, Request, Site
from llmgw.placing.placement import Placing


@dataclass(frozen=True, slots=True)
class Variable:
    """Replicas of a model that run in one way on one node: new ones (any number), or one that is there (0 or 1)."""

    request: Request
    node: int
    devices: int
    most: int


def best(instance: Instance) -> list[int]:
    """Devices' worth of demand met, per rank from above."""
    requests = {request.model: request for request in instance.requests}
    variables = [*_new(instance), *(_there(requests, holding) for holding in instance.held)]
    model = highspy.Highs()  # type: ignore[no-untyped-call]  # its constructor alone bears no types
    model.setOptionValue("output_flag", False)
    model.setOptionValue("mip_rel_gap", 0.0)
    model.setOptionValue("threads", 1)
    columns = [model.addIntegral(0, variable.most) for variable in variables]
    _limit(model, instance, variables, columns)
    found = []
    for rank in ranks(instance):
        mine = [(v, c) for v, c in zip(variables, columns, strict=True) if v.request.rank == rank]
        met = highspy.Highs.qsum(worth(v.request) * c for v, c in mine)
        if not mine:
            found.append(0)
            continue
        model.maximize(met)
        if model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise ArithmeticError(f"no best plan was found: {model.getModelStatus()}")
        found.append(round(model.getObjectiveValue()))
        model.addConstr(met >= found[-1])
    return found


def ranks(instance: Instance) -> list[int]:
    return sorted({request.rank for request in instance.requests}, reverse=True)


def worth(request: Request) -> int:
    return request.needs[0].devices


def met(instance: Instance, placing: Placing) -> list[int]:
    """What a plan comes to, per rank from above."""
    requests = {request.model: request for request in instance.requests}
    gone = {displaced.holding.replica for displaced in placing.displaced}
    there = [h.model for h in instance.held if h.replica not in gone] + [h.model for h in placing.starts]
    return [sum(worth(requests[m]) for m in there if requests[m].rank == rank) for rank in ranks(instance)]


def _new(instance: Instance) -> list[Variable]:
    return [
        Variable(request, node, need.devices, min(request.desired, len(site.slots) // need.devices))
        for request in instance.requests
        for need in request.needs
        for node, site in enumerate(instance.sites)
        if _may_take(site, need)
    ]


def _may_take(site: Site, need: Need) -> bool:
    (ask,) = need.asks
    return not site.closed and len(site.slots) >= ask.count and any(is_kind(k, site.slots[0].kind) for k in ask.kinds)


def _there(requests: dict[ModelName, Request], holding: Holding) -> Variable:
    return Variable(requests[holding.model], holding.node, sum(mask.bit_count() for mask in holding.whole), 1)


def _limit(
    model: highspy.Highs, instance: Instance, variables: Sequence[Variable], columns: Sequence[highspy.highs_var]
) -> None:
    """Devices per node, replicas per model, and per model and node where that is limited."""
    both = list(zip(variables, columns, strict=True))
    for node, site in enumerate(instance.sites):
        if here := [v.devices * c for v, c in both if v.node == node]:
            model.addConstr(highspy.Highs.qsum(here) <= len(site.slots))
    for request in instance.requests:
        mine = [(v, c) for v, c in both if v.request is request]
        if mine:
            model.addConstr(highspy.Highs.qsum(c for _, c in mine) <= request.desired)
        if (most := request.max_per_node) is not None:
            for node in {v.node for v, _ in mine}:
                model.addConstr(highspy.Highs.qsum(c for v, c in mine if v.node == node) <= most)
