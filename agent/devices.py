"""The node's devices: as NVML lists them, as the operator declared them, or none.

A device it cannot read is unknown or bad, never absent: a failing tool makes the inventory incomplete. It assigns
nothing, and never counts our own engines as foreign.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from agent.declared import Declared, declared_devices
from agent.proc import host_memory_mib
from llmgw.ids import DeviceId
from llmgw.wire import Device, DeviceHealth, Inventory

FOREIGN_STEP_MIB = 256
"""Foreign memory is told in steps: a process that breathes makes no news."""

_MIB = 1024 * 1024
_MAX_NAMED = 8

IsOurs = Callable[[int], bool]
"""Whether a pid belongs to a replica of this agent."""


class DeviceSource(Protocol):
    @property
    def changes(self) -> bool:
        """Whether reading again can tell something new."""
        ...

    def read(self, is_ours: IsOurs) -> Inventory:
        """The devices now. Blocking; never raises."""
        ...


@dataclass(frozen=True)
class DeclaredSource:
    """What the operator says there is; nothing declared is a machine without devices."""

    declared: tuple[Declared, ...]
    machine_id: str
    node: str
    changes: bool = False

    def read(self, is_ours: IsOurs) -> Inventory:  # noqa: ARG002 - the protocol's
        devices = declared_devices(self.declared, self.machine_id, self.node)
        return Inventory(devices=devices, host_memory_mib=host_memory_mib())


class NvmlSource:
    """NVIDIA devices. `nvml` is the module `pynvml`, initialised: https://docs.nvidia.com/deploy/nvml-api/"""

    changes = True

    def __init__(self, nvml: Any) -> None:  # the module has no types
        self._nvml = nvml

    def read(self, is_ours: IsOurs) -> Inventory:
        host = host_memory_mib()
        try:
            count = int(self._nvml.nvmlDeviceGetCount())
        except self._nvml.NVMLError as error:
            return Inventory(complete=False, problem=f"NVML: {error}"[:300], host_memory_mib=host)
        devices: list[Device] = []
        problems: list[str] = []
        for index in range(count):
            try:
                devices.append(self._read_one(index, is_ours))
            except self._nvml.NVMLError as error:
                problems.append(f"device {index}: {error}")
        problem = "NVML: " + "; ".join(problems) if problems else ""
        return Inventory(devices=tuple(devices), complete=not problems, problem=problem[:300], host_memory_mib=host)

    def _read_one(self, index: int, is_ours: IsOurs) -> Device:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        foreign = [process for process in self._processes(handle) if not is_ours(int(process.pid))]
        used = sum(int(process.usedGpuMemory or 0) for process in foreign) // _MIB
        total, reason = self._memory_mib(handle)
        return Device(
            id=DeviceId(_text(nvml.nvmlDeviceGetUUID(handle))),
            index=index,
            kind=_text(nvml.nvmlDeviceGetName(handle)),
            vendor="nvidia",
            memory_mib=total,
            foreign_mib=-(-used // FOREIGN_STEP_MIB) * FOREIGN_STEP_MIB,
            foreign_processes=tuple(f"pid {process.pid}" for process in foreign[:_MAX_NAMED]),
            health=DeviceHealth.BAD if reason else DeviceHealth.OK,
            reason=reason,
        )

    def _memory_mib(self, handle: Any) -> tuple[int | None, str]:
        """(total, what is wrong): unified memory and some vGPUs do not say, which is no fault."""
        nvml = self._nvml
        try:
            return int(nvml.nvmlDeviceGetMemoryInfo(handle).total) // _MIB or None, ""
        except nvml.NVMLError as error:
            unsaid = getattr(error, "value", None) == getattr(nvml, "NVML_ERROR_NOT_SUPPORTED", 3)
            return None, "" if unsaid else f"memory: {error}"[:300]

    def _processes(self, handle: Any) -> list[Any]:
        try:
            return list(self._nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        except self._nvml.NVMLError:  # not told on some systems; then nothing is known of foreign processes
            return []


def device_source(declared: tuple[Declared, ...] | None, machine_id: str, node: str) -> DeviceSource:
    """What was declared, else NVML where its library and driver are there, else nothing."""
    if declared is not None:
        return DeclaredSource(declared, machine_id, node)
    nvml = _load_nvml()
    return DeclaredSource((), machine_id, node) if nvml is None else NvmlSource(nvml)


def with_quarantine(inventory: Inventory, quarantined: dict[DeviceId, str]) -> Inventory:
    """The inventory with the devices named in `quarantined` (id -> reason) shown as such."""
    if not quarantined:
        return inventory
    devices = tuple(
        device.model_copy(update={"health": DeviceHealth.QUARANTINED, "reason": quarantined[device.id]})
        if device.id in quarantined
        else device
        for device in inventory.devices
    )
    return inventory.model_copy(update={"devices": devices})


def _load_nvml() -> Any:
    import pynvml  # only where devices are not declared

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no library or no driver: a machine without NVIDIA devices
        return None
    return pynvml


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
