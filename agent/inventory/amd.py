"""What `rocm-smi` (JSON, CSV, table) and `amd-smi` (JSON) print, and what of it is a device to run on. Pure.

Three things are never believed: a carve-out of main memory as the size of a graphics unit, the whole card's memory as
that of each of its partitions, and a percentage as a figure.
Keys differ between ROCm versions (`Card series`, `Card Series`, `Device Name`), so they are compared without case.
"""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.inventory.seen import Seen, Sight, User, bus_id, first_lines, known, mib, number

CARVE_OUT_MIB = 2048
"""No card for this work has less; a graphics unit within a processor is given so much of main memory."""

# LLVM's AMDGPU processor names that are parts of processors: https://llvm.org/docs/AMDGPUUsage.html#processors
_IN_PROCESSORS = frozenset(
    {
        "gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036", "gfx1037", "gfx1103",
        "gfx1150", "gfx1151", "gfx1152", "gfx1153",
    }
)  # fmt: skip
_DISPLAY_ONLY = frozenset({"gfx1036", "gfx1037"})
"""Two compute units, to drive a screen."""
_DISPLAY_NAMES = re.compile(r"\b(Raphael|Granite Ridge)\b", re.IGNORECASE)

# Whole cards, in GiB, that can be partitioned: AMD's data sheets.
_WHOLE_GIB = {"MI300A": 128, "MI300X": 192, "MI308X": 192, "MI325X": 256, "MI350X": 288, "MI355X": 288}
_WHOLE_SHARE = 0.9

_TABLE_ROW = re.compile(r"^(?P<index>\d+)\s+(?:\[(?P<model>[^\]]*)\]|\S+)\s+.*%")
_PARTITIONS = re.compile(r"\b(NPS\d)\s*,\s*([A-Z]PX)\b")


@dataclass(frozen=True, slots=True)
class _Card:
    """What was read of a card, with what only the judging here needs."""

    seen: Seen
    gtt_mib: int | None = None
    gfx: str = ""
    compute: str = ""
    """Compute partitioning: SPX is a whole card, DPX, TPX, QPX, CPX are parts."""
    node: int | None = None
    """Its number in KFD's topology."""


def read(text: str) -> Sight:
    """Any of the outputs."""
    plain = text.strip()
    if plain.startswith(("{", "[")) or '"card0"' in plain:
        return _read_json(plain)
    if plain.casefold().startswith("device,"):
        return _judged([_from_row(_folded(row), place) for place, row in enumerate(csv.DictReader(plain.splitlines()))])
    if "%" in plain and "Perf" in plain:
        return _read_table(plain)
    return Sight(problem="rocm-smi: " + (first_lines(plain, 250) or "printed nothing"))


def document_in(text: str) -> Any:
    """The JSON in a tool's output, warnings before and behind it left out; None where there is none."""
    start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=0)
    try:
        return json.JSONDecoder().raw_decode(text[start:])[0]
    except ValueError:
        return None


def _read_json(text: str) -> Sight:
    document = document_in(text)
    if document is None:
        return Sight(problem="the AMD tool printed no JSON: " + first_lines(text, 200))
    if isinstance(document, Mapping) and not isinstance(document.get("gpu_data"), list):
        cards = [(key, value) for key, value in document.items() if re.fullmatch(r"card\d+", str(key))]
        rows = [_from_row({"device": key, **_folded(value)}, place) for place, (key, value) in enumerate(cards)]
        return _judged(_with_processes(rows, document.get("system")))
    return read_amd_smi([document])


# --- rocm-smi ------------------------------------------------------------------------------------------------------


