"""Devices and shares of devices by the names that resources have in Kubernetes: whole ones, slices, and parts of their
memory that a device plugin gives out. Rules are rows of `RESOURCES`; the first that applies counts.

Sources: NVIDIA's device plugin (`nvidia.com/gpu`, `.shared`, `mig-…`), HAMi (`nvidia.com/gpumem` in MiB of each device,
`gpumem-percentage`, `gpucores`), Volcano (`volcano.sh/vgpu-…`, MiB), Aliyun (`aliyun.com/gpu-mem`, GiB of one device).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from llmgw.importing.account import Part
from llmgw.importing.draft import Devices
from llmgw.importing.quantities import memory_size, whole_number
from llmgw.memory import format_mib, parse_mib
from llmgw.problems import Path

NO_CORES = "a share of a device's cores cannot be asked for: memory is what is shared"
UNKNOWN_SHARE = "a share of a device, of which the file does not say how large it is: whole devices; write `claim`"
NO_SUCH_DEVICE = "it names a resource of Kubernetes: give the kind of device in `accelerators`"
NO_NUMBER = "no number of devices that could be meant"
NO_SLICES = "slices of a device (MIG) do not work together: one is asked for"
NOT_HELD = "nothing holds an engine to what it claims: give it the same figure in its arguments"
ANY_VENDOR = "devices are asked for by kind, not by vendor"
MOST_DEVICES = 1024


@dataclass(frozen=True, slots=True)
class Asked:
    """What a file asks of devices. None: it does not say. `part`: of each device's memory; `mib`: so much of each."""

    count: int | None = None
    kind: str | None = None
    part: float | None = None
    mib: int | None = None
    at: Path = ()
    """Where a share is asked for."""

    @property
    def is_slice(self) -> bool:
        return self.kind is not None and self.kind.startswith("mig ")


def shared(devices: Devices | None, asked: Asked) -> Devices | None:
    """`devices` with the kind and the share that were asked for; a claim follows once the engine is known."""
    if devices is None:
        return None
    count = 1 if asked.is_slice else devices.count
    return replace(devices, count=count, kind=asked.kind or devices.kind, part=asked.part, mib=asked.mib, at=asked.at)


def slice_named(resource: str) -> str | None:
    """`nvidia.com/mig-1g.10gb.me` → `mig 1g.10gb me`, the words by which nodes report such a slice."""
    matched = re.fullmatch(r"nvidia\.com/mig-((?:\d+c\.)?\d+g\.\d+gb)([.+-][a-z.+-]+)?", resource)
    return None if matched is None else " ".join(["mig", matched[1], *re.findall("[a-z]+", matched[2] or "")])


# --- resources of a container --------------------------------------------------------------------------------------

_OF_THE_HOST: Mapping[str, str] = {
    "cpu": "main memory is reserved, CPUs are not",
    "memory": "main memory is reserved (`host_memory`), not limited",
    "ephemeral-storage": "disk is what the node has",
}


def resources(block: Part) -> tuple[Asked, str | None]:
    """Devices, and main memory as the catalog writes it, of a `resources` block. Of devices what is limited counts,
    else what is requested; of main memory what is requested."""
    asked, memory = Asked(), None
    limits, requests = block.part("limits"), block.part("requests")
    for item in (*limits.items(), *requests.items()):
        if item.key == "memory" and item.at[-2] == "requests":
            memory = _host_memory(item)
        elif item.key in _OF_THE_HOST:
            item.lose_all(_OF_THE_HOST[item.key])
        elif item.at[-2] == "requests" and limits.has(item.key):
            item.account.change(item.at, "the limit counts")
        else:
            asked = quantity(item.key, item, asked)
    return asked, memory


def _host_memory(item: Part) -> str | None:
    text = item.as_text()
    size = None if text is None else memory_size(text)
    if size is None:
        item.lose_all("no size of memory")
    return size


def quantity(resource: str, part: Part, asked: Asked) -> Asked:
    """`asked` with what `part` says of a resource."""
    take_of = next((take_of for name, take_of in RESOURCES if re.fullmatch(name, resource)), None)
    if take_of is not None:
        return take_of(resource)(part, asked)
    part.lose_all(NO_SUCH_DEVICE)
    return asked


def is_known(resource: str) -> bool:
    return any(re.fullmatch(name, resource) for name, _ in RESOURCES)


def number_of(part: Part) -> float | None:
    """A number, or a text that holds one."""
    value = whole_number(part.raw) if isinstance(part.raw, str) else part.raw
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MOST:
        part.lose_all(NO_NUMBER)
        return None
    part.account.carry(part.at)
    return value


