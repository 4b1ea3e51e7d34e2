"""Which device is of the kind that is asked for."""

import re
from functools import lru_cache


@lru_cache(maxsize=4096)
def is_kind(asked: str | None, reported: str, count: int = 1) -> bool:
    """Every word of the asked kind is one of the reported: `h100` is an `NVIDIA H100 80GB HBM3`, not an `H10`.

    A slice of a device (MIG) is a device of its own kind: who asks for the whole one by its name does not get it, and
    slices do not work together, so that one is never part of several.
    """
    if "mig" in _words(reported) and (count > 1 or (asked is not None and "mig" not in _words(asked))):
        return False
    return asked is None or _words(asked) <= _words(reported)


@lru_cache(maxsize=1024)
def _words(kind: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W_]+", kind.casefold()))
