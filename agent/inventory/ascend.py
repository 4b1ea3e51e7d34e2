"""What `npu-smi info` prints for Ascend NPUs. Pure.

A card has one chip or several, each of its own memory; engines number chips (`Phy-ID`), not cards. Cells are read by
the borders and the header, since figures run together (`34416/ 65536`) and separators differ between versions.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from agent.inventory.seen import Seen, Sight, User, bus_id, first_lines, known, mib

_WELL = frozenset({"ok", "warning"})
"""A warning is told by the tool for things to look at; work goes on. Alarm, Critical and others are sickness."""

_PAIR = re.compile(r"(\d+|-|N/?A)\s*/\s*(\d+|-|N/?A)", re.IGNORECASE)


def read(text: str) -> Sight:
    """The two-line-per-chip table, with the processes' table behind it."""
    if "|" not in text or "npu-smi" not in text:
        return Sight(problem="npu-smi: " + (first_lines(text, 250) or "printed nothing"))
    devices, numbered = _chips(text)
    users = list(_users(text))
    with_users = tuple(
        replace(device, processes=tuple(user for where, user in users if where == place))
        for place, device in zip(numbered, devices, strict=True)
    )
    return Sight(with_users)


def _chips(text: str) -> tuple[list[Seen], list[tuple[int, int]]]:
    """The chips, and for each (card, chip) as the processes' table calls it."""
    devices: list[Seen] = []
    places: list[tuple[int, int]] = []
    card: tuple[int, str, str] | None = None
    has_number = False
    for cells in _table(text):
        first = cells[0].split()
        if first[:1] == ["Chip"]:
            has_number = len(first) > 1
        elif first[:2] == ["NPU", "Chip"]:
            break  # the processes' table
        elif len(first) >= 2 and first[0].isdigit() and not bus_id(cells[1]):
            card = (int(first[0]), " ".join(first[1:]), cells[1].strip())
        elif card is not None and first and first[0].isdigit() and bus_id(cells[1]):
            npu, name, health = card
            chip = int(first[0])
            own = int(first[1]) if has_number and len(first) > 1 and first[1].isdigit() else None
            devices.append(_chip(npu if own is None else own, name, health, cells))
            places.append((npu, chip))
    return devices, places


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
        if line.lstrip().startswith("|") and len(cells) >= 3 and cells[0].strip():
            yield cells
