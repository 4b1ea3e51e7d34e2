"""What a tool said about devices, whichever tool it was, and how its words become figures. Pure; it judges nothing.

Unknown is neither zero nor infinite: `[N/A]` in all its spellings, an empty cell and a missing element are None.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

_UNKNOWN = frozenset(
    {
        "",
        "-",
        "n/a",
        "na",
        "none",
        "null",
        "unknown",
        "not supported",
        "not available",
        "not found",
        "function not found",
        "insufficient permissions",
        "requested functionality has been deprecated",
    }
)
_FAULTS = frozenset({"unknown error", "gpu is lost", "err!", "error", "gpu requires reset"})
"""Words in a figure's place that tell of a device out of order; the figure is unknown all the same."""

_QUANTITY = re.compile(r"(?P<number>[0-9]{1,18}(?:\.(?P<rest>[0-9]{1,9}))?)\s*(?P<unit>[a-z]*)", re.IGNORECASE)
# NVIDIA, AMD and Huawei write MB and GB and mean powers of two.
_IN_MIB = {"b": 1 / 1024**2, "bytes": 1 / 1024**2, "kb": 1 / 1024, "kib": 1 / 1024, "mb": 1.0, "mib": 1.0}
_IN_MIB |= {"": 1.0, "m": 1.0, "gb": 1024.0, "gib": 1024.0, "g": 1024.0, "tb": 1024.0**2, "tib": 1024.0**2}
_THOUSANDS = 3
ZEROS = re.compile(r"(?:GPU|MIG)-[0-]{8,}")
"""The UUID of a device that has none."""

MOST_MIB = 4 * 1024**2
"""No device has more; a greater figure is one of another kind (a counter's "not available", bytes for MiB)."""


@dataclass(frozen=True, slots=True)
class User:
    """A process on a device. `mib` None: the tool does not tell how much it holds."""

    pid: int
    name: str = ""
    mib: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """One device as a tool tells it. Memory in MiB, None = unknown."""

    index: int
    """As the tool counts it."""
    kind: str = ""
    vendor: str = "unknown"
    uuid: str = ""
    """Unlike any other device's in the world; empty when the tool tells none."""
    bus: str = ""
    """PCI bus id, normalised by `bus_id`; empty when the tool tells none."""
    total_mib: int | None = None
    used_mib: int | None = None
    """Held now, by whomever; without what the driver reserves."""
    reserved_mib: int = 0
    processes: tuple[User, ...] = ()
    sickness: str = ""
    """What is wrong with it; empty = nothing."""
    unfit: str = ""
    """Why it is no device to run on at all (the parent of slices, a carve-out); empty = it is one."""
    ordinal: int | None = None
    """The number engines know it by, where that is not `index`."""


@dataclass(frozen=True, slots=True)
class Sight:
    """One look at the devices of one vendor. `problem`: the tool failed, so absence means nothing."""

    devices: tuple[Seen, ...] = field(default=())
    problem: str = ""


def known(text: str | None) -> str | None:
    """The text without brackets and blanks; None for every way to say that it is not known."""
    if text is None:
        return None
    plain = bare(text)
    return None if plain.casefold() in _UNKNOWN | _FAULTS else plain


def fault(text: str | None) -> str:
    """The words, if they tell of a device out of order."""
    plain = bare(text or "")
    return plain if plain.casefold() in _FAULTS else ""


def bare(text: str) -> str:
    plain = text.strip()
    return plain[1:-1].strip() if plain[:1] == "[" and plain[-1:] == "]" else plain


def mib(text: str | None, unit: str = "") -> int | None:
    """`81559 MiB`, `17163091968` (with unit `B`), `3386MB` in whole MiB; None where it is not known.

    `81.559 MiB` and `81,559 MiB` are not known: some languages write thousands so.
    """
    plain = known(text)
    match = _QUANTITY.fullmatch(plain) if plain is not None else None
    if match is None:
        return None
    scale = _IN_MIB.get((match["unit"] or unit).casefold())
    if scale is None or (scale <= 1 and len(match["rest"] or "") == _THOUSANDS):
        return None
    return int(float(match["number"]) * scale)


def number(text: str | None) -> int | None:
    """A whole number at the beginning of a text (`0`, `12 banks`); None where it is not known."""
    plain = known(text)
    match = re.match(r"-?[0-9]{1,18}(?![0-9])", plain) if plain is not None else None
    return int(match[0]) if match else None


def bus_id(text: str | None) -> str:
    """`00000000:5D:00.0`, `0000:5D:00.0` and `5D:00.0` are one place: `0000:5d:00.0`. Empty where there is none."""
    match = re.fullmatch(
        r"(?:([0-9a-f]+):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-9a-f])", (known(text) or "").casefold()
    )
    if match is None:
        return ""
    domain, bus, slot, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(slot, 16):02x}.{function}"


def first_lines(text: str, most: int = 300) -> str:
    """An error text on one line, cut."""
    return " ".join(text.split())[:most]


def sober(sight: Sight) -> Sight:
    """What was read, without figures that cannot be, and with each device once (a tool may print itself anew)."""
    devices: dict[object, Seen] = {}
    for place, device in enumerate(sight.devices):
        devices[_name(device) or place] = _sober(device)
    return replace(sight, devices=tuple(devices.values()))


def _name(device: Seen) -> tuple[object, ...] | None:
    """What no other device of the same look is called; None where nothing tells: slices share their card's place."""
    if device.uuid and not ZEROS.fullmatch(device.uuid):
        return device.vendor, device.index, device.uuid
    if device.bus and not device.kind.startswith("MIG"):
        return device.vendor, device.index, device.bus, device.kind
    return None


def _sober(device: Seen) -> Seen:
    total, used = device.total_mib, device.used_mib
    users = tuple(replace(user, mib=_below(user.mib, total)) for user in device.processes)
    device = replace(device, processes=users, reserved_mib=_below(device.reserved_mib, total) or 0)
    if total is not None and total > MOST_MIB:
        return replace(
            device, total_mib=None, used_mib=None, sickness=device.sickness or f"memory: told as {total} MiB"
        )
    if used is not None and used > (MOST_MIB if total is None else total):
        told = f"memory: told as {used} MiB in use of {total if total is not None else 'unknown'}"
        return replace(device, total_mib=None, used_mib=None, sickness=device.sickness or told)
    return device


def _below(mib: int | None, most: int | None) -> int | None:
    return None if mib is None or mib > min(MOST_MIB, most or MOST_MIB) else mib


def breaks_off(text: str) -> str:
    """That a table drawn with bars was cut, since no border ends it; empty when it is whole."""
    drawn = [line.strip() for line in text.splitlines() if line.lstrip().startswith(("|", "+"))]
    if not drawn or drawn[-1][0] == drawn[-1][-1] == "+":
        return ""
    return f"the table breaks off at {' '.join(drawn[-1].split())[:60]!r}"


def joined(sights: Iterable[Sight]) -> Sight:
    """All devices and all problems."""
    every = tuple(sights)
    devices = tuple(device for sight in every for device in sight.devices)
    return Sight(devices, "; ".join(sight.problem for sight in every if sight.problem)[:300])
