"""Who takes the places of the displaced in the end: a plan may move on whom they gave way to.

Those whose places nobody of a higher rank takes stay where they are. Never displaces anybody else.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from llmgw.ids import ModelName
from llmgw.placing.holding import Holding
from llmgw.placing.yard import bits

if TYPE_CHECKING:
    from llmgw.placing.placement import Displaced
    from llmgw.placing.planner import Planner


def settle(planner: "Planner") -> Mapping[ModelName, int]:
    """Name whom each of the displaced really gives way to, or let it stay; how many more of each model lack a place by
    that (fewer: below 0)."""
    more: Counter[ModelName] = Counter()
    for gone in sorted(planner.displaced.values(), key=lambda d: (-d.holding.rank, d.holding.replica)):
        here = [start for start in planner.new.values() if start.node == gone.holding.node]
        if any(start.model == gone.by for start in here):
            continue
        for start in here:
            if start.rank <= gone.holding.rank and share_a_place(start, gone.holding):
                planner.drop(start, None)
                more[start.model] += 1
        better = [start for start in here if start.rank > gone.holding.rank]
        if better:
            heir = max(better, key=lambda start: (share_a_place(start, gone.holding), start.rank))
            planner.displaced[gone.holding.replica] = replace(gone, by=heir.model)
        else:
            more[gone.holding.model] -= not _stays(planner, gone)
    return more


def _stays(planner: "Planner", gone: "Displaced") -> bool:
    """Put it back; whether a start of its model elsewhere, which was to replace it, is not needed any more."""
    planner.restore(gone.holding)
    instead = [start for start in planner.new.values() if start.model == gone.holding.model]
    for start in instead[-1:]:
        planner.drop(start, None)
    return bool(instead)


def share_a_place(one: Holding, other: Holding) -> bool:
    """Whether both hold the same device, or shares of one, on one node."""
    return one.node == other.node and not _places(one).isdisjoint(_places(other))


def _places(holding: Holding) -> set[tuple[int, int]]:
    whole = {(bank, place) for bank, mask in enumerate(holding.whole) for place in bits(mask)}
    return whole | {(bank, place) for bank, place, _ in holding.shares}
