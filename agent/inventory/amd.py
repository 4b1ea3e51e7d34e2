"""What `rocm-smi` or `amd-smi` printed, in whatever form and with whatever warnings around it. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from agent.inventory import amd_smi, amd_tables, rocm_smi
from agent.inventory.amd_smi import read_amd_smi
from agent.inventory.seen import Sight, first_lines

__all__ = ["document_in", "read", "read_amd_smi"]

_MOST_BEGINNINGS = 200


def read(text: str) -> Sight:
    """Any of the outputs."""
    plain = text.strip()
    if (document := document_in(plain)) is not None:
        return _read_json(document)
    if _begins_json(plain):
        return Sight(problem="the AMD tool printed no JSON: " + first_lines(plain, 200))
    if any(line.casefold().startswith("device,") for line in plain.splitlines()):
        return rocm_smi.read_csv(plain)
    if amd_smi.is_csv(plain):
        return amd_smi.read_csv(plain)
    if amd_smi.is_text(plain):
        return amd_smi.read_text(plain)
    if amd_tables.is_table(plain):
        return amd_tables.read_table(plain)
    if amd_tables.is_monitor(plain):
        return amd_tables.read_monitor(plain)
    if rocm_smi.has_lines(plain):
        return rocm_smi.read_lines(plain)
    if "%" in plain and "Perf" in plain:
        return rocm_smi.read_table(plain)
    return Sight(problem="rocm-smi: " + (first_lines(plain, 250) or "printed nothing"))


def document_in(text: str) -> Any:
    """The first JSON object or list of objects in a tool's output, warnings before and behind it left out."""
    decoder = json.JSONDecoder()
    beginnings = (at for at, char in enumerate(text) if char in "{[")
    for _, at in zip(range(_MOST_BEGINNINGS), beginnings, strict=False):
        try:
            found = decoder.raw_decode(text, at)[0]
        except (ValueError, RecursionError):
            if _stands_alone(text, at):
                return None  # the document itself, cut or broken: what is whole within it would be a part
            continue
        if found and (isinstance(found, dict) or (isinstance(found, list) and isinstance(found[0], dict))):
            return found
        if _stands_alone(text, at):
            return found
    return None


def _begins_json(text: str) -> bool:
    return any(_stands_alone(text, at) for at, char in enumerate(text) if char in "{[")


def _stands_alone(text: str, at: int) -> bool:
    """Whether a bracket begins a line and a document: a warning's `[WARN]` and a prompt do not."""
    before = text[text.rfind("\n", 0, at) + 1 : at]
    return not before.strip() and text[at + 1 : at + 2] in ("", "\n", "\r", " ", '"', "{", "}", "]")


def _read_json(document: Any) -> Sight:
    if isinstance(document, Mapping) and not isinstance(document.get("gpu_data"), list):
        return rocm_smi.read_json(document)
    return read_amd_smi([document])
