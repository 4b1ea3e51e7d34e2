"""The search for a node: rooms that meet a need in the order of what they cost, nodes in them by what suits a model.

A ladder holds a need's rooms on one layout, cheapest first. Rooms that came into being since it was last looked at
are put in then, so that a step of a plan costs as much as has changed, never as the fleet is large.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from llmgw.placing.holding import Holding
from llmgw.placing.layout import Draw, Left, fits
from llmgw.placing.need import Need
from llmgw.placing.worth import Worth
from llmgw.placing.yard import Yard

Tier = tuple[int, float]
"""Nodes, and what is added to the cost of a place there."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A node, and how the need is met there."""

    node: int
    way: int
    """Which of the model's needs."""
    draw: Draw
    chosen_mib: int | None
    cost: float


@dataclass(slots=True)
class _Ladder:
    steps: list[tuple[float, int]] = field(default_factory=list)
    """Cost and room, cheapest first."""
    known: set[int] = field(default_factory=set)
    seen: int = 0


class Seeker:
    """One need over one yard. `base`: nodes that may take it, whatever is left on them."""

    def __init__(self, yard: Yard, worth: Worth, need: Need, base: int) -> None:
        self.yard, self.worth, self.need, self.base = yard, worth, need, base
        self.draws = worth.draws(need)
        self.layouts = [c for c, ways in enumerate(self.draws) if ways]
        self._ladders = {c: _Ladder() for c in self.layouts}
        self._taken: dict[int, tuple[Draw, int | None]] = {}

    def best(self, tiers: Sequence[Tier], only: int | None = None) -> tuple[float, int, int] | None:
        """Cost, room and node of the cheapest place in the tiers; of equals the first tier's, then the lowest node's.
        `only`: on this layout."""
        if not tiers:
            return None
        least = min([extra for _, extra in tiers])
        found: tuple[float, int, int, int] | None = None
        for c in self.layouts if only is None else (only,):
            ladder = self._up_to_date(c)
            empty: list[int] | None = None
            for step, (cost, number) in enumerate(ladder.steps):
                if found is not None and cost + least > found[0]:
                    break
                members = self.yard.rooms[number].members
                if not members:
                    if step < 64:
                        empty = [*(empty or ()), step]
                    continue
                for tier, (nodes, extra) in enumerate(tiers):
                    hit = members & nodes
                    if hit:
                        key = (round(cost + extra, 6), tier, (hit & -hit).bit_length() - 1, number)
                        if found is None or key < found:
                            found = key
            for step in reversed(empty or ()):
                ladder.known.discard(ladder.steps[step][1])
                del ladder.steps[step]
        return None if found is None else (found[0], found[3], found[2])

    def how(self, room: int) -> tuple[Draw, int | None]:
        """The draw that a room's cost was found with."""
        return self._taken[room]

    def _up_to_date(self, layout: int) -> _Ladder:
        ladder, born = self._ladders[layout], self.yard.born[layout]
        if ladder.seen < len(born):
            for number in born[ladder.seen :]:
                if number not in ladder.known and self.yard.rooms[number].members:
                    cost = self._cost(number)
                    if cost is not None:
                        ladder.known.add(number)
                        insort(ladder.steps, (cost, number))
            ladder.seen = len(born)
        return ladder

    def _cost(self, number: int) -> float | None:
        room, need = self.yard.rooms[number], self.need
        if (need.host_mib > room.host and need.host_mib) or (need.cpu_milli > room.cpu and need.cpu_milli):
            return None
        banks = self.yard.layouts[room.layout].banks
        best: tuple[float, Draw, int | None] | None = None
        for draw in self.draws[room.layout]:
            if fits(draw, room.left, banks):
                cost, chosen = self.worth.cost(need, room, draw)
                if best is None or cost < best[0]:
                    best = cost, draw, chosen
        if best is None:
            return None
        self._taken[number] = best[1:]
        return best[0]

    # --- one node ---

    def would_fit(self, node: int, gone: Sequence[Holding] = ()) -> bool:
        """Whether the node's devices and memory would do, were some of its holdings gone."""
        host, cpu = self.yard.host_without(node, gone)
        return self.fits_left(self.yard.layout_of[node], self.yard.left(node, gone), host, cpu)

    def fits_left(self, layout: int, left: Left, host: int, cpu: int) -> bool:
        need = self.need
        if (need.host_mib > host and need.host_mib) or (need.cpu_milli > cpu and need.cpu_milli):
            return False
        banks = self.yard.layouts[layout].banks
        return any(fits(draw, left, banks) for draw in self.draws[layout])

    def place_on(self, node: int) -> tuple[Draw, int | None] | None:
        """How the need is met on a node as it is now; None: it is not."""
        number = self.yard.room_of[node]
        return self._taken[number] if number in self._taken or self._cost(number) is not None else None
