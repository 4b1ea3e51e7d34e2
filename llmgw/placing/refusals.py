"""Why nothing has a place: per reason how many nodes it holds back, and the node that lacks least. Only words; they
stay the same while nothing changes.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from llmgw.placing.books import Books
from llmgw.placing.field import Field
from llmgw.placing.layout import Layout, suits
from llmgw.placing.need import Ask, Need, Request
from llmgw.placing.yard import bits

Fell = tuple[str, int]
"""A reason and the nodes that it holds back."""

MOST_REASONS = 6


def refusal(field: Field, books: Books, request: Request, need: Need) -> str:
    """One sentence: what is asked, the nearest miss, and the nodes per reason."""
    asked = " and ".join(in_words(ask) for ask in need.asks) or "no device"
    head = f"needs {asked} in pool {need.pool}"
    sites = field.yard.sites
    if not sites:
        return f"{head}: the fleet has no nodes"
    nodes = (1 << len(sites)) - 1
    counts: Counter[str] = Counter()
    for row in ROWS:
        for reason, fell in row(field, books, request, need, nodes):
            if fell & nodes:
                counts[reason] += (fell & nodes).bit_count()
                nodes &= ~fell
    nearest = _nearest(field, need, nodes)
    for reason, fell in _short(field, need, nodes):
        counts[reason] += fell.bit_count()
    listed = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    said = [f"{n} node{'s' * (n != 1)} {reason}" for reason, n in listed[:MOST_REASONS]]
    if len(listed) > MOST_REASONS:
        rest = sum(n for _, n in listed[MOST_REASONS:])
        said.append(f"{rest} node{'s' * (rest != 1)} for other reasons")
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
        yield f"short of {need.host_mib} MiB of main memory", short
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
    ask = _hardest(need, layout)
    there = sum(bank.size for bank in layout.banks if suits(ask, bank))
    if there < ask.count:
        unknown = sum(bank.size for bank in layout.banks if bank.memory_mib is None)
        asks_size = ask.memory_mib is not None or ask.claim_mib is not None
        suffix = f" ({unknown} of unknown memory)" if unknown and asks_size else ""
        return f"with {there} such device{'s' * (there != 1)}{suffix}"
    if ask.claim_mib is not None:
        return f"with at most {_widest(field, ask, node) / 1024:.3g} GiB left on {_on(ask)}"
    free = _free(field, ask, node)
    return f"with {free} free" + (", not side by side" if free >= ask.count and ask.aligned else "")


def _on(ask: Ask) -> str:
    return "a device" if ask.count == 1 else f"{ask.count} devices"


def _hardest(need: Need, layout: Layout) -> Ask:
    """The ask that the layout can meet least of."""

    def there(ask: Ask) -> int:
        return sum(bank.size for bank in layout.banks if suits(ask, bank)) - ask.count

    return min(need.asks, key=there)


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
    site, layout = field.yard.sites[node], field.yard.layout(node)
    ask = _hardest(need, layout)
    counts = Counter(
        site.slots[position].trouble
        for positions, bank in zip(field.yard.bank_slots[node], layout.banks, strict=True)
        if suits(ask, bank)
        for position in positions
    )
    return "".join(f", {n} {trouble}" for trouble, n in sorted(counts.items()) if trouble)


def _nearest(field: Field, need: Need, nodes: int) -> str:
    """The node that has most of what is asked; of equals the first."""
    best: tuple[float, int] | None = None
    for room in field.yard.rooms:
        members = room.members & nodes
        if members and need.asks:
            node = (members & -members).bit_length() - 1
            key = (_met(field, need, node), -node)
            best = key if best is None or key > best else best
    if best is None or not best[0] > 0:
        return ""
    node = -best[1]
    return f"{field.yard.sites[node].id} {_lacks(field, need, node)}"


def _met(field: Field, need: Need, node: int) -> float:
    """How much of the hardest ask is there, at most 1."""
    ask = _hardest(need, field.yard.layout(node))
    if ask.claim_mib is not None:
        return min(1.0, _widest(field, ask, node) / ask.claim_mib)
    return min(1.0, _free(field, ask, node) / ask.count)
