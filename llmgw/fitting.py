"""Which devices meet what a profile asks: kind, memory and number, of equals the smallest and then the lowest index."""

import re
from collections.abc import Sequence
from functools import lru_cache

from llmgw.catalog import Accelerators
from llmgw.wire import Device


def pick(asked: Sequence[Accelerators], free: Sequence[Device]) -> list[Device] | None:
    """Devices for all entries, the most demanding first; of those that do, the smallest, then the lowest index."""
    if sum(entry.count for entry in asked) > len(free):
        return None
    left = sorted(free, key=lambda d: (d.memory_mib or 0, d.index, d.id))
    taken: list[Device] = []
    for entry in sorted(asked, key=lambda e: (-(e.memory_mib or 0), e.kind is None, e.kind or "", -e.count)):
        fitting = [d for d in left if fits(entry, d)][: entry.count]
        if len(fitting) < entry.count:
            return None
        taken += fitting
        left = [d for d in left if d not in fitting]
    return sorted(taken, key=lambda d: (d.index, d.id))


def fits(entry: Accelerators, device: Device) -> bool:
    """Kind and memory. Unknown memory is neither zero nor infinite: it meets no demand for a size."""
    if entry.memory_mib is not None and (device.memory_mib is None or device.memory_mib < entry.memory_mib):
        return False
    return is_kind(entry.kind, device.kind, entry.count)


@lru_cache(maxsize=4096)
def is_kind(asked: str | None, reported: str, count: int = 1) -> bool:
    """Every word of the asked kind is one of the reported: `h100` is an `NVIDIA H100 80GB HBM3`, not an `H10`.

    A slice of a device (MIG) is a device of its own sort: who asks for the whole one by its name does not get it, and
    several do not work together, so that it is never one of many.
    """
    if "mig" in _words(reported) and (count > 1 or (asked is not None and "mig" not in _words(asked))):
        return False
    return asked is None or _words(asked) <= _words(reported)


@lru_cache(maxsize=1024)
def _words(kind: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W_]+", kind.casefold()))