_MOST = 1e9


def devices_each(part: Part, asked: Asked) -> Asked:
    """Whole devices from 1 on, a part of one below 1; 0 is none."""
    number = number_of(part)
    if number is None:
        return asked
    if number == int(number):
        return replace(asked, count=min(int(number), MOST_DEVICES))
    if number < 1:
        return replace(asked, count=1, part=number, at=part.at)
    part.lose_all(NO_NUMBER)
    return asked


def _of_a_vendor(resource: str) -> "_Take":
    def take(part: Part, asked: Asked) -> Asked:
        part.account.change(part.at, ANY_VENDOR, resource)
        return devices_each(part, asked)

    return take


def _slices(resource: str) -> "_Take":
    def take(part: Part, asked: Asked) -> Asked:
        number, kind = number_of(part), slice_named(resource)
        if kind is None:
            part.lose_all(NO_SUCH_DEVICE)
            return asked
        if number is not None and number > 1:
            part.lose_all(NO_SLICES)
        return replace(asked, count=None if number is None else min(int(number), 1), kind=kind)

    return take


def _time_sliced(part: Part, asked: Asked) -> Asked:
    asked = devices_each(part, asked)
    part.lose_all(UNKNOWN_SHARE)
    return asked


def _mib_each(unit: int) -> "_Take":
    def take(part: Part, asked: Asked) -> Asked:
        number = number_of(part)
        return replace(asked, mib=int(number * unit), at=part.at) if number else asked

    return take


def _percent_each(part: Part, asked: Asked) -> Asked:
    number = number_of(part)
    return replace(asked, part=number / 100, at=part.at) if number and number < 100 else asked


def _cores(part: Part, asked: Asked) -> Asked:
    part.lose_all(NO_CORES)
    return asked


_Take = Callable[[Part, Asked], Asked]

RESOURCES: Sequence[tuple[str, Callable[[str], _Take]]] = (
    (r"nvidia\.com/gpu", lambda _: devices_each),
    (r"nvidia\.com/mig-.+", _slices),
    (r"nvidia\.com/.+\.shared", lambda _: _time_sliced),
    (r"nvidia\.com/gpumem|volcano\.sh/vgpu-memory", lambda _: _mib_each(1)),
    (r"aliyun\.com/gpu-mem", lambda _: _mib_each(1024)),
    (r"nvidia\.com/gpumem-percentage|volcano\.sh/vgpu-memory-percentage", lambda _: _percent_each),
    (r"nvidia\.com/gpucores|volcano\.sh/vgpu-cores", lambda _: _cores),
    (r"volcano\.sh/vgpu-number", lambda _: devices_each),
    (r"(amd\.com|gpu\.intel\.com|habana\.ai|huawei\.com|google\.com|aws\.amazon\.com)/[\w.-]+", _of_a_vendor),
)
"""Names of resources, as patterns, and what each says of its quantity."""


# --- claims --------------------------------------------------------------------------------------------------------

MEMORY_OF: Mapping[str, str] = {
    "t4": "16GB", "p4": "8GB", "l4": "24GB", "l40": "48GB", "l40s": "48GB", "a2": "16GB", "a10": "24GB", "a10g": "24GB",
    "a30": "24GB", "a40": "48GB", "h200": "141GB", "rtx4090": "24GB", "rtx3090": "24GB", "mi300x": "192GB",
    "mi325x": "256GB",
}  # fmt: skip
"""Kinds of which there is one size alone, by their makers' data sheets. An A100 or a V100 is not among them."""


def memory_of(devices: Devices) -> str | None:
    """The memory of each device: as the file says, else as there is of that kind."""
    words = re.findall("[a-z0-9]+", (devices.kind or "").casefold())
    known = {MEMORY_OF[word] for word in words if word in MEMORY_OF}
    return devices.memory or (known.pop() if len(known) == 1 else None)


def claim_of(share: float, memory: str) -> str:
    """A share of a size of memory, as the catalog writes it."""
    return f"{max(1, round(share * parse_mib(memory)))}MiB"


def claimed(devices: Devices, taken: float | None) -> tuple[str, str] | None:
    """A claim, and in words what it is; None where it cannot be said how much memory the share is. `taken`: the share
    of each device that the engine's own arguments leave to it, where the file asks for none."""
    memory, part = memory_of(devices), devices.part if taken is None else taken
    if devices.mib is not None:
        fits = memory is None or devices.mib <= parse_mib(memory)
        return (format_mib(devices.mib), "of each device") if fits else None
    if part is None or memory is None:
        return None
    return claim_of(part, memory), f"{part:.0%} of the {memory} that each device has"
