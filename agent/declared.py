"""Devices that the operator declares, for machines without a tool that lists them (and for trying things out).

`4xh100:80GiB` (count x kind : memory; several with commas), a YAML or JSON list of {kind, memory_mib, count, id,
index, vendor}, or the path of a file with such a list, or with what a detector found (`agent.inventory.detector`).
Pure but for reading that file.
"""

import re
import uuid
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from agent.inventory import detector
from agent.inventory.seen import Seen
from llmgw.ids import DeviceId
from llmgw.misfit import misfits
from llmgw.wire import Device

_COMPACT = re.compile(r"(?:(?P<count>\d+)x)?(?P<kind>[^:,]+?)(?::(?P<memory>\d+)\s*(?P<unit>[a-zA-Z]*))?")
_UNIT_MIB = {"": 1, "m": 1, "mib": 1, "mb": 1, "g": 1024, "gib": 1024, "gb": 1024}
_NAMESPACE = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")  # RFC 4122's for object ids
MAX_DECLARED = 1024


class Declared(BaseModel):
    """`count` alike devices. `memory_mib` None = unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str = Field(min_length=1)
    memory_mib: int | None = Field(default=None, gt=0)
    count: int = Field(default=1, ge=1, le=MAX_DECLARED)
    id: str | None = None
    index: int | None = Field(default=None, ge=0)
    """The number its engines know it by; None: its place among the declared."""
    vendor: str = "declared"

    @model_validator(mode="after")
    def _one_id_is_one_device(self) -> "Declared":
        if (self.id is not None or self.index is not None) and self.count > 1:
            raise ValueError("an id or index names one device: leave out count, or these")
        return self


def parse_declared(text: str) -> tuple[Declared, ...]:
    """The declared devices. Raises ValueError with a text that says what is wrong and how to mend it."""
    text = text.strip()
    if text.startswith("["):
        return _from_list(text, "the list")
    if "/" in text or text.endswith((".yaml", ".yml", ".json")):
        try:
            return _from_list(Path(text).read_text(), text)
        except OSError as error:
            raise ValueError(f"cannot read {text}: {error.strerror}") from error
    return tuple(_from_compact(part.strip()) for part in text.split(",") if part.strip())


def parse_devices(text: str) -> tuple[Declared, ...] | None:
    """As `parse_declared`; `auto`: ask the machine, `none`: it has no devices, whatever the bus shows."""
    word = text.strip().casefold()
    return None if word == "auto" else () if word == "none" else parse_declared(text)


def parse_sizes(text: str) -> dict[str, int]:
    """`NAME=SIZE,…` -> MiB by name. Raises ValueError with a text that says how to mend it."""
    sizes: dict[str, int] = {}
    for part in (part.strip() for part in text.split(",")):
        name, _, size = part.rpartition("=")
        match = re.fullmatch(r"(\d+)\s*([a-zA-Z]*)", size.strip())
        if part and (match is None or not name or match[2].lower() not in _UNIT_MIB or not int(match[1])):
            raise ValueError(f"{part!r} is not NAME=SIZE, such as NVIDIA GB10=110GiB")
        if part and match is not None:
            sizes[name.strip()] = int(match[1]) * _UNIT_MIB[match[2].lower()]
    return sizes


def declared_devices(declared: tuple[Declared, ...], machine_id: str, node: str) -> tuple[Device, ...]:
    """The devices, each with an identity that is the same at every start and differs between nodes."""
    each = [item for item in declared for _ in range(item.count)]
    return tuple(
        Device(
            id=DeviceId(item.id or f"DEV-{uuid.uuid5(_NAMESPACE, f'{machine_id}/{node}/{index}')}"),
            index=index if item.index is None else item.index,
            kind=item.kind,
            vendor=item.vendor,
            memory_mib=item.memory_mib,
        )
        for index, item in enumerate(each)
    )


def _from_compact(part: str) -> Declared:
    match = _COMPACT.fullmatch(part)
    unit = (match["unit"] or "").lower() if match else ""
    if match is None or unit not in _UNIT_MIB:
        raise ValueError(f"{part!r} is not COUNTxKIND:MEMORY, such as 4xh100:80GiB or 2xcpu")
    memory = int(match["memory"]) * _UNIT_MIB[unit] if match["memory"] else None
    try:
        return Declared(kind=match["kind"].strip(), memory_mib=memory, count=int(match["count"] or 1))
    except ValidationError as error:
        raise ValueError(f"{part!r}: {_told(error)}") from error


def _from_list(text: str, where: str) -> tuple[Declared, ...]:
    import yaml  # costs 30 ms that most starts need not pay

    try:
        document = yaml.safe_load(text)
        if (detected := detector.read(document)) is not None:
            return tuple(_from_detected(detected))
        return TypeAdapter(tuple[Declared, ...]).validate_python(document)
    except yaml.YAMLError as error:
        raise ValueError(f"{where} is neither YAML nor JSON: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        raise ValueError(f"{where}: {_told(error)}") from error


def _from_detected(seen: Iterable[Seen]) -> Iterable[Declared]:
    """As detected; an id that two devices share names neither."""
    devices = tuple(seen)
    times = Counter(device.uuid for device in devices)
    for device in devices:
        unique = device.uuid if device.uuid and times[device.uuid] == 1 else None
        kind = device.kind or device.vendor
        yield Declared(kind=kind, memory_mib=device.total_mib, id=unique, index=device.index, vendor=device.vendor)


def _told(error: ValidationError) -> str:
    return misfits(error, document="it")
