"""What `amd-smi list|static|metric|monitor|process` print: JSON of old versions and new, CSV, indented text. Pure.

Figures are `{value, unit}` or plain; https://rocm.docs.amd.com/projects/amdsmi/en/latest/how-to/amdsmi-cli-tool.html
CSV has neither units nor sections; its figures of memory are MB, which are powers of two.
"""

import csv
import re
from collections.abc import Iterable, Mapping
from typing import Any

from agent.inventory.amd_cards import Card, judged, unique_id
from agent.inventory.seen import Seen, Sight, User, bus_id, known, mib, number

_TEXT = re.compile(r"^GPU: \d+\s*$", re.MULTILINE)
_TEXT_ROW = re.compile(r"^(?P<indent>\s*)(?P<key>[A-Z][A-Z0-9_ -]*?):(?:\s+(?P<value>.*?))?\s*$")
_SECTIONS = ("asic", "board", "bus", "vram", "mem_usage", "partition", "ecc")


def is_csv(text: str) -> bool:
    return any(line.casefold().startswith("gpu,") for line in text.splitlines())


def is_text(text: str) -> bool:
    return bool(_TEXT.search(text))


def read_csv(text: str) -> Sight:
    """From the header (`gpu,…`) on. A row of more or fewer cells keeps none: they may have moved."""
    lines = text.splitlines()
    at = next(place for place, line in enumerate(lines) if line.casefold().startswith("gpu,"))
    header, *rows = list(csv.reader(line for line in lines[at:] if line.strip()))
    names = [name.strip().casefold() for name in header]
    documents, broken = [], 0
    for row in rows:
        whole = len(row) == len(names)
        broken += not whole
        flat: dict[str, Any] = dict(zip(names, row, strict=True)) if whole else {"gpu": row[0]}
        documents.append({**dict.fromkeys(_SECTIONS, flat), **flat})
    told = read_amd_smi([documents])
    problem = f"amd-smi: {broken} rows do not have the {len(names)} cells of the header" if broken else ""
    return Sight(told.devices, "; ".join(filter(None, (told.problem, problem))))


def read_text(text: str) -> Sight:
    """`GPU: 0` and what is indented below it."""
    documents: list[dict[str, Any]] = []
    open_: list[tuple[int, dict[str, Any]]] = []
    for line in text.splitlines():
        row = _TEXT_ROW.match(line.expandtabs())
        if row is None:
            continue
        indent, key, value = len(row["indent"]), row["key"].strip().casefold().replace(" ", "_"), row["value"]
        if key == "gpu" and not indent:
            documents.append({"gpu": value})
            open_ = [(0, documents[-1])]
        elif open_ and indent:
            while open_[-1][0] >= indent:
                open_.pop()
            section = open_[-1][1]
            section[key] = {} if value is None else value
            if value is None:
                open_.append((indent, section[key]))
    return read_amd_smi([documents])


def read_amd_smi(documents: Iterable[Any]) -> Sight:
    """Any of its documents, merged by GPU number."""
    merged: dict[int, dict[str, Any]] = {}
    for document in documents:
        rows = document.get("gpu_data", []) if isinstance(document, Mapping) else document
        for row in rows if isinstance(rows, list) else []:
            if isinstance(row, Mapping) and (gpu := number(str(row.get("gpu")))) is not None:
                merged.setdefault(gpu, {}).update(row)
    if not merged:
        return Sight(problem="amd-smi told no GPU")
    return judged([_from_smi(gpu, row) for gpu, row in sorted(merged.items())])


def _from_smi(gpu: int, row: Mapping[str, Any]) -> Card:
    asic, vram, usage, parts = (_part(row, key) for key in ("asic", "vram", "mem_usage", "partition"))
    total = _figure(usage.get("total_vram")) or _figure(vram.get("size")) or _figure(row.get("vram_total"))
    used = usage.get("used_vram", row.get("vram_used"))
    errors = number(str(_part(row, "ecc").get("total_uncorrectable_count")))
    return Card(
        Seen(
            index=gpu,
            kind=known(str(asic.get("market_name") or _part(row, "board").get("product_name") or "")) or "",
            vendor="amd",
            uuid=unique_id(str(asic.get("asic_serial") or "")) or unique_id(str(row.get("hip_uuid") or "")),
            bus=bus_id(str(row.get("bdf") or row.get("gpu_bdf") or _part(row, "bus").get("bdf"))),
            total_mib=total or None,
            used_mib=_figure(used),
            processes=tuple(_smi_users(row.get("process_list"))),
            sickness=f"{errors} uncorrected ECC errors" if errors else "",
            ordinal=number(str(row.get("hip_id"))),
        ),
        gtt_mib=_figure(usage.get("total_gtt")),
        gfx=str(asic.get("target_graphics_version") or "").casefold(),
        compute=str(parts.get("compute_partition") or parts.get("accelerator_partition") or ""),
        node=number(str(row.get("node_id"))),
    )


def _smi_users(rows: Any) -> Iterable[User]:
    for row in rows if isinstance(rows, list) else []:
        info = row.get("process_info", row) if isinstance(row, Mapping) else None
        if isinstance(info, Mapping) and (pid := number(str(info.get("pid")))) is not None:
            held = _figure(_part(info, "memory_usage").get("vram_mem"))
            yield User(pid, known(str(info.get("name"))) or "", held)


def _part(row: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = row.get(key)
    return found if isinstance(found, Mapping) else {}


def _figure(value: Any) -> int | None:
    if isinstance(value, Mapping):
        return mib(str(value.get("value")), str(value.get("unit") or ""))
    return mib(str(value)) if value is not None else None
