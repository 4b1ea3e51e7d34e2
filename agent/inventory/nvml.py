"""NVIDIA devices as their library tells them: https://docs.nvidia.com/deploy/nvml-api/

`nvml` is the module `pynvml`, initialised. A card in MIG mode is no device, its slices are. What cannot be read is
unknown or a sickness; a card that cannot be reached is a problem, never an absence.
"""

from collections.abc import Callable, Iterable
from typing import Any

from agent.inventory.nvidia_words import MIG_PARENT
from agent.inventory.seen import Seen, Sight, User, bus_id
from agent.proc import process_at

_MIB = 1024 * 1024
_PROHIBITED = 2  # nvmlComputeMode_t
_NOT_SUPPORTED = 3  # nvmlReturn_t
_PROGRAMS_OWN_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Errors that a program makes, not a device: https://docs.nvidia.com/deploy/xid-errors/"""


class NvmlReader:
    def __init__(self, nvml: Any) -> None:  # the module has no types
        self._nvml = nvml
        self._events: Any = None
        self._xids: dict[str, int] = {}
        """UUID -> the last error that is the device's own, since this agent began."""

    def read(self) -> Sight:
        """All devices. Blocking; never raises."""
        nvml = self._nvml
        try:
            count = int(nvml.nvmlDeviceGetCount())
        except nvml.NVMLError as error:
            return Sight(problem=f"NVML: {error}"[:300])
        self._take_events(count)
        devices: list[Seen] = []
        problems: list[str] = []
        for index in range(count):
            try:
                devices += self._read_card(index)
            except nvml.NVMLError as error:
                problems.append(f"device {index}: {error}")
        return Sight(tuple(devices), ("NVML: " + "; ".join(problems))[:300] if problems else "")

    def _read_card(self, index: int) -> list[Seen]:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        card = self._seen(handle, index, _text(nvml.nvmlDeviceGetName(handle)))
        mode = self._ask(nvml.nvmlDeviceGetMigMode, handle) if hasattr(nvml, "nvmlDeviceGetMigMode") else None
        if not mode or mode[0] != 1:
            return [card]
        slices = []
        for place in range(int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))):
            part = self._ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place)
            if part is not None:
                name = _text(self._ask(nvml.nvmlDeviceGetName, part) or b"")
                slices.append(self._seen(part, index, "MIG " + name.rpartition("MIG ")[2], sickness=card.sickness))
        return [Seen(index, card.kind, "nvidia", card.uuid, card.bus, unfit=MIG_PARENT), *slices]

    def _seen(self, handle: Any, index: int, kind: str, sickness: str = "") -> Seen:
        uuid = _text(self._nvml.nvmlDeviceGetUUID(handle))
        total, used, reserved, fault = self._memory(handle)
        place = self._ask(getattr(self._nvml, "nvmlDeviceGetPciInfo", _nothing), handle)
        return Seen(
            index=index,
            kind=kind.strip(),
            vendor="nvidia",
            uuid=uuid,
            bus=bus_id(_text(place.busId)) if place is not None else "",
            total_mib=total,
            used_mib=used,
            reserved_mib=reserved,
            processes=tuple(self._users(handle)),
            sickness=fault or sickness or self._sickness(handle, uuid),
        )

    def _memory(self, handle: Any) -> tuple[int | None, int | None, int, str]:
        """(total, used, reserved, what is wrong): unified memory and some vGPUs do not say, which is no fault."""
        nvml = self._nvml
        version = getattr(nvml, "nvmlMemory_v2", None)  # the first version counts what the driver reserves as used
        info = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle, version) if version is not None else None
        try:
            info = info or nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError as error:
            return None, None, 0, "" if getattr(error, "value", None) == _NOT_SUPPORTED else f"memory: {error}"[:300]
        total = int(info.total) // _MIB or None
        reserved = int(getattr(info, "reserved", 0)) // _MIB
        used = getattr(info, "used", None)
        return total, None if used is None or total is None else int(used) // _MIB, reserved, ""

    def _users(self, handle: Any) -> Iterable[User]:
        """Who computes or draws; not told on some systems, and then nothing is known of others' processes."""
        held: dict[int, int | None] = {}
        for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
            for process in self._ask(getattr(self._nvml, name, _nothing), handle) or ():
                bytes_used = process.usedGpuMemory
                held[int(process.pid)] = None if bytes_used is None else int(bytes_used) // _MIB
        for pid, mib in held.items():
            running = process_at(pid)
            yield User(pid, running.name if running else "", mib)

    def _sickness(self, handle: Any, uuid: str) -> str:
        nvml = self._nvml
        if (xid := self._xids.get(uuid)) is not None:
            return f"Xid {xid}"
        errors = self._ask(
            getattr(nvml, "nvmlDeviceGetTotalEccErrors", _nothing), handle, 1, 0
        )  # uncorrected, volatile
        if errors:
            return f"{errors} uncorrected ECC errors since the driver was loaded"
        rows = self._ask(getattr(nvml, "nvmlDeviceGetRemappedRows", _nothing), handle)
        if rows and rows[3]:
            return "row remapping failed"
        if self._ask(getattr(nvml, "nvmlDeviceGetComputeMode", _nothing), handle) == _PROHIBITED:
            return "compute mode is Prohibited"
        return ""

    def _take_events(self, count: int) -> None:
        """Remember critical errors that happened since the last look; not every system has them."""
        nvml = self._nvml
        if not hasattr(nvml, "nvmlEventSetCreate"):
            return
        try:
            if self._events is None:
                self._events = nvml.nvmlEventSetCreate()
                for index in range(count):
                    handle = self._ask(nvml.nvmlDeviceGetHandleByIndex, index)
                    if handle is not None:
                        self._ask(
                            nvml.nvmlDeviceRegisterEvents, handle, nvml.nvmlEventTypeXidCriticalError, self._events
                        )
            while True:  # until the wait of no time at all times out
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                if int(event.eventData) not in _PROGRAMS_OWN_XIDS:
                    self._xids[_text(nvml.nvmlDeviceGetUUID(event.device))] = int(event.eventData)
        except nvml.NVMLError:
            return

    def _ask(self, call: Callable[..., Any], *args: Any) -> Any:
        """The answer, or None where this device or driver has none."""
        try:
            return call(*args)
        except self._nvml.NVMLError:
            return None


def load_nvml() -> Any:
    """The initialised library, or None where there is none or its driver does not run."""
    import pynvml  # only where devices are not declared

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _nothing(*_: Any) -> None:
    return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
