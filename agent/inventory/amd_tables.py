"""The tables that `amd-smi` prints for people: what it says when asked nothing (ROCm 7), and `amd-smi monitor`. Pure.

The first has two lines per card; of the partitions of a card only the first tells the mode, and the whole card's memory
as its own. The second has a column per figure. MB are powers of two in both.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from agent.inventory.amd_cards import Card, judged
from agent.inventory.seen import Seen, Sight, User, breaks_off, bus_id, known, mib, number

_FIRST = re.compile(r"^\|\s+(?P<bus>[0-9a-f:]+\.[0-9a-f])\s+(?P<kind>\S.*?)\s+\|(?P<cells>.*)\|\s*$", re.IGNORECASE)
_SECOND = re.compile(
    r"^\|\s+(?P<gpu>\d+)\s+(?P<hip>\S+)\s+(?P<oam>\S+)\s+(?P<mode>\S+)\s+\|.*?(?P<used>\S+?)\s*/\s*(?P<total>\S+)"
    r"(?:\s+(?P<unit>[A-Za-z]+))?\s*\|\s*$"
)
_USER = re.compile(
    r"^\|\s+(?P<gpu>\d+)\s+(?P<pid>\d+)\s+(?P<name>\S.*?)\s+(?:\S+ [KMGT]?i?B|N/A)\s+(?P<vram>[\d.]+ [KMGT]?i?B|N/A)\s"
)
_MODE = re.compile(r"\b([A-Z]PX)/NPS\d\b")
_UEC = 2
"""The place of the uncorrected errors among memory's use, temperature, errors, power."""

_MOST_WHOLE = 8
_WHOLE_MIB = 120 * 1024
"""No board has more than eight cards of so much memory: more are partitions, each telling the whole card's."""


def is_table(text: str) -> bool:
    return "AMD-SMI" in text and "+--" in text


def is_monitor(text: str) -> bool:
    return any(_columns(line) for line in text.splitlines())


def read_table(text: str) -> Sight:
    cards: list[Card] = []
    bare = ""
    for line in text.splitlines():
        if "Processes:" in line:
            break
        if first := _FIRST.match(line):
            bare, opened = bare or _unfinished(cards), _card(first)
            cards.append(opened)
        elif cards and cards[-1].seen.index < 0 and (second := _SECOND.match(line)):
            cards[-1] = _completed(cards[-1], second, cards[:-1])
    bare = bare or _unfinished(cards)
    users = list(_users(text))
    whole = [
        replace(card, seen=replace(card.seen, processes=tuple(user for at, user in users if at == card.seen.index)))
        for card in cards
        if card.seen.index >= 0
    ]
    empty = "" if whole or bare else "amd-smi told no GPU"
    return replace(judged(whole), problem="; ".join(filter(None, (breaks_off(text), bare, empty))))


def _unfinished(cards: list[Card]) -> str:
    """That the last card lacks its second line."""
    return f"amd-smi: nothing more is told of {cards[-1].seen.bus}" if cards and cards[-1].seen.index < 0 else ""


def _card(first: re.Match[str]) -> Card:
    cells = re.split(r"\s{2,}", first["cells"].strip())
    errors = number(cells[_UEC]) if len(cells) > _UEC else None
    sick = f"{errors} uncorrected ECC errors" if errors else ""
    kind = first["kind"].removeprefix("...").strip()
    return Card(Seen(-1, known(kind) or "", "amd", bus=bus_id(first["bus"]), sickness=sick))


def _completed(card: Card, second: re.Match[str], before: list[Card]) -> Card:
    mode = _MODE.search(second["mode"])
    seen = replace(
        card.seen,
        index=int(second["gpu"]),
        total_mib=mib(second["total"], second["unit"] or "MB") or None,
        used_mib=mib(second["used"], second["unit"] or "MB"),
        ordinal=number(second["hip"]),
    )
    return Card(seen, compute=mode[1] if mode else _mode_of_board(seen.bus, before))


def _mode_of_board(bus: str, before: list[Card]) -> str:
    """What the first partition of the same card said of it."""
    place = bus.rpartition(".")[0]
    return next((c.compute for c in before if c.compute and c.seen.bus.rpartition(".")[0] == place), "")


def _users(text: str) -> Iterator[tuple[int, User]]:
    for line in text.partition("Processes:")[2].splitlines():
        if row := _USER.match(line):
            yield int(row["gpu"]), User(int(row["pid"]), known(row["name"]) or "", mib(row["vram"]))


# --- monitor -------------------------------------------------------------------------------------------------------


def _columns(line: str) -> tuple[str, ...]:
    """The names of its columns; none when the line is no header of `amd-smi monitor`."""
    names = tuple(line.split())
    return (
        names if "GPU" in names[:2] and len(names) > 1 and all(re.fullmatch(r"[A-Z_%0-9]+", n) for n in names) else ()
    )


def read_monitor(text: str) -> Sight:
    """The last table in it: `monitor` may print itself anew each second."""
    rows: dict[int, Card] = {}
    head, broken = "", 0
    names: tuple[str, ...] = ()
    for line in text.splitlines():
        if found := _columns(line):
            head, names = line, found
            rows, broken = {}, 0
        elif names and line.strip():
            cells = _cells(line, head, names)
            gpu = number(cells.get("GPU"))
            if gpu is None:
                continue
            total, used = mib(cells.get("VRAM_TOTAL")), mib(cells.get("VRAM_USED"))
            parted = gpu in rows or (number(cells.get("XCP")) or 0) > 0
            broken += "VRAM_TOTAL" in names and "VRAM_TOTAL" not in cells
            if not parted:
                rows[gpu] = Card(Seen(gpu, "", "amd", total_mib=total or None, used_mib=used, sickness=_errors(cells)))
    told = judged(_without_doubtful(list(rows.values())))
    problem = f"amd-smi: {broken} rows do not have the {len(names)} cells of the header" if broken else ""
    return replace(told, problem=problem or ("" if rows else "amd-smi told no GPU"))


def _errors(cells: dict[str, str]) -> str:
    errors = number(cells.get("DOUBLE_ECC"))
    return f"{errors} uncorrected ECC errors" if errors else ""


def _cells(line: str, head: str, names: tuple[str, ...]) -> dict[str, str]:
    """By the end of each column's name, since figures stand right under it; none when a figure crosses that."""
    cells, begin, at = {}, 0, 0
    for name in names:
        at = head.index(name, at) + len(name)
        if begin >= len(line):
            break
        cells[name] = line[begin:at].strip()
        begin = at
    return cells


def _without_doubtful(cards: list[Card]) -> list[Card]:
    """Without sizes, where so many large ones cannot be whole cards."""
    large = [card for card in cards if (card.seen.total_mib or 0) >= _WHOLE_MIB]
    if len(large) <= _MOST_WHOLE:
        return cards
    return [replace(card, seen=replace(card.seen, total_mib=None, used_mib=None)) for card in cards]
