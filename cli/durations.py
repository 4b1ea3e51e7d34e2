"""Durations as people type them: `90`, `90s`, `10m`, `1h30m`, `2d`, seconds without a unit; or a time of the clock
here, which is turned into the seconds until then, since only durations travel."""

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
    if (left_s := seconds_until(text, datetime.now().astimezone())) is not None:
        return left_s
    raise typer.BadParameter(f"{text!r} is no duration: write 90, 90s, 10m, 1h30m or 2d, or a time such as 18:00")


def seconds_until(text: str, now: datetime) -> float | None:
    """Seconds from `now` (with its zone) to a time: `18:00` is the next one, `2030-05-01T18:00` that one. None where it
    is no time; a usage error where it is over."""
    if re.fullmatch(r"\d{1,2}:\d{2}", text):
        hour, minute = map(int, text.split(":"))
        if hour > 23 or minute > 59:
            return None
        at = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
        return ((at if at > now else at + timedelta(days=1)) - now).total_seconds()
    if not re.match(r"\d{4}-\d{2}-\d{2}", text):
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    left_s = ((at if at.tzinfo is not None else at.replace(tzinfo=now.tzinfo)) - now).total_seconds()
    if left_s <= 0:
        raise typer.BadParameter(f"{text} is over")
    return left_s


def age(duration_s: float | None) -> str:
    """`42s`, `7m`, `3h`, `2d`: the largest unit that fits, rounded down. Nothing for None."""
    if duration_s is None:
        return ""
    whole = max(0.0, duration_s)
    for unit, length_s in _UNITS_S.items():
        if whole >= length_s:
            return f"{int(whole // length_s)}{unit}"
    return "0s"
