"""How devices are joined (`nvidia-smi topo -m`), and which MIG slices could still be made (`nvidia-smi mig -lgip`).

Shown to people who ask (`python -m agent.inventory FILE`); nothing is placed by it yet. Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_ANSI = re.compile(r"\x1b?\[\d*m")
_DEVICE = re.compile(r"GPU\d+|NIC\d+|mlx\w+")
_PROFILE = re.compile(r"^\|\s+(?P<gpu>\d+)\s+MIG (?P<name>\S+)\s+\d+\s+(?P<free>\d+)/(?P<total>\d+)\s+(?P<gib>[\d.]+)")


def read_links(text: str) -> dict[tuple[int, int], str]:
    """(GPU, GPU) -> link (`NV12`, `PHB`, `SYS`, …) of the first matrix in the text; each pair once, lower number first.

    Cells are counted from the left, from the row's name on: affinities stand on the right, and may be blank.
    """
    columns: list[str] = []
    links: dict[tuple[int, int], str] = {}
    for line in _ANSI.sub("", text).splitlines():
        cells = line.split()
        if not cells:
            if links:
                break
        elif (
            not columns and all(_DEVICE.fullmatch(cell) for cell in cells[:1]) and cells[0] == "GPU0" and _is_head(line)
        ):
            columns = [cell for cell in cells if _DEVICE.fullmatch(cell)]
        elif columns and (row := re.fullmatch(r"GPU(\d+)", cells[0])):
            links |= _row(int(row[1]), columns, cells[1:])
    return links


def _is_head(line: str) -> bool:
    """A header names columns only; a row has `X` for itself."""
    return "X" not in line.split()


def _row(gpu: int, columns: list[str], cells: list[str]) -> Mapping[tuple[int, int], str]:
    pairs = zip(columns, cells, strict=False)
    others = ((int(name[3:]), link) for name, link in pairs if name.startswith("GPU") and name[3:].isdigit())
    return {(gpu, other): link for other, link in others if other > gpu}


@dataclass(frozen=True)
class SliceProfile:
    """A kind of MIG slice a card offers, how many of it could be made now, and how many at most."""

    gpu: int
    name: str
    free: int
    total: int
    memory_mib: int


def read_slice_profiles(text: str) -> tuple[SliceProfile, ...]:
    """The table of `mig -lgip`."""
    rows = (match for line in text.splitlines() if (match := _PROFILE.match(line)))
    return tuple(
        SliceProfile(int(m["gpu"]), m["name"], int(m["free"]), int(m["total"]), int(float(m["gib"]) * 1024))
        for m in rows
    )
