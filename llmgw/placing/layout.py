"""What nodes are made of: equal devices lie in one bank, and nodes with equal banks have one layout.

A layout is the unit of everything that is worked out once: which of its banks suit a need, what is scarce. What is
left in a bank is `(free, parts, groups)`: whole free devices, the memory left on shared ones in rising order, and,
where somebody asks for aligned devices, the most free ones in any aligned group of 2, 4, 8, …
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from llmgw.ids import DeviceId, PoolName
from llmgw.placing.kinds import is_kind
from llmgw.placing.need import Ask, Identity, Label, Need

BankLeft = tuple[int, tuple[int, ...], tuple[int, ...]]
Left = tuple[BankLeft, ...]
"""What is left on a node, bank by bank."""

MAX_DRAWS = 64
"""Ways to meet a need on one layout that are looked at; more than a few exist only on nodes of many kinds."""


class Bank(NamedTuple):
    """Equal devices of a node: `size` of them. `listed`: the lists of devices somebody gave that name them."""

    kind: str
    memory_mib: int | None
    share_mib: int | None
    vendor: str
    listed: frozenset[frozenset[DeviceId]]
    size: int
    identity: Identity = ""


class Layout(NamedTuple):
    pool: PoolName
    labels: frozenset[Label]
    """Those that somebody asks for."""
    banks: tuple[Bank, ...]

    @property
    def devices(self) -> int:
        return sum(bank.size for bank in self.banks)


class Part(NamedTuple):
    """`number` devices from one bank, whole or by a claim."""

    bank: int
    number: int
    claim_mib: int | None
    aligned: bool


Draw = tuple[Part, ...]
"""One way to meet a need on a layout."""


def draws(need: Need, layout: Layout) -> tuple[Draw, ...]:
    """Every way to meet the asks of `need` on an empty node of `layout`; none when it never fits."""
    if need.pool != layout.pool or not need.labels <= layout.labels:
        return ()
    empty = empty_of(layout)
    found: list[Draw] = []
    asks = sorted(need.asks, key=lambda a: (-(a.memory_mib or 0), not a.kinds, a.kinds, -a.count))
    for draw in _spread(asks, layout.banks):
        if draw not in found and fits(draw, empty, layout.banks):
            found.append(draw)
        if len(found) == MAX_DRAWS:
            break
    return tuple(found)


def empty_of(layout: Layout) -> Left:
    return tuple((bank.size, (), aligned_groups((1 << bank.size) - 1, bank.size)) for bank in layout.banks)


def _spread(asks: Sequence[Ask], banks: Sequence[Bank]) -> Iterator[Draw]:
    """Each ask's devices over the banks that suit it, the smallest devices first."""
    if not asks:
        yield ()
        return
    suited = sorted((b for b, bank in enumerate(banks) if suits(asks[0], bank)), key=lambda b: _size(banks[b]))
    for first in _portions(asks[0].count, suited, banks):
        mine = tuple(Part(b, n, asks[0].claim_mib, asks[0].aligned) for b, n in first)
        if asks[0].aligned and len(mine) > 1:
            continue
        for rest in _spread(asks[1:], banks):
            yield _joined(mine + rest)


def _size(bank: Bank) -> tuple[int, str]:
    return bank.memory_mib or 0, bank.kind


