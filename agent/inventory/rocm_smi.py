"""What `rocm-smi` prints: JSON, CSV, lines (`GPU[0] : key: value`), the concise table. Pure.

Keys differ between ROCm versions (`Card series`, `Card Series`, `Device Name`), so they are compared without case. A
percentage is no figure.
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.inventory.amd_cards import Card, judged, unique_id
from agent.inventory.seen import Seen, Sight, User, bus_id, first_lines, known, mib, number

_TABLE_ROW = re.compile(r"^(?P<index>\d+)\s+(?:\[(?P<model>[^\]]*)\]|\S+)\s+.*%")
_PARTITIONS = re.compile(r"\b(NPS\d)\s*,\s*([A-Z]PX)\b")
_LINE = re.compile(
    r"^(?:ERROR:\s*)?GPU\[(?P<index>\d+)\]\s*:[ \t]*(?P<key>[^:\n]+?)[ \t]*(?::[ \t]*(?P<value>.*?))?\s*$", re.MULTILINE
)
_BEGIN, _END = "ROCm System Management", "End of ROCm SMI Log"


def read_json(document: Mapping[str, Any]) -> Sight:
    """`card0: {key: value}, …, system: {PID<n>: …}`."""
    cards = [(key, value) for key, value in document.items() if re.fullmatch(r"card\d+", str(key))]
    rows = [_from_row({**_folded(value), "device": key}, place) for place, (key, value) in enumerate(cards)]
    told = judged(_with_processes(rows, document.get("system")))
    return told if cards else replace(told, problem="rocm-smi told no card")


def read_csv(text: str) -> Sight:
    """From the header (`device,…`) on. A row of more or fewer cells keeps none: they may have moved."""
    lines = text.splitlines()
    at = next(place for place, line in enumerate(lines) if line.casefold().startswith("device,"))
    header, *rows = list(csv.reader(line for line in lines[at:] if line.strip()))
    names = [name.casefold().strip(": ") for name in header]
    cards = [row for row in rows if row[0].startswith("card")]
    whole = [dict(zip(names, row, strict=True)) if len(row) == len(names) else {"device": row[0]} for row in cards]
    broken = sum(len(row) != len(names) for row in cards)
    problem = f"rocm-smi: {broken} rows do not have the {len(names)} cells of the header" if broken else ""
    problem = problem or ("" if cards else "rocm-smi told no card")
    return replace(judged([_from_row(row, place) for place, row in enumerate(whole)]), problem=problem)


def read_lines(text: str) -> Sight:
    """`GPU[0] : VRAM Total Memory (B): 34342961152`, a line per key."""
    rows: dict[str, dict[str, str]] = {}
    for line in _LINE.finditer(text):
        rows.setdefault(line["index"], {"device": f"card{line['index']}"})[line["key"].casefold()] = line["value"] or ""
    return replace(judged([_from_row(row, n) for n, row in enumerate(rows.values())]), problem=_cut(text))


def has_lines(text: str) -> bool:
    return bool(_LINE.search(text))


def _from_row(row: Mapping[str, str], place: int) -> Card:
    """One card of JSON or CSV; the keys are in lower case."""
    index = number(row.get("device", "").removeprefix("card"))
    names = (known(row.get(key)) for key in ("card series", "device name", "card model"))
    code = known(row.get("device id")) or known(row.get("gpu id")) or ""
    return Card(
        Seen(
            index=place if index is None else index,
            kind=next((name for name in names if name and not name.startswith("0x")), f"AMD {code}".strip()),
            vendor="amd",
            uuid=unique_id(row.get("unique id")),
            bus=bus_id(row.get("pci bus")),
            total_mib=mib(row.get("vram total memory (b)"), "B") or None,
            used_mib=mib(row.get("vram total used memory (b)"), "B"),
        ),
        gtt_mib=mib(row.get("gtt total memory (b)"), "B"),
        gfx=(known(row.get("gfx version")) or "").casefold(),
        compute=known(row.get("compute partition")) or "",
        node=number(row.get("node id")),
    )


def _with_processes(cards: list[Card], system: Any) -> list[Card]:
    """`PID<n>: name, GPUs, VRAM, …`: on which card a process is, is told only where there is one."""
    if len(cards) != 1 or not isinstance(system, Mapping):
        return cards
    users = []
    for key, value in system.items():
        if match := re.fullmatch(r"PID(\d+)", str(key)):
            name, *figures = (part.strip() for part in str(value).split(","))
            users.append(User(int(match[1]), name, mib(figures[1], "B") if len(figures) > 1 else None))
    return [replace(cards[0], seen=replace(cards[0].seen, processes=tuple(users)))]


def read_table(text: str) -> Sight:
    """The concise table: who is there; memory only in per cent, which is no figure."""
    cards: list[Card] = []
    for line in text.splitlines():
        row = _TABLE_ROW.match(line)
        if row is not None:
            parts = _PARTITIONS.search(line)
            seen = Seen(int(row["index"]), f"AMD {(row['model'] or '').partition(':')[0].strip()}".strip(), "amd")
            cards.append(Card(seen, compute=parts[2] if parts else ""))
        elif cards and line.startswith("        ") and (name := line.strip()) and "(" not in name:
            cards[-1] = replace(cards[-1], seen=replace(cards[-1].seen, kind=name))
    if not cards:
        return Sight(problem="rocm-smi: " + (first_lines(text, 250) or "printed nothing"))
    return replace(judged(cards), problem=_cut(text))


def _cut(text: str) -> str:
    """That its end is missing, when it has a beginning."""
    return "rocm-smi: the output breaks off before its end" if _BEGIN in text and _END not in text else ""


def _folded(row: Any) -> dict[str, str]:
    return (
        {str(key).casefold().strip(": "): str(value) for key, value in row.items()} if isinstance(row, Mapping) else {}
    )
