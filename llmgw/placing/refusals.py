"""Why nothing has a place: per reason how many nodes it holds back, and the node that lacks least. Only words; they
stay the same while nothing changes.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from llmgw.placing.books import Books
from llmgw.placing.field import Field
from llmgw.placing.layout import Bank, Layout, suits
from llmgw.placing.need import Ask, Need, Request, Slot
from llmgw.placing.yard import bits
from llmgw.sentences import counted

Fell = tuple[str, int]
"""A reason and the nodes that it holds back."""

MOST_REASONS = 6
MOST_NAMED = 3
MAIN_MEMORY = "MiB of main memory"


def refusal(field: Field, books: Books, request: Request, need: Need) -> str:
    """One sentence: what is asked, the nodes per reason, each counted once, and the nearest miss."""
    asked = " and ".join(in_words(ask) for ask in need.asks) or "no device"
    head = f"needs {asked} in pool {need.pool}"
    sites = field.yard.sites
    if not sites:
        return f"{head}: the fleet has no nodes"
    nodes = (1 << len(sites)) - 1
    fallen: list[Fell] = []
    for row in ROWS:
        for reason, fell in row(field, books, request, need, nodes):
            if fell & nodes:
                fallen.append((reason, fell & nodes))
                nodes &= ~fell
    rest = list(_short(field, need, nodes))
    counts: Counter[str] = Counter()
    for reason, fell in (*fallen, *rest):
        counts[reason] += fell.bit_count()
    listed = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    said = [f"{counted(n, 'node')} {reason}" for reason, n in listed[:MOST_REASONS]]
    if len(listed) > MOST_REASONS:
        more = sum(n for _, n in listed[MOST_REASONS:])
        said.append(f"{counted(more, 'node')} for other reasons")
    nearest = _nearest(field, need, rest) or _nearest(field, need, fallen)
    return f"{head}: " + "; ".join(said) + (f" (nearest: {nearest})" if nearest else "")


def in_words(ask: Ask) -> str:
    size = "" if ask.memory_mib is None else f" with at least {ask.memory_mib / 1024:g} GiB"
    claim = "" if ask.claim_mib is None else f"{ask.claim_mib / 1024:g} GiB of "
    only = " of those listed" if ask.devices else ""
    only += f" by {' or '.join(ask.vendors)}" if ask.vendors else ""
    aligned = " side by side" if ask.aligned and ask.count > 1 else ""
    return f"{claim}{ask.count} × {' or '.join(ask.kinds) or 'any device'}{size}{only}{aligned}"


# --- rows: what holds nodes back before anybody counts what is left; the first that speaks of a node counts ---


def _pool(field: Field, _books: Books, _request: Request, need: Need, _left: int) -> Iterator[Fell]:
    yield "in other pools", field.outside(need.pool)


def _closed(field: Field, _books: Books, _request: Request, _need: Need, left: int) -> Iterator[Fell]:
    by_reason: dict[str, int] = {}
    for i in bits(left & ~field.open):
        by_reason[field.yard.sites[i].closed] = by_reason.get(field.yard.sites[i].closed, 0) | 1 << i
    yield from sorted(by_reason.items())


def _listed(field: Field, _books: Books, _request: Request, need: Need, left: int) -> Iterator[Fell]:
    if need.nodes:
        yield "not on its list of nodes", left & ~field.nodes(need.nodes)


def _labels(field: Field, _books: Books, _request: Request, need: Need, left: int) -> Iterator[Fell]:
    for label in sorted(need.labels):
        yield f"without the label {label[0]}={label[1]}", left & ~field.labelled(label)


def _blind(field: Field, _books: Books, _request: Request, need: Need, left: int) -> Iterator[Fell]:
    by_reason: dict[str, int] = {}
    for i in bits(left & field.blind) if need.asks else ():
        by_reason[field.yard.sites[i].blind] = by_reason.get(field.yard.sites[i].blind, 0) | 1 << i
    yield from sorted(by_reason.items())


def _such(field: Field, _books: Books, _request: Request, need: Need, left: int) -> Iterator[Fell]:
    """Nodes that have too few such devices, whoever holds them."""
    if need.asks:
        layouts = {
            c for c, layout in enumerate(field.yard.layouts) if any(_there(a, layout) < a.count for a in need.asks)
        }
        yield from _short(field, need, left & _nodes(i for i in bits(left) if field.yard.layout_of[i] in layouts))


def _limits(field: Field, books: Books, request: Request, _need: Need, _left: int) -> Iterator[Fell]:
    yield "left out", field.nodes(request.never)
    yield f"with as many of its replicas as one may have ({request.max_per_node})", books.full(request.model)
    yield f"with another model of group {request.group}", books.apart(request)


def _host(field: Field, _books: Books, _request: Request, need: Need, left: int) -> Iterator[Fell]:
    yard = field.yard
    if need.host_mib:
        known = left & ~_nodes(i for i in bits(left) if yard.sites[i].host_mib is None)
        yield "with unknown main memory", left & ~known
        short = _nodes(i for i in bits(known) if yard.host[i] < need.host_mib)
        yield f"short of {need.host_mib} {MAIN_MEMORY}", short
    if need.cpu_milli:
        yield (
            f"short of {need.cpu_milli / 1000:g} processors",
            _nodes(i for i in bits(left) if yard.cpu[i] < need.cpu_milli),
        )


ROWS: tuple[Callable[[Field, Books, Request, Need, int], Iterator[Fell]], ...] = (
    _pool,
    _closed,
    _listed,
    _labels,
    _blind,
    _such,
    _limits,
    _host,
)


def _nodes(numbers: Iterator[int]) -> int:
    found = 0
    for number in numbers:
        found |= 1 << number
    return found


# --- devices ---


def _short(field: Field, need: Need, nodes: int) -> Iterator[Fell]:
    """What the rest of the nodes lack, those alike together."""
    if not need.asks:
        if nodes:
            yield "without room", nodes
        return
    plain = nodes & ~field.troubled
    for room in field.yard.rooms:
        if members := room.members & plain:
            yield _lacks(field, need, (members & -members).bit_length() - 1), members
    for i in bits(nodes & field.troubled):
        yield _lacks(field, need, i) + _troubles(field, need, i), 1 << i


def _lacks(field: Field, need: Need, node: int) -> str:
    layout = field.yard.layout(node)
    ask = _hardest(field, need, node)
    there = _there(ask, layout)
    if there < ask.count:
        return f"with {counted(there, 'such device')}{_but(field, ask, node)}"
    if ask.claim_mib is not None:
        widest, kept = _widest(field, ask, node), _kept(field, node)
        for_that = (
            f" ({kept / 1024:.3g} GiB of it kept by driver and firmware)" if widest + kept >= ask.claim_mib else ""
        )
        return f"with at most {widest / 1024:.3g} GiB left on {_on(ask)}{for_that if kept else ''}"
    free = _free(field, ask, node)
    return f"with {free} free" + (", not side by side" if free >= ask.count and ask.aligned else "")


def _on(ask: Ask) -> str:
    return "a device" if ask.count == 1 else f"{ask.count} devices"


def _there(ask: Ask, layout: Layout) -> int:
    """Devices of the asked sort, whoever holds them."""
    return sum(bank.size for bank in layout.banks if suits(ask, bank))


def _hardest(field: Field, need: Need, node: int) -> Ask:
    """The ask that the node can meet least of: by what is there, then by what is left."""
    layout = field.yard.layout(node)
    return min(need.asks, key=lambda ask: (min(0, _there(ask, layout) - ask.count), _part_met(field, ask, node)))


def _but(field: Field, ask: Ask, node: int) -> str:
    """Devices that would be such but for something worth telling."""
    banks = [bank for bank in field.yard.layout(node).banks if not suits(ask, bank)]
    asks_size = ask.memory_mib is not None or ask.claim_mib is not None
    unknown = sum(bank.size for bank in banks if bank.memory_mib is None and asks_size)
    unnamed = sum(bank.size for bank in banks if ask.barred and suits(replace(ask, barred=frozenset()), bank))
    kept = sum(
        1 for bank, slot in _slots(field, node) if slot.kept_mib and bank in banks and suits(ask, _whole(bank, slot))
    )
    said = [
        f"{unknown} of unknown memory" if unknown else "",
        f"{unnamed} that cannot be named to its engine" if unnamed else "",
        f"{kept} but for {_kept(field, node) / 1024:.3g} GiB that driver and firmware keep" if kept else "",
    ]
    return f" ({', '.join(words for words in said if words)})" if any(said) else ""


def _slots(field: Field, node: int) -> Iterator[tuple[Bank, Slot]]:
    site, layout = field.yard.sites[node], field.yard.layout(node)
    for positions, bank in zip(field.yard.bank_slots[node], layout.banks, strict=True):
        for position in positions:
            yield bank, site.slots[position]


def _whole(bank: Bank, slot: Slot) -> Bank:
    """The bank of such a device of which driver and firmware kept nothing."""
    memory = None if bank.memory_mib is None else bank.memory_mib + slot.kept_mib
    return bank._replace(
        memory_mib=memory, share_mib=None if bank.share_mib is None else bank.share_mib + slot.kept_mib
    )


def _kept(field: Field, node: int) -> int:
    """The most MiB that driver and firmware keep of a device there."""
    return max((slot.kept_mib for slot in field.yard.sites[node].slots), default=0)


def _free(field: Field, ask: Ask, node: int) -> int:
    """Whole free devices of the asked sort."""
    banks = field.yard.layout(node).banks
    return sum(m.bit_count() for m, bank in zip(field.yard.free[node], banks, strict=True) if suits(ask, bank))


def _widest(field: Field, ask: Ask, node: int) -> int:
    """MiB left on each of the `count` emptiest devices of the asked sort."""
    left = field.yard.left(node)
    found: list[int] = []
    for (free, parts, _), bank in zip(left, field.yard.layout(node).banks, strict=True):
        if suits(ask, bank):
            found += [bank.share_mib or 0] * free + list(parts)
    return sorted(found, reverse=True)[ask.count - 1] if len(found) >= ask.count else 0


def _troubles(field: Field, need: Need, node: int) -> str:
    """Devices of the asked sort that are there and cannot be had, by reason."""
    ask = _hardest(field, need, node)
    counts = Counter(slot.trouble for bank, slot in _slots(field, node) if suits(ask, bank))
    return "".join(f", {n} {trouble}" for trouble, n in sorted(counts.items()) if trouble)


# --- the nearest miss ---


def _nearest(field: Field, need: Need, among: Sequence[Fell]) -> str:
    """The node that has most of what is asked, and what it lacks; of equals what fell last, then the first."""
    best: tuple[float, int, int] | None = None
    for number, (_, nodes) in enumerate(among):
        for node in _alike(field, nodes):
            key = (_met(field, need, node), number, -node)
            best = key if best is None or key > best else best
    if best is None or not best[0] > 0:
        return ""
    node, reason = -best[2], among[best[1]][0]
    host = field.yard.host[node]
    more = f", {max(0, host)} MiB of it left" if reason.endswith(MAIN_MEMORY) and host >= 0 else ""
    return f"{field.yard.sites[node].id} {reason}{more}{_by_name(field, need, node)}"


def _by_name(field: Field, need: Need, node: int) -> str:
    """Which devices are in trouble there, and how much of them others hold, in whole GiB so that it stays the same."""
    ask = _hardest(field, need, node) if need.asks else None
    slots = [slot for bank, slot in _slots(field, node) if slot.trouble and ask is not None and suits(ask, bank)]
    named = [slot.id + (f" {-(-slot.others_mib // 1024)} GiB" if slot.others_mib else "") for slot in slots]
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return f": {', '.join(named[:MOST_NAMED])}{more}" if named else ""


def _alike(field: Field, nodes: int) -> Iterator[int]:
    """The first node of each room."""
    for room in field.yard.rooms:
        if members := room.members & nodes:
            yield (members & -members).bit_length() - 1


def _met(field: Field, need: Need, node: int) -> float:
    """How much of what is asked is left there, at most 1."""
    if not need.asks:
        return 1.0 if need.host_mib == 0 else min(1.0, max(0, field.yard.host[node]) / need.host_mib)
    return _part_met(field, _hardest(field, need, node), node)


def _part_met(field: Field, ask: Ask, node: int) -> float:
    if ask.claim_mib is not None:
        return min(1.0, _widest(field, ask, node) / ask.claim_mib)
    return min(1.0, _free(field, ask, node) / ask.count)
