"""What `npu-smi info` prints for Ascend NPUs. Pure.

A card has one chip or several, each of its own memory; engines number chips (`Phy-ID`), not cards. Cells are read by
the borders and the header, since figures run together (`34416/ 65536`) and separators differ between versions.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from agent.inventory.seen import Seen, Sight, User, breaks_off, bus_id, first_lines, known, mib

_WELL = frozenset({"ok", "warning", "warn"})
"""A warning is told by the tool for things to look at; work goes on. Alarm, Critical and others are sickness."""

_PAIR = re.compile(r"(\d+|-|N/?A)\s*/\s*(\d+|-|N/?A)", re.IGNORECASE)


def read(text: str) -> Sight:
    """The two-line-per-chip table, with the processes' table behind it."""
    if "|" not in text or "npu-smi" not in text:
        return Sight(problem="npu-smi: " + (first_lines(text, 250) or "printed nothing"))
    devices, numbered, bare = _chips(text)
    users = list(_users(text))
    with_users = tuple(
        replace(device, processes=tuple(user for where, user in users if where == place))
        for place, device in zip(numbered, devices, strict=True)
    )
    without = f"npu-smi: no chip is told of card {bare}" if bare is not None else ""
    empty = "" if devices or without else "npu-smi told no NPU"
    return Sight(with_users, "; ".join(filter(None, (breaks_off(text), without, empty))))


def _chips(text: str) -> tuple[list[Seen], list[tuple[int, int]], int | None]:
    """The chips, for each (card, chip) as the processes' table calls it, and a card of which no chip is told."""
    devices: list[Seen] = []
    places: list[tuple[int, int]] = []
    card: tuple[int, str, str] | None = None
    bare: int | None = None
    waits = False
    """The last line was a card's, and its chip's is to follow."""
    has_number = False
    for cells in _table(text):
        first = cells[0].split()
        if first[:1] == ["Chip"]:
            has_number = len(first) > 1
        elif first[:2] == ["NPU", "Chip"]:
            break  # the processes' table
        elif not first or not first[0].isdigit():
            continue
        elif card is not None and (bus_id(cells[1]) or (waits and known(cells[1]) is None)):
            waits = False
            npu, name, health = card
            chip = int(first[0])
            own = int(first[1]) if has_number and len(first) > 1 and first[1].isdigit() else None
            devices.append(_chip(npu if own is None else own, name, health, cells))
            places.append((npu, chip))
        elif len(first) >= 2 and not bus_id(cells[1]):
            bare = card[0] if waits and card is not None else bare
            card, waits = (int(first[0]), " ".join(first[1:]), cells[1].strip()), True
    return devices, places, card[0] if waits and card is not None else bare


def _chip(index: int, name: str, health: str, cells: list[str]) -> Seen:
    pairs = _PAIR.findall(cells[2])
    used, total = pairs[-1] if pairs else (None, None)  # HBM stands last; before it the chip's own DDR
    if not mib(total) and len(pairs) > 1:
        used, total = pairs[-2]  # chips without HBM have DDR alone
    return Seen(
        index=index,
        kind=name,
        vendor="ascend",
        bus=bus_id(cells[1]),
        total_mib=mib(total) or None,
        used_mib=mib(used),
        sickness="" if health.casefold() in _WELL else f"health {health}",
    )


def _users(text: str) -> Iterator[tuple[tuple[int, int], User]]:
    inside = False
    for cells in _table(text):
        first = cells[0].split()
        if first[:2] == ["NPU", "Chip"]:
            inside = True
        elif inside and len(first) == 2 and len(cells) >= 4 and cells[1].strip().isdigit():
            name = known(cells[2]) or ""
            yield (int(first[0]), int(first[1])), User(int(cells[1]), name, mib(cells[3]))


def _table(text: str) -> Iterator[list[str]]:
    """The cells of each row that has several."""
    for line in text.splitlines():
        cells = line.strip().strip("|").split("|")
        drawn = line.strip()
        if drawn[:1] == drawn[-1:] == "|" and len(cells) >= 3 and cells[0].strip():
            yield cells
