"""What `xpu-smi discovery` prints of Intel's cards: a table, or JSON (`-j`), of all or of one (`-d N`). Pure.

The UUID it tells is made of the place on the bus and the kind of card, so it is the same on another machine: the place
alone is the identity here. Graphics units within processors share main memory, and are no devices to run on.
https://github.com/intel/xpumanager
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from agent.foreign import foreign_json
from agent.inventory.seen import Seen, Sight, breaks_off, bus_id, first_lines, known, mib, number

_INTEGRATED = re.compile(
    r"\b(?:UHD|HD|Iris\S*(?: \w+)?) Graphics\b|\bArc(?:\(TM\)|™)? Graphics\b|Intel\(R\) Graphics\b"
)
_ROW = re.compile(r"^\|\s*(?P<id>\d*)\s*\|\s*(?P<key>[^:|]+?)\s*:\s*(?P<value>.*?)\s*\|\s*$")
_KEYS = {
    "device name": "device_name",
    "pci bdf address": "pci_bdf_address",
    "memory physical size": "memory_physical_size",
    "function type": "device_function_type",
}


def is_table(text: str) -> bool:
    return "| Device ID | Device Information" in text


def is_json(document: Any) -> bool:
    """A list of devices, or one device in full."""
    return isinstance(document, Mapping) and ("device_list" in document or "pci_bdf_address" in document)


def read_json(documents: Iterable[Any]) -> Sight:
    """Lists, and what is told of single devices, merged by number."""
    merged: dict[int, dict[str, Any]] = {}
    for document in documents:
        if not is_json(document):
            continue
        listed = document.get("device_list", [document])
        for row in listed if isinstance(listed, list) else []:
            if isinstance(row, Mapping) and (place := number(str(row.get("device_id")))) is not None:
                merged.setdefault(place, {}).update(row)
    return _sight(merged, "")


def read_table(text: str) -> Sight:
    """A block of rows per device; the first carries its number."""
    rows: dict[int, dict[str, Any]] = {}
    at: int | None = None
    for line in text.splitlines():
        if row := _ROW.match(line):
            at = int(row["id"]) if row["id"] else at
            if at is not None and (key := _KEYS.get(row["key"].casefold())):
                rows.setdefault(at, {})[key] = row["value"]
    return _sight(rows, breaks_off(text))


def read(text: str, code: int = 0) -> Sight:
    """Any of the outputs; what is none of them is the tool's complaint."""
    if is_table(text):
        return read_table(text)
    try:
        document = foreign_json(text)
    except ValueError:
        document = None
    if code == 0 and is_json(document):
        return read_json([document])
    said = document.get("error") if isinstance(document, Mapping) else None
    return Sight(problem="xpu-smi: " + (first_lines(str(said or text), 250) or "printed nothing"))


def _sight(rows: Mapping[int, Mapping[str, Any]], problem: str) -> Sight:
    devices = tuple(_device(place, row) for place, row in sorted(rows.items()))
    return Sight(devices, problem or ("" if devices else "xpu-smi told no device"))


def _device(place: int, row: Mapping[str, Any]) -> Seen:
    kind = known(str(row.get("device_name") or "")) or ""
    total = mib(str(row.get("memory_physical_size_byte")), "B") or mib(str(row.get("memory_physical_size")))
    free = mib(str(row.get("memory_free_size_byte")), "B")
    inside = bool(_INTEGRATED.search(kind))
    return Seen(
        index=place,
        kind=kind,
        vendor="intel",
        bus=bus_id(str(row.get("pci_bdf_address"))),
        total_mib=None if inside else total or None,
        used_mib=total - free if total and free is not None and free <= total and not inside else None,
        unfit="a graphics unit within a processor: its memory is main memory" if inside else "",
    )
