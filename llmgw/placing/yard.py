"""The fleet as one plan knows it, indexed for search: a bit per node, nodes with equally much left in one room.

Every filter is then one AND, and the first fitting node is the lowest bit. Kept up to date by `take` and `give`;
it never decides anything. What is being released counts as free, and its node is not calm until it is.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from llmgw.ids import DeviceId, ModelName, NodeId
from llmgw.memo import Latest
from llmgw.placing.holding import Holding
from llmgw.placing.layout import Bank, Layout, Left, aligned_groups
from llmgw.placing.need import Need, Site, Slot

Place = tuple[int, int]
"""A device of a node: bank, and place in it."""


Sorts = tuple[Bank, ...]
_SORTS: Latest[NodeId, Sorts] = Latest(20_000)


@lru_cache(maxsize=1024)
def _alike(sorts: Sorts) -> Sorts:
    """One value for all that are equal, as a rule."""
    return sorts


class Room:
    """Nodes of one layout with equally much left. `host` and `cpu` are -1 where nobody asks for them."""

    __slots__ = ("cpu", "host", "layout", "left", "members")

    def __init__(self, layout: int, left: Left, host: int, cpu: int) -> None:
        self.layout, self.left, self.host, self.cpu = layout, left, host, cpu
        self.members = 0


class Yard:
    """`sites` in the order in which ties are broken; `needs`: everything that anybody may ask, so that nodes which
    differ in nothing asked for are alike."""

    def __init__(self, sites: Sequence[Site], needs: Iterable[Need]) -> None:
        self.sites = sites
        self.index: dict[NodeId, int] = {site.id: i for i, site in enumerate(sites)}
        needs = tuple(needs)
        self._counts_host = any(need.host_mib for need in needs)
        self._counts_cpu = any(need.cpu_milli for need in needs)
        self._aligns = any(ask.aligned for need in needs for ask in need.asks)
        self._labels = frozenset(label for need in needs for label in need.labels)
        self._lists = tuple({ask.devices for need in needs for ask in need.asks if ask.devices})
        self.layouts: list[Layout] = []
        self.layout_of: list[int] = []
        self.layout_sizes: list[int] = []
        """Nodes per layout."""
        self.bank_slots: list[tuple[tuple[int, ...], ...]] = []
        """Per node and bank: which of the site's slots lie in it."""
        self.free: list[list[int]] = []
        """Per node and bank: a bit for each whole free device."""
        self.parts: list[dict[Place, int]] = []
        """Per node: MiB left on devices that are shared, or not whole for another reason."""
        self.host: list[int] = []
        self.cpu: list[int] = []
        self.late: dict[int, dict[Place, int]] = {}
        """Devices that are still being released."""
        self.calm = (1 << len(sites)) - 1
        """Nodes on which nothing is being released."""
        self.rooms: list[Room] = []
        self.room_of: list[int] = []
        self.born: list[list[int]] = []
        """Per layout: rooms in the order in which they got their first node, again whenever they were empty."""
        self.holdings: list[dict[str, Holding]] = [{} for _ in sites]
        self.by_model: defaultdict[ModelName, dict[str, Holding]] = defaultdict(dict)
        self.changed = 0
        """Rises with every give: what had no place may have one."""
        self.watchers: list[set[int]] = []
        """Sets that want to know which nodes changed."""
        self._twice: dict[tuple[int, int, int], int] = {}
        self._keys: dict[tuple[int, Left, int, int], int] = {}
        self._build()

    # --- building ---

    def _build(self) -> None:
        known: dict[object, tuple[int, tuple[tuple[int, ...], ...], Sorts]] = {}
        by_layout: dict[Layout, int] = {}
        for site in self.sites:
            labels = frozenset(site.labels.items()) & self._labels if self._labels else frozenset()
            sorts = self._sorts(site)
            key = (site.pool, labels, id(sorts))  # to hash ten sorts of each node would cost more than all the rest
            found = known.get(key)
            if found is None:
                found = known[key] = *self._layout(site, labels, sorts, by_layout), sorts
            self.layout_of.append(found[0])
            self.layout_sizes[found[0]] += 1
            self.bank_slots.append(found[1])
            self._lay_out(site, found[1])
        self.room_of = [-1] * len(self.sites)
        for i in range(len(self.sites)):
            self.settle(i)

    def _sorts(self, site: Site) -> Sorts:
        """The sorts of a site's devices; those of nodes whose devices are as before are known."""
        if self._lists:
            return tuple(self._sort(slot) for slot in site.slots)
        return _SORTS.get(site.id, (site.slots,), lambda: _alike(tuple(self._sort(slot) for slot in site.slots)))

    def _sort(self, slot: Slot) -> Bank:
        listed = frozenset(names for names in self._lists if slot.id in names) if self._lists else frozenset()
        return Bank(slot.kind, slot.memory_mib, slot.share_mib, slot.vendor, listed, 0, slot.identity)

    def _layout(
        self, site: Site, labels: frozenset[tuple[str, str]], sorts: Sequence[Bank], known: dict[Layout, int]
    ) -> tuple[int, tuple[tuple[int, ...], ...]]:
        places: dict[Bank, list[int]] = {}
        for position, sort in enumerate(sorts):
            places.setdefault(sort, []).append(position)
        ordered = sorted(places, key=_bank_key)
        banks = tuple(bank._replace(size=len(places[bank])) for bank in ordered)
        layout = Layout(site.pool, labels, banks)
        number = known.setdefault(layout, len(self.layouts))
        if number == len(self.layouts):
            self.layouts.append(layout)
            self.layout_sizes.append(0)
            self.born.append([])
        return number, tuple(tuple(places[bank]) for bank in ordered)

    def _lay_out(self, site: Site, banks: tuple[tuple[int, ...], ...]) -> None:
        parts: dict[Place, int] = {}
        free = []
        for b, slots in enumerate(banks):
            mask = (1 << len(slots)) - 1
            for place, position in enumerate(slots):
                slot = site.slots[position]
                if slot.left_mib is not None:
                    mask &= ~(1 << place)
                    parts[b, place] = slot.left_mib
            free.append(mask)
        self.free.append(free)
        self.parts.append(parts)
        self.host.append(-1 if not self._counts_host or site.host_mib is None else site.host_mib)
        self.cpu.append(-1 if not self._counts_cpu or site.cpu_milli is None else site.cpu_milli)

    def load(self, holdings: Iterable[Holding]) -> None:
        """Take many at once; rooms are worked out at the end."""
        touched = set()
        for holding in holdings:
            self._take(holding)
            touched.add(holding.node)
        for i in sorted(touched):
            self.settle(i)

    def release(self, node: int, places: Iterable[Place]) -> None:
        """Devices that are being released: they count as free, but whoever takes them waits."""
        late = self.late.setdefault(node, {})
        for place in places:
            late[place] = 1
        self.calm &= ~(1 << node)

    # --- changing ---

    def take(self, holding: Holding) -> None:
        self._take(holding)
        self.settle(holding.node)

    def give(self, holding: Holding) -> None:
        """It is gone, or leaves."""
        i = holding.node
        del self.holdings[i][holding.replica]
        del self.by_model[holding.model][holding.replica]
        free = self.free[i]
        for b, mask in enumerate(holding.whole):
            if mask:
                free[b] |= mask if not self._twice else self._once(i, b, mask)
        for b, place, mib in holding.shares:
            self._give_share(i, b, place, mib)
        if self._counts_host and self.sites[i].host_mib is not None:
            self.host[i] += holding.host_mib
        if self._counts_cpu and self.sites[i].cpu_milli is not None:
            self.cpu[i] += holding.cpu_milli
        self.changed += 1
        self.settle(i)

    def _take(self, holding: Holding) -> None:
        i = holding.node
        self.holdings[i][holding.replica] = holding
        self.by_model[holding.model][holding.replica] = holding
        free = self.free[i]
        for b, mask in enumerate(holding.whole):
            if mask & ~free[b]:
                self._take_twice(i, b, mask & ~free[b])
            free[b] &= ~mask
        for b, place, mib in holding.shares:
            self._take_share(i, b, place, mib)
        if self._counts_host and self.sites[i].host_mib is not None:
            self.host[i] -= holding.host_mib
        if self._counts_cpu and self.sites[i].cpu_milli is not None:
            self.cpu[i] -= holding.cpu_milli

    def _take_twice(self, i: int, b: int, mask: int) -> None:
        """Held by another as well, or out of order: given back only when the last has given it back."""
        for place in bits(mask):
            self._twice[i, b, place] = self._twice.get((i, b, place), 0) + 1

    def _once(self, i: int, b: int, mask: int) -> int:
        for place in bits(mask):
            more = self._twice.get((i, b, place), 0)
            if more:
                mask &= ~(1 << place)
                self._twice[i, b, place] = more - 1
        return mask

    def _take_share(self, i: int, b: int, place: int, mib: int) -> None:
        parts, bit = self.parts[i], 1 << place
        if self.free[i][b] & bit:
            self.free[i][b] &= ~bit
            parts[b, place] = (self.layouts[self.layout_of[i]].banks[b].share_mib or 0) - mib
        elif (b, place) in parts:
            parts[b, place] -= mib
        else:
            self._take_twice(i, b, bit)

    def _give_share(self, i: int, b: int, place: int, mib: int) -> None:
        parts = self.parts[i]
        if (b, place) not in parts:
            self.free[i][b] |= self._once(i, b, 1 << place)
            return
        parts[b, place] += mib
        slot = self.sites[i].slots[self.bank_slots[i][b][place]]
        if slot.left_mib is None and parts[b, place] == (slot.share_mib or 0):
            del parts[b, place]
            self.free[i][b] |= 1 << place

    def settle(self, i: int) -> None:
        """Find the room that node `i` belongs into now."""
        key = (self.layout_of[i], self.left(i), self.host[i], self.cpu[i])
        number = self._keys.get(key)
        if number is None:
            number = self._keys[key] = len(self.rooms)
            self.rooms.append(Room(*key))
        before = self.room_of[i]
        if before != number:
            bit = 1 << i
            if before >= 0:
                self.rooms[before].members ^= bit
            room = self.rooms[number]
            if not room.members:
                self.born[key[0]].append(number)
            room.members |= bit
            self.room_of[i] = number
        for watcher in self.watchers:
            watcher.add(i)

    def forget_empty(self) -> None:
        """Drop the rooms that are empty from the lists of births. Only while nobody has a place in them."""
        self.born = [[] for _ in self.layouts]
        for number in sorted(set(self.room_of)):
            self.born[self.rooms[number].layout].append(number)

    # --- reading ---

    def left(self, i: int, more: Iterable[Holding] = ()) -> Left:
        """What is left on a node, or would be once `more` of its holdings were gone."""
        free, parts = self.free[i], self.parts[i]
        if more:
            free, parts = self._without(i, more)
        if not parts and not self._aligns:
            return tuple([(mask.bit_count(), (), ()) for mask in free])
        banks = self.layouts[self.layout_of[i]].banks
        shared: list[list[int]] = [[] for _ in free]
        for (b, _), mib in parts.items():
            if mib > 0:
                shared[b].append(mib)
        return tuple(
            (mask.bit_count(), tuple(sorted(shared[b])), aligned_groups(mask, banks[b].size) if self._aligns else ())
            for b, mask in enumerate(free)
        )

    def _without(self, i: int, gone: Iterable[Holding]) -> tuple[list[int], dict[Place, int]]:
        kept = self.free[i], self.parts[i], self._twice
        self.free[i], self.parts[i], self._twice = list(kept[0]), dict(kept[1]), dict(kept[2])
        try:
            for holding in gone:
                for b, mask in enumerate(holding.whole):
                    if mask:
                        self.free[i][b] |= self._once(i, b, mask)
                for b, place, mib in holding.shares:
                    self._give_share(i, b, place, mib)
            return self.free[i], self.parts[i]
        finally:
            self.free[i], self.parts[i], self._twice = kept

    def host_without(self, i: int, gone: Iterable[Holding]) -> tuple[int, int]:
        """Main memory and processors that are left, or would be once some holdings were gone."""
        host, cpu = self.host[i], self.cpu[i]
        if self._counts_host and self.sites[i].host_mib is not None:
            host += sum(holding.host_mib for holding in gone)
        if self._counts_cpu and self.sites[i].cpu_milli is not None:
            cpu += sum(holding.cpu_milli for holding in gone)
        return host, cpu

    def layout(self, i: int) -> Layout:
        return self.layouts[self.layout_of[i]]


def _bank_key(bank: Bank) -> tuple[str, int, int, str, str, list[list[DeviceId]]]:
    sizes = bank.memory_mib or -1, bank.share_mib or -1
    return bank.kind, *sizes, bank.vendor, bank.identity, sorted(sorted(x) for x in bank.listed)


def bits(mask: int) -> Iterator[int]:
    """The numbers of the set bits, in rising order."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
