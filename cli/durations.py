"""Durations as people type them: `90`, `90s`, `10m`, `1h30m`, `2d`. Seconds without a unit."""

import re

import typer

_UNITS_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_PARTS = re.compile(r"(\d+(?:\.\d+)?)([dhms])")
METAVAR = "DURATION"


def seconds(text: str | float) -> float:
    """Seconds. A usage error says how to write it."""
    if isinstance(text, int | float):  # a default
        return float(text)
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if re.fullmatch(f"(?:{_PARTS.pattern})+", text):
        return sum(float(number) * _UNITS_S[unit] for number, unit in _PARTS.findall(text))
    raise typer.BadParameter(f"{text!r} is no duration: write 90, 90s, 10m, 1h30m or 2d")


def age(duration_s: float | None) -> str:
    """`42s`, `7m`, `3h`, `2d`: the largest unit that fits, rounded down. Nothing for None."""
    if duration_s is None:
        return ""
    whole = max(0.0, duration_s)
    for unit, length_s in _UNITS_S.items():
        if whole >= length_s:
            return f"{int(whole // length_s)}{unit}"
    return "0s"
