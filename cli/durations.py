"""Durations as people type them: `90`, `90s`, `10m`, `1h30m`, `2d`, or the time at which they end: `18:00`."""

import re
from datetime import datetime, timedelta

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
    if (end_s := until(text, datetime.now().astimezone())) is not None:
        return end_s
    raise typer.BadParameter(f"{text!r} is no duration: write 90, 90s, 10m, 1h30m or 2d, or a time to come: 18:00")


def until(text: str, now: datetime) -> float | None:
    """Seconds from `now` to the next `18:00`, or to `2027-01-31T18:00`, by the clock here unless it names a zone; None
    for what is no time to come."""
    try:
        if re.fullmatch(r"\d{1,2}:\d{2}", text):
            hour, minute = map(int, text.split(":"))
            end = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
            end += timedelta(days=1) if end <= now else timedelta()
        else:
            given = datetime.fromisoformat(text)
            end = given if given.tzinfo is not None else given.replace(tzinfo=now.tzinfo)
    except ValueError:
        return None
    return (end - now).total_seconds() if end > now else None


def age(duration_s: float | None) -> str:
    """`42s`, `7m`, `3h`, `2d`: the largest unit that fits, rounded down. Nothing for None."""
    if duration_s is None:
        return ""
    whole = max(0.0, duration_s)
    for unit, length_s in _UNITS_S.items():
        if whole >= length_s:
            return f"{int(whole // length_s)}{unit}"
    return "0s"
