"""Sizes of memory as people write them, in MiB. It never guesses a unit and never takes a bare `G` or `g`.

Drivers report a little less than the binary size of a card (an H100 80GB: 81,559 MiB, less than 80 GiB), so the
number on the box belongs to the decimal unit: `80GB` fits such a card, `80GiB` does not.
"""

import re
from fractions import Fraction

MAX_MIB = 1 << 30
"""One PiB. Above it, it is a mistake in the unit."""

_MIB = 1 << 20
_UNITS = {
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_SIZE = re.compile(r"(?P<number>[0-9]{1,12}(?:\.[0-9]{1,6})?) ?(?P<unit>[A-Za-z]+)")

HOW = "write a whole number of MiB, or a text such as 80GB, 24GiB, 1.5TiB (units: MB, GB, TB, MiB, GiB, TiB)"


def parse_mib(value: object) -> int:
    """`value` (an int of MiB, or text with a unit) in MiB, rounded up. Raises ValueError saying what is wrong."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("must be a size of memory: a whole number or a text")  # noqa: TRY004 - pydantic reports only ValueErrors
    mib = value if isinstance(value, int) else _parse_text(value)
    if not 0 < mib <= MAX_MIB:
        raise ValueError("this is no possible size of memory: it must be above zero and at most 1024 TiB")
    return mib


def format_mib(mib: int) -> str:
    """The shortest exact text: `24GiB`, or `81559MiB`."""
    for unit, size in (("TiB", 1 << 20), ("GiB", 1 << 10)):
        if mib and mib % size == 0:
            return f"{mib // size}{unit}"
    return f"{mib}MiB"


def _parse_text(text: str) -> int:
    matched = _SIZE.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text[:40]!r} is no size of memory")
    size = _UNITS.get(matched["unit"])
    if size is None:
        raise ValueError(f"{text[:40]!r} has the unknown unit {matched['unit']!r}")
    whole_bytes = Fraction(matched["number"]) * size
    return -int(-whole_bytes // _MIB)
