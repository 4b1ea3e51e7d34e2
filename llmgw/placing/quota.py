"""How many replicas of which model each layout serves, before any single node is looked at.

Placing model by model lets flexible models sit where others have nowhere else to go. So demand is first spread over
the layouts as if their nodes were one: greedily in turn, then, for what is left over, by moving others to layouts
that also suit them (augmenting paths, a few steps deep). Only a guide: what it promises is then looked for on nodes.
"""

from collections.abc import Sequence

from llmgw.ids import ModelName
from llmgw.placing.field import Field
from llmgw.placing.need import Need, Request

Quota = dict[ModelName, list[tuple[int, int, int]]]
"""Per model: (which of its needs, layout, replicas)."""

MAX_STEPS = 20_000
DEEPEST = 3


class _Shares:
    """Groups of free devices per layout and who has them. A group of `s` devices that lie on one node counts once for
    every size up to it: exact where sizes divide one another, careful otherwise."""

    def __init__(self, field: Field, requests: Sequence[Request]) -> None:
        self._field = field
        self.models = {r.model: r for r in requests}
        self._sizes = sorted({1, *(_size(need) for r in requests for need in r.needs)})
        self._uses = {g: [(s, -(-g // s)) for s in self._sizes if s <= g] for g in self._sizes}
        layouts = len(field.yard.layouts)
        self._groups = [dict.fromkeys(self._sizes, 0) for _ in range(layouts)]
        self.given: list[dict[tuple[ModelName, int], int]] = [{} for _ in range(layouts)]
        for room in field.yard.rooms:
            nodes = (room.members & field.open).bit_count()
            if nodes:
                free = sum(bank[0] for bank in room.left)
                for size in self._sizes:
                    self._groups[room.layout][size] += nodes * (free // size)
        self._changes = 0
        self._steps = MAX_STEPS
        self._barren: dict[tuple[int, int, int], int] = {}

    def suited(self, need: Need) -> list[int]:
        return self._field.seeker(need).layouts

    def fit(self, layout: int, size: int) -> int:
        groups = self._groups[layout]
        return min(groups[s] // n for s, n in self._uses[size])

    def give(self, layout: int, model: ModelName, way: int, count: int) -> None:
        self._changes += 1
        groups = self._groups[layout]
        for s, n in self._uses[_size(self.models[model].needs[way])]:
            groups[s] -= count * n
        key, given = (model, way), self.given[layout]
        left = given.get(key, 0) + count
        if left:
            given[key] = left
        else:
            del given[key]

    def has_room(self) -> bool:
        return any(groups[1] > 0 for groups in self._groups)

    def make_room(self, layout: int, size: int, count: int, depth: int, past: frozenset[int]) -> int:
        """Move others off the layout until `count` groups of `size` are there; how many are."""
        key = (layout, size, depth)
        if self._barren.get(key) == self._changes or self._steps <= 0:
            return self.fit(layout, size)
        before = self._changes
        for model, way in sorted(self.given[layout], key=lambda g: (self.models[g[0]].rank, g)):
            if self.fit(layout, size) >= count:
                break
            self._move_away(layout, model, way, (size, count, depth), past)
        if self._changes == before:
            self._barren[key] = before
        return self.fit(layout, size)

    def _move_away(
        self, layout: int, model: ModelName, way: int, wanted: tuple[int, int, int], past: frozenset[int]
    ) -> None:
        size, count, depth = wanted
        request = self.models[model]
        each = -(-size // _size(request.needs[way]))
        for other_way, need in enumerate(request.needs):
            for other in self.suited(need):
                if other == layout or other in past:
                    continue
                self._steps -= 1
                have = self.given[layout].get((model, way), 0)
                moving = min(have, each * (count - self.fit(layout, size)))
                if moving <= 0:
                    return
                there = self.fit(other, _size(need))
                if there < moving and depth > 1:
                    there = self.make_room(other, _size(need), moving, depth - 1, past | {layout})
                moving = min(there, moving, self.given[layout].get((model, way), 0))
                if moving > 0:
                    self.give(layout, model, way, -moving)
                    self.give(other, model, other_way, moving)


def quotas(field: Field, turns: Sequence[tuple[Request, int]]) -> Quota:
    """Shares for requests in the order of their turns, with how many replicas each asks for. Only whole devices are
    spread so: what shares one goes where there is room beside others."""
    turns = [(request, count) for request, count in turns if _is_whole(request)]
    shares = _Shares(field, [request for request, _ in turns])
    for request, count in turns:
        left = _greedily(field, shares, request, count)
        for depth in range(1, DEEPEST + 1):
            if left and shares.has_room():
                left = _by_moving(shares, request, left, depth)
    found: Quota = {}
    for layout, given in enumerate(shares.given):
        for (model, way), count in given.items():
            found.setdefault(model, []).append((way, layout, count))
    return {model: sorted(shares_) for model, shares_ in found.items()}


def _greedily(field: Field, shares: _Shares, request: Request, left: int) -> int:
    """The sorts of devices that others can use least come first."""
    for way, need in enumerate(request.needs):
        for layout in sorted(shares.suited(need), key=lambda c: (-_waste(field, c), c)):
            count = min(left, shares.fit(layout, _size(need)))
            if count > 0:
                shares.give(layout, request.model, way, count)
                left -= count
    return left


def _by_moving(shares: _Shares, request: Request, left: int, depth: int) -> int:
    for way, need in enumerate(request.needs):
        for layout in shares.suited(need):
            if left:
                count = min(left, shares.make_room(layout, _size(need), left, depth, frozenset()))
                if count > 0:
                    shares.give(layout, request.model, way, count)
                    left -= count
    return left


def _waste(field: Field, layout: int) -> float:
    """The share of an empty node that a request drawn from the mix could not use."""
    return field.worth.emptiness(layout)


def _is_whole(request: Request) -> bool:
    return all(need.asks and all(ask.claim_mib is None for ask in need.asks) for need in request.needs)


def _size(need: Need) -> int:
    """Devices of one node, shared ones as whole ones."""
    return max(1, need.devices)
