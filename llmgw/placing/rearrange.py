"""Making room by moving what this very plan has put somewhere: nothing of it runs yet, so nobody notices."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmgw.ids import ModelName
from llmgw.placing.holding import Holding
from llmgw.placing.need import Request
from llmgw.placing.seeker import Hit
from llmgw.placing.worth import units
from llmgw.placing.yard import bits

if TYPE_CHECKING:
    from llmgw.placing.planner import Planner

MAX_LOOKED_AT = 256
"""Nodes that are looked at for one request, and of these the ones that are tried."""
MAX_TRIED = 64


class Rearranging:
    def __init__(self, planner: "Planner") -> None:
        self._planner = planner
        self._stuck: dict[ModelName, int] = {}
        """Models that have nowhere else to go, as long as nothing is given back."""
        self._barren: dict[ModelName, int] = {}
        """Models for which nothing could be moved, likewise."""
        self._moved = False

    def note_moved(self) -> None:
        self._moved = True

    def take_moved(self) -> bool:
        """Whether anything was moved since this was last asked."""
        moved, self._moved = self._moved, False
        return moved

    def make_room(self, request: Request) -> bool:
        """Place one replica of the request where new ones can make room for it."""
        planner = self._planner
        if not planner.new or self._barren.get(request.model) == planner.yard.changed:
            return False
        tried = 0
        for way, need in enumerate(request.needs):
            for node in self._candidates(request, way):
                movable = [h for h in planner.yard.holdings[node].values() if h.is_new and self._has_elsewhere(h)]
                if not movable or not planner.field.seeker(need).would_fit(node, movable):
                    continue
                tried += 1
                if self._try(request, way, node, movable):
                    self.note_moved()
                    return True
                if tried >= MAX_TRIED:
                    return False
        self._barren[request.model] = planner.yard.changed
        return False

    def _candidates(self, request: Request, way: int) -> Iterator[int]:
        """Nodes that could take it but for what they hold, those with the most free devices first."""
        planner, seeker = self._planner, self._planner.field.seeker(request.needs[way])
        ok = seeker.base & ~planner.books.full(request.model) & ~planner.books.apart(request)
        ok &= ~planner.field.nodes(request.never) & planner.nodes_with_new()
        yard, looked_at = planner.yard, 0
        rooms = [r for r in yard.rooms if r.members & ok and r.layout in seeker.layouts]
        for room in sorted(rooms, key=lambda r: (r.layout, -units(r.left, yard.layouts[r.layout]))):
            for node in bits(room.members & ok):
                looked_at += 1
                if looked_at > MAX_LOOKED_AT:
                    return
                yield node

    def _has_elsewhere(self, holding: Holding) -> bool:
        planner = self._planner
        if self._stuck.get(holding.model) == planner.yard.changed:
            return False
        if planner.find(planner.requests[holding.model]) is None:
            self._stuck[holding.model] = planner.yard.changed
            return False
        return True

    def _try(self, request: Request, way: int, node: int, movable: list[Holding]) -> bool:
        """Move new replicas off the node until the request fits: one that is just large enough before several."""
        planner, seeker = self._planner, self._planner.field.seeker(request.needs[way])
        gap = request.needs[way].devices - sum(m.bit_count() for m in planner.yard.free[node])
        elsewhere = ~(1 << node)
        moved: list[tuple[Holding, Holding]] = []
        for holding in sorted(movable, key=lambda h: (h.units < gap, h.units, h.replica)):
            if seeker.would_fit(node):
                break
            asker = planner.requests[holding.model]
            planner.drop(holding, None)
            hit = planner.find(asker, within=elsewhere)
            made = None if hit is None else planner.start(asker, hit)
            if made is None:
                planner.restore(holding)
            else:
                moved.append((holding, made))
        if seeker.would_fit(node):
            place = seeker.place_on(node)
            if place is not None and planner.start(request, Hit(node, way, *place, 0.0)) is not None:
                return True
        for before, after in reversed(moved):
            planner.drop(after, None)
            planner.restore(before)
        return False
