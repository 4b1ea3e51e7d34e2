"""Which devices of a bank: groups of fast links are kept whole, what is being released comes last."""

from functools import lru_cache

from llmgw.placing.holding import Holding
from llmgw.placing.layout import Draw, Part, aligned_groups
from llmgw.placing.yard import Yard


@lru_cache(maxsize=65536)
def pick(free: int, count: int, width: int) -> int:
    """`count` of the free devices (a bit each) of `width`. They come from the smallest aligned group that has them:
    of those the one with the fewest free, then with the fewest beside it, then the lowest."""
    if free.bit_count() == count:
        return free
    size = 1 << (count - 1).bit_length()
    while size < width:
        groups = [
            (group.bit_count(), (free & _span(2 * size, base)).bit_count(), base, group)
            for base in range(0, width, size)
            if (group := free & _span(size, base)).bit_count() >= count
        ]
        if groups:
            return _lowest(min(groups)[3], count)
        size *= 2
    return _lowest(free, count)


def _span(size: int, base: int) -> int:
    """The aligned group of `size` in which `base` lies."""
    return ((1 << size) - 1) << (base - base % size)


def _lowest(free: int, count: int) -> int:
    taken = 0
    for _ in range(count):
        low = free & -free
        taken |= low
        free ^= low
    return taken


def hold(yard: Yard, node: int, draw: Draw, chosen_mib: int | None, holding: Holding) -> Holding | None:
    """`holding` with the devices of `draw` on `node`; None where parts that fit one by one do not together."""
    layout, late = yard.layout(node), yard.late.get(node, {})
    free, parts = list(yard.free[node]), dict(yard.parts[node])
    whole = [0] * len(layout.banks)
    shares: list[tuple[int, int, int]] = []
    units = 0.0
    for part in draw:
        bank = layout.banks[part.bank]
        if part.claim_mib is None:
            taken = _whole(free[part.bank], part, bank.size, _mask(late, part.bank))
            if taken is None:
                return None
            free[part.bank] &= ~taken
            whole[part.bank] |= taken
            units += part.number
            continue
        units += part.number * part.claim_mib / (bank.share_mib or 1)
        for _ in range(part.number):
            used = {place for b, place, _ in shares if b == part.bank}
            place = _shared(free, parts, part, chosen_mib if part.number == 1 else None, used)
            if place is None:
                place = (pick(free[part.bank], 1, bank.size)).bit_length() - 1
                if place < 0:
                    return None
                free[part.bank] &= ~(1 << place)
                parts[part.bank, place] = bank.share_mib or 0
            parts[part.bank, place] -= part.claim_mib
            shares.append((part.bank, place, part.claim_mib))
    holding.whole, holding.shares, holding.units = tuple(whole), tuple(sorted(shares)), units
    if late:
        mine = {(b, place) for b, mask in enumerate(whole) for place in range(mask.bit_length()) if mask >> place & 1}
        holding.waits = any(place in late for place in mine | {(b, place) for b, place, _ in shares})
    return holding


def _mask(late: dict[tuple[int, int], int], bank: int) -> int:
    return sum(1 << place for b, place in late if b == bank) if late else 0


def _whole(free: int, part: Part, width: int, late: int) -> int | None:
    """Free ones that nobody releases where there are enough of them."""
    ready = free & ~late
    for among in (ready, free) if late else (free,):
        if among.bit_count() < part.number:
            continue
        taken = pick(among, part.number, width)
        if not part.aligned or _is_aligned(taken, part.number, width):
            return taken
    return None


def _is_aligned(taken: int, count: int, width: int) -> bool:
    level = (count - 1).bit_length()
    return level == 0 or aligned_groups(taken, width)[level - 1] == count


def _shared(
    free: list[int], parts: dict[tuple[int, int], int], part: Part, chosen_mib: int | None, used: set[int]
) -> int | None:
    """The shared device that has just room, or `chosen_mib`; None: a whole one is opened."""
    fitting = sorted(
        (mib, place)
        for (b, place), mib in parts.items()
        if b == part.bank and place not in used and mib >= (part.claim_mib or 0)
    )
    if part.number == 1 and chosen_mib is None:
        return None if free[part.bank] else (fitting[0][1] if fitting else None)
    if chosen_mib is not None:
        return next((place for mib, place in fitting if mib == chosen_mib), fitting[0][1] if fitting else None)
    return fitting[0][1] if fitting else None
