"""Lists that other detectors make (GPUStack's runtime and workers, JSON): an operator may declare devices by one.

Figures are taken as told, since a file that is named as a declaration is the operator's word. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from agent.inventory.seen import Seen

_MIB = 1024 * 1024
_VENDORS = {"cuda": "nvidia", "rocm": "amd", "cann": "ascend", "mps": "apple", "xpu": "intel"}
"""By the name of the toolkit, which stands for the vendor where that is missing."""


def read(document: Any) -> tuple[Seen, ...] | None:
    """The devices of a detector's output or of a worker's record; None when the document is neither."""
    if isinstance(document, list) and document and all(_is_detected(row) for row in document):
        return tuple(device for row in document for device in _detected(row))
    status = document.get("status") if isinstance(document, Mapping) else None
    if isinstance(status, Mapping):
        return tuple(_of_worker(row, place) for place, row in enumerate(status.get("gpu_devices") or ()))
    return None


def _is_detected(row: Any) -> bool:
    return isinstance(row, Mapping) and "manufacturer" in row and "index" in row


def _detected(row: Mapping[str, Any]) -> Iterable[Seen]:
    """A card; or its slices, where it is cut into some: their numbers go on where the card's own would be."""
    slices = (row.get("appendix") or {}).get("mig_devices") or ()
    if slices:
        for part in slices:
            yield from _detected({**part, "manufacturer": row["manufacturer"], "appendix": {}})
        return
    status = str(row.get("memory_status") or "healthy")
    yield Seen(
        index=int(row["index"]),
        kind=str(row.get("name") or "").strip(),
        vendor=str(row["manufacturer"]).casefold(),
        uuid=str(row.get("uuid") or "").strip(),
        total_mib=row.get("memory") or None,
        used_mib=row.get("memory_used"),
        sickness="" if status == "healthy" else f"memory {status}",
    )


def _of_worker(row: Mapping[str, Any], place: int) -> Seen:
    memory = row.get("memory") or {}
    total, used = memory.get("total"), memory.get("used")
    return Seen(
        index=int(row.get("index", place)),
        kind=str(row.get("name") or "").strip(),
        vendor=_VENDORS.get(str(row.get("type")), str(row.get("vendor") or "unknown").casefold()),
        uuid=str(row.get("uuid") or "").strip(),
        total_mib=int(total) // _MIB if total else None,
        used_mib=int(used) // _MIB if used is not None else None,
    )