def _portions(count: int, suited: Sequence[int], banks: Sequence[Bank]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Ways to take `count` devices from the banks, as few banks as possible first."""
    for whole in suited:
        if banks[whole].size >= count:
            yield ((whole, count),)
    if len(suited) > 1:
        head, rest = suited[0], suited[1:]
        for n in range(min(count - 1, banks[head].size), 0, -1):
            for others in _portions(count - n, rest, banks):
                yield ((head, n), *others)
        if len(rest) > 1:
            yield from (p for p in _portions(count, rest, banks) if len(p) > 1)


def _joined(parts: Draw) -> Draw:
    """Whole devices from the same bank are one part."""
    if len(parts) < 2:
        return parts
    counts: dict[tuple[int, int | None, bool], int] = {}
    for part in parts:
        key = (part.bank, part.claim_mib, part.aligned)
        if part.claim_mib is None and not part.aligned:
            counts[key] = counts.get(key, 0) + part.number
    rest = [p for p in parts if p.claim_mib is not None or p.aligned]
    return tuple(sorted([Part(b, n, c, a) for (b, c, a), n in counts.items()] + rest, key=_order))


def _order(part: Part) -> tuple[int, bool, int, int]:
    """Aligned devices are taken first, then whole ones, then the largest claims."""
    return part.bank, not part.aligned, -1 if part.claim_mib is None else -part.claim_mib, part.number


@lru_cache(maxsize=65536)
def suits(ask: Ask, bank: Bank) -> bool:
    """Whether devices of a bank are of the asked sort. Unknown memory is neither zero nor infinite: it meets no
    demand for a size, and no claim can be made on it."""
    if (ask.devices and ask.devices not in bank.listed) or (ask.vendors and bank.vendor not in ask.vendors):
        return False
    if ask.barred and (bank.vendor, bank.identity) in ask.barred:
        return False
    if ask.memory_mib is not None and (bank.memory_mib is None or bank.memory_mib < ask.memory_mib):
        return False
    if ask.claim_mib is not None and (bank.share_mib is None or bank.share_mib < ask.claim_mib):
        return False
    return any(is_kind(kind, bank.kind, ask.count) for kind in ask.kinds or (None,))


# --- what is left ---


def fits(draw: Draw, left: Left, banks: Sequence[Bank]) -> bool:
    """Whether all parts are there at once."""
    if len(draw) == 1:
        return _one_fits(draw[0], left[draw[0].bank])
    return not draw or after(draw, left, banks) is not None


def _one_fits(part: Part, left: BankLeft) -> bool:
    free, parts, groups = left
    if part.claim_mib is None:
        return free >= part.number and (not part.aligned or _has_group(part.number, free, groups))
    return free + sum(1 for mib in parts if mib >= part.claim_mib) >= part.number


def _has_group(count: int, free: int, groups: tuple[int, ...]) -> bool:
    """`groups[k]`: the most free devices in an aligned group of 2^(k+1)."""
    level = (count - 1).bit_length()
    if level == 0:
        return free >= 1
    return level <= len(groups) and groups[level - 1] >= count


def aligned_groups(free: int, count: int) -> tuple[int, ...]:
    """The most free devices in any aligned group of 2, 4, 8, … of `count` devices; `free`: a bit for each."""
    found: list[int] = []
    size = 2
    while size < 2 * count:
        whole = (1 << size) - 1
        found.append(max(((free >> base) & whole).bit_count() for base in range(0, count, size)))
        size *= 2
    return tuple(found)


def after(draw: Draw, left: Left, banks: Sequence[Bank]) -> Left | None:
    """What is left once the draw is taken, claims each on the fullest device that has room; None: it does not fit."""
    now = list(left)
    for part in draw:
        if not _one_fits(part, now[part.bank]):
            return None
        free, parts, groups = now[part.bank]
        if part.claim_mib is None:
            now[part.bank] = (free - part.number, parts, groups)
            continue
        fitting = [mib for mib in parts if mib >= part.claim_mib][: part.number]
        share = banks[part.bank].share_mib or 0
        rest = list(parts)
        for mib in fitting:
            rest.remove(mib)
        opened = [share] * (part.number - len(fitting))
        rest += [mib - part.claim_mib for mib in (*fitting, *opened) if mib > part.claim_mib]
        now[part.bank] = (free - len(opened), tuple(sorted(rest)), groups)
    return tuple(now)


def options(draw: Draw, left: Left, banks: Sequence[Bank]) -> Iterator[tuple[Left, int | None]]:
    """What may be left, for each sort of device that one claim could go to, and the memory left on that device before
    (None: a whole free one, or there was no choice)."""
    if len(draw) != 1 or draw[0].claim_mib is None or draw[0].number != 1:
        only = after(draw, left, banks)
        if only is not None:
            yield only, None
        return
    part, (free, parts, groups) = draw[0], left[draw[0].bank]
    claim = draw[0].claim_mib
    head, tail = left[: part.bank], left[part.bank + 1 :]
    before = 0
    for position, mib in enumerate(parts):
        if mib >= claim and mib != before:
            before = mib
            rest = parts[:position] + parts[position + 1 :]
            now = tuple(sorted((*rest, mib - claim))) if mib > claim else rest
            yield (*head, (free, now, groups), *tail), mib
    if free:
        mib = (banks[part.bank].share_mib or 0) - claim
        now = tuple(sorted((*parts, mib))) if mib > 0 else parts
        yield (*head, (free - 1, now, groups), *tail), None