def _from_row(row: Mapping[str, str], place: int) -> _Card:
    """One card of JSON or CSV; the keys are in lower case."""
    index = number(row.get("device", "").removeprefix("card"))
    names = (known(row.get(key)) for key in ("card series", "device name", "card model"))
    code = known(row.get("device id")) or known(row.get("gpu id")) or ""
    return _Card(
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


def _with_processes(cards: list[_Card], system: Any) -> list[_Card]:
    """`PID<n>: name, GPUs, VRAM, …`: on which card a process is, is told only where there is one."""
    if len(cards) != 1 or not isinstance(system, Mapping):
        return cards
    users = []
    for key, value in system.items():
        if match := re.fullmatch(r"PID(\d+)", str(key)):
            name, *figures = (part.strip() for part in str(value).split(","))
            users.append(User(int(match[1]), name, mib(figures[1], "B") if len(figures) > 1 else None))
    return [replace(cards[0], seen=replace(cards[0].seen, processes=tuple(users)))]


def _read_table(text: str) -> Sight:
    """The concise table: who is there; memory only in per cent, which is no figure."""
    cards: list[_Card] = []
    for line in text.splitlines():
        row = _TABLE_ROW.match(line)
        if row is not None:
            parts = _PARTITIONS.search(line)
            seen = Seen(int(row["index"]), f"AMD {(row['model'] or '').partition(':')[0].strip()}".strip(), "amd")
            cards.append(_Card(seen, compute=parts[2] if parts else ""))
        elif cards and line.startswith("        ") and (name := line.strip()) and "(" not in name:
            cards[-1] = replace(cards[-1], seen=replace(cards[-1].seen, kind=name))
    return _judged(cards)


# --- amd-smi -------------------------------------------------------------------------------------------------------


def read_amd_smi(documents: Iterable[Any]) -> Sight:
    """The JSON of `amd-smi list|static|metric|process`, any of them, merged by GPU number.

    Figures are `{value, unit}` or plain; https://rocm.docs.amd.com/projects/amdsmi/en/latest/how-to/amdsmi-cli-tool.html
    """
    merged: dict[int, dict[str, Any]] = {}
    for document in documents:
        rows = document.get("gpu_data", []) if isinstance(document, Mapping) else document
        for row in rows if isinstance(rows, list) else []:
            if isinstance(row, Mapping) and (gpu := number(str(row.get("gpu")))) is not None:
                merged.setdefault(gpu, {}).update(row)
    if not merged:
        return Sight(problem="amd-smi told no GPU")
    return _judged([_from_smi(gpu, row) for gpu, row in sorted(merged.items())])


def _from_smi(gpu: int, row: Mapping[str, Any]) -> _Card:
    asic, vram, usage, parts = (_part(row, key) for key in ("asic", "vram", "mem_usage", "partition"))
    total = _figure(usage.get("total_vram")) or _figure(vram.get("size"))
    errors = number(str(_part(row, "ecc").get("total_uncorrectable_count")))
    return _Card(
        Seen(
            index=gpu,
            kind=known(str(asic.get("market_name") or _part(row, "board").get("product_name") or "")) or "",
            vendor="amd",
            uuid=unique_id(str(asic.get("asic_serial") or row.get("hip_uuid") or "")),
            bus=bus_id(str(row.get("bdf") or _part(row, "bus").get("bdf"))),
            total_mib=total or None,
            used_mib=_figure(usage.get("used_vram")),
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


# --- what is a device ----------------------------------------------------------------------------------------------


def _judged(cards: list[_Card]) -> Sight:
    """Carve-outs and partitions told apart, and each device given the number that HIP counts it by."""
    discrete = any(not _is_carve_out(card) for card in cards)
    sharing = Counter(_board(card) for card in cards)
    seen = []
    for card in cards:
        device = card.seen
        if _is_carve_out(card):
            device = _carve_out(card, discrete=discrete)
        elif (parts := sharing[_board(card)]) > 1 and _board(card):
            device = replace(device, uuid="", total_mib=_share(device, parts))
        seen.append(device)
    return Sight(tuple(_numbered(cards, seen)))


def _carve_out(card: _Card, *, discrete: bool) -> Seen:
    """Unified memory of a size nobody tells; beside a real card, or without shared memory, no device at all."""
    device = replace(card.seen, total_mib=None, used_mib=None)
    if card.gfx in _DISPLAY_ONLY or _DISPLAY_NAMES.search(device.kind) or discrete or not card.gtt_mib:
        return replace(device, unfit=f"a graphics unit within a processor ({card.seen.total_mib} MiB of its own)")
    return device


def _is_carve_out(card: _Card) -> bool:
    own = card.seen.total_mib
    if own is None:
        return card.gfx in _IN_PROCESSORS
    if own < CARVE_OUT_MIB or card.gfx in _DISPLAY_ONLY:
        return True
    return card.gfx in _IN_PROCESSORS and (card.gtt_mib or 0) > own


def _share(device: Seen, parts: int) -> int | None:
    """A partition's part of a card whose memory each of its partitions claims for itself."""
    if device.total_mib is None:
        return None
    whole = next((gib * 1024 for name, gib in _WHOLE_GIB.items() if name in device.kind.upper()), None)
    told_apart = whole is not None and device.total_mib < whole * _WHOLE_SHARE
    return device.total_mib if told_apart else device.total_mib // parts


def _board(card: _Card) -> str:
    """What the partitions of one card have in common; empty for a card that is whole."""
    if card.compute.upper() in ("", "SPX", "N/A") and not card.seen.uuid:
        return ""
    return card.seen.uuid or card.seen.bus.rpartition(".")[0]


def _numbered(cards: list[_Card], seen: list[Seen]) -> Iterable[Seen]:
    """HIP counts what KFD lists, in the order of its nodes; where those are not told, in the tool's."""
    order = sorted(range(len(cards)), key=lambda n: (cards[n].node is None, cards[n].node or 0, cards[n].seen.index))
    for place, number_ in enumerate(order):
        device = seen[number_]
        yield device if device.ordinal is not None else replace(device, ordinal=place)


def unique_id(text: str | None) -> str:
    """`0xc2c8f14d225f681` as ROCm itself writes it: `GPU-0c2c8f14d225f681`. Empty where it is not known."""
    plain = (known(text) or "").casefold().removeprefix("gpu-").removeprefix("0x")
    return f"GPU-{int(plain, 16):016x}" if re.fullmatch(r"[0-9a-f]{1,16}", plain) and int(plain, 16) else ""


def _folded(row: Any) -> dict[str, str]:
    return (
        {str(key).casefold().strip(": "): str(value) for key, value in row.items()} if isinstance(row, Mapping) else {}
    )
