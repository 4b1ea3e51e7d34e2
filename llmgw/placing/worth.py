"""What a place costs, in devices: how much of what stays free nobody could use, and how wanted its sort is.

The measure of waste is that of "Beware of Fragmentation" (Weng et al., USENIX ATC 2023): over the mix of what is
asked, the free devices of a node that a request drawn from it could not use there. To it come a nudge to the fullest
node, and a price of each layout: the demand that leans on it, and how full it is already. The constants were found
on the traces of that paper (`python -m bench.fragmentation`).
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from llmgw.placing.layout import Draw, Layout, Left, draws, empty_of, fits, options
from llmgw.placing.need import Need
from llmgw.placing.yard import Room, Yard

BEST_FIT = 0.02
"""Price of each device that stays free on the chosen node."""
SPARE = 0.05
"""Price of all the processors or main memory of the largest node staying free on it."""
SCARCITY = 3.0
"""Weight of the price of a layout."""
BALANCE = 1.0
"""Price of a layout that is full, against one that is empty."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A part of the mix: so many replicas are asked for in this way."""

    need: Need
    weight: float


@dataclass(frozen=True, slots=True)
class _Sort:
    """A part of the mix on one layout."""

    weight: float
    draws: tuple[Draw, ...]
    host_mib: int
    cpu_milli: int


class Worth:
    """Costs of places over one yard, for one mix of demand. `leans`: devices asked for, by everything the asking
    model could use instead."""

    def __init__(self, yard: Yard, mix: Iterable[Wish], leans: Iterable[tuple[frozenset[Need], float]]) -> None:
        self.yard = yard
        self._draws: dict[Need, list[tuple[Draw, ...]]] = {}
        weights: dict[Need, float] = {}
        for wish in mix:
            if wish.need.asks:
                weights[wish.need] = weights.get(wish.need, 0.0) + wish.weight
        self._total = sum(weights.values()) or 1.0
        self._mix = [
            [_Sort(w, d[c], n.host_mib, n.cpu_milli) for n, w in weights.items() for d in (self.draws(n),)]
            for c in range(len(yard.layouts))
        ]
        self._hosts = sorted({n.host_mib for n in weights if n.host_mib})
        self._cpus = sorted({n.cpu_milli for n in weights if n.cpu_milli})
        self._most_host = max(yard.host, default=0) or 1
        self._most_cpu = max(yard.cpu, default=0) or 1
        self._waste: dict[tuple[int, Left, int, int], float] = {}
        self._leans = [(needs, devices) for needs, devices in leans]
        self.price: list[float] = []
        self.reprice()

    def reprice(self) -> None:
        """Price layouts by what is free now."""
        self.price = self._prices()

    def draws(self, need: Need) -> list[tuple[Draw, ...]]:
        """Per layout: the ways to meet the need there."""
        found = self._draws.get(need)
        if found is None:
            found = self._draws[need] = [draws(need, layout) for layout in self.yard.layouts]
        return found

    def _prices(self) -> list[float]:
        layouts = self.yard.layouts
        there, free = [0.0] * len(layouts), [0.0] * len(layouts)
        for room in self.yard.rooms:
            nodes = room.members.bit_count()
            there[room.layout] += nodes * layouts[room.layout].devices
            free[room.layout] += nodes * units(room.left, layouts[room.layout])
        price = [BALANCE * (1 - free[c] / (there[c] or 1)) for c in range(len(layouts))]
        asked = sum(devices for _, devices in self._leans)
        share = min(1.0, sum(there) / asked) if asked else 1.0
        for needs, devices in self._leans:
            suited = [c for c in range(len(layouts)) if any(self.draws(need)[c] for need in needs)]
            room_for = sum(there[c] for c in suited)
            for c in suited:
                price[c] += share * devices / (room_for or 1)
        return [SCARCITY * p for p in price]

    # --- one place ---

    def cost(self, need: Need, room: Room, way: Draw) -> tuple[float, int | None]:
        """The cost of taking `way` in `room`, and the memory left before on the device that a claim goes to."""
        layout = self.yard.layouts[room.layout]
        host, cpu = room.host - need.host_mib, room.cpu - need.cpu_milli
        before, have = self.waste(room.layout, room.left, room.host, room.cpu), units(room.left, layout)
        best: tuple[float, int | None] | None = None
        for left, chosen in options(way, room.left, layout.banks):
            keeps = units(left, layout)
            cost = self.waste(room.layout, left, host, cpu) - before + BEST_FIT * keeps
            cost += self.price[room.layout] * (have - keeps)
            if best is None or cost < best[0] - 1e-9:
                best = cost, chosen
        if best is None:
            raise ValueError("the way does not fit into the room")
        spare = (max(host, 0) / self._most_host if need.host_mib else 0.0) + max(cpu, 0) / self._most_cpu
        return round(best[0] + SPARE * spare, 6), best[1]

    def emptiness(self, layout: int) -> float:
        """The share of an empty node that a request drawn from the mix could not use."""
        return round(
            self.waste(layout, empty_of(self.yard.layouts[layout]), 1 << 60, 1 << 60)
            / (self.yard.layouts[layout].devices or 1),
            4,
        )

    def waste(self, layout: int, left: Left, host: int, cpu: int) -> float:
        """Free devices that a request drawn from the mix could not use, on average."""
        hosts, cpus = bisect_right(self._hosts, host), bisect_right(self._cpus, cpu)
        key = (layout, left, hosts, cpus)
        found = self._waste.get(key)
        if found is None:
            found = self._waste[key] = self._measured(layout, left, host, cpu) / self._total
        return found

    def _measured(self, layout: int, left: Left, host: int, cpu: int) -> float:
        banks = self.yard.layouts[layout].banks
        have = units(left, self.yard.layouts[layout])
        lost = 0.0
        for sort in self._mix[layout]:
            if (sort.host_mib > host and sort.host_mib) or (sort.cpu_milli > cpu and sort.cpu_milli):
                lost += sort.weight * have
                continue
            way = next((d for d in sort.draws if fits(d, left, banks)), None)
            lost += sort.weight * (have if way is None else have - _usable(way, left, self.yard.layouts[layout]))
        return lost


def units(left: Left, layout: Layout) -> float:
    """Free devices, shared ones by what is left of what may be shared."""
    total = 0.0
    for (free, parts, _), bank in zip(left, layout.banks, strict=True):
        total += free
        if parts:
            total += sum(parts) / (bank.share_mib or 1)
    return total


def _usable(way: Draw, left: Left, layout: Layout) -> float:
    """What of the free devices is of a sort that the draw can take."""
    total = 0.0
    seen: set[int] = set()
    for part in way:
        if part.bank in seen:
            continue
        seen.add(part.bank)
        free, parts, _ = left[part.bank]
        total += free
        if part.claim_mib is not None and parts:
            share = layout.banks[part.bank].share_mib or 1
            total += sum(mib for mib in parts if mib >= part.claim_mib) / share
    return total


def mix_of(models: Mapping[str, tuple[tuple[Need, ...], int]]) -> list[Wish]:
    """The mix of a catalog: per model its needs in order of preference and how many replicas to expect. Each later
    way to run counts half of the one before."""
    return [
        Wish(need, expected / (1 << way))
        for _, (needs, expected) in sorted(models.items())
        for way, need in enumerate(needs)
    ]
