"""Whether the devices of an engine that has ended are free: its memory has come back, as the devices' own tools say.

A driver may hold memory of a process long gone, or for good. Pure; `agent.ending` looks and waits, and until it is
free nobody else is given the device.
"""

from collections.abc import Mapping

from agent.devices import BASELINE_MIB, BASELINE_SHARE, Known, Meter
from llmgw.ids import DeviceId
from llmgw.wire import DeviceClaim

TOLERANCE_MIB = 512
"""Use of an idle device changes by so much without anybody on it."""


def why_not_free(
    claims: tuple[DeviceClaim, ...], idle_mib: Mapping[DeviceId, int], now: Known, pids: frozenset[int] = frozenset()
) -> str:
    """What still holds a claimed device, with the pids that the tool names; empty when all are free.

    `idle_mib`: use of each device before the engine came; `pids`: processes that the engine had. A device shared with
    others is free when the tool no longer lists any of these on it; one that no tool measures is proven by its
    processes alone.
    """
    sizes = {device.id: device.memory_mib for device in now.inventory.devices}
    for claim in claims:
        meter = now.meters.get(claim.device)
        if meter is None:
            continue
        if claim.memory_mib is not None:
            if held := _still_listed(meter, pids):
                return f"{claim.device}: {held}"
            continue
        if meter.used_mib is None:
            continue
        excess = meter.used_mib - _expected_mib(meter, idle_mib.get(claim.device), sizes.get(claim.device))
        if excess > TOLERANCE_MIB:
            return f"{claim.device}: {excess} MiB have not come back; {_holder(meter)}"
    return ""


def _expected_mib(meter: Meter, idle_mib: int | None, size_mib: int | None) -> int:
    """What may be in use: as before the engine, and what live processes of others hold now."""
    if idle_mib is None:
        return meter.foreign_mib + int(max(BASELINE_MIB, BASELINE_SHARE * (size_mib or 0)))
    return idle_mib + meter.foreign_mib


def _still_listed(meter: Meter, pids: frozenset[int]) -> str:
    """Processes of the engine that the tool lists though they are gone; empty when there is none."""
    left = {pid: mib for pid, mib in meter.unseen_mib.items() if pid in pids}
    if not left:
        return ""
    known = [mib for mib in left.values() if mib is not None]
    share = f"{sum(known)} MiB have" if known else "memory has"
    return f"{share} not come back; held by pid {', '.join(map(str, sorted(left)))}, which this system no longer knows"


def _holder(meter: Meter) -> str:
    if not meter.unseen:
        return "no process is told to hold them"
    return f"held by {', '.join(meter.unseen[:5])}, which this system no longer knows"
