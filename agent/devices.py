"""The node's devices as the plane is told of them: what the tools saw, held against what is ours. Pure but for looking.

A device it cannot read is unknown or bad, never absent; a failing tool keeps what was known and makes the inventory
incomplete. Memory that others hold comes apart into what processes hold (`foreign`) and what is never to be had
(`baseline`: driver, firmware). It assigns nothing, and never counts our own engines as foreign.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from agent.declared import Declared, declared_devices
from agent.inventory.seen import ZEROS, Seen, Sight, User
from agent.inventory.sources import Machine, carried
from agent.proc import host_memory_mib
from llmgw.ids import DeviceId
from llmgw.wire import Device, DeviceHealth, Inventory

STEP_MIB = 256
"""Memory of others is told in steps, and falls only by two: a process that breathes makes no news."""

BASELINE_SHARE = 0.08
BASELINE_MIB = 1024
"""What no process tells of is the device's own up to the greater of these; beyond, somebody holds it unseen.

Seen on idle devices: 5.2 % of an Ascend 910B3, 6.5 % of a TITAN X."""

_MAX_NAMED = 8


class Whose(Enum):
    """To whom a process on a device belongs."""

    OURS = "ours"
    FOREIGN = "foreign"
    UNSEEN = "unseen"  # no such pid here: dead, or told in the numbers of another pid namespace


@dataclass(frozen=True)
class Holding:
    """What the node knows of its own use of its devices."""

    whose: Callable[[int], Whose]
    claimed: frozenset[DeviceId] = frozenset()
    """Devices that a replica holds, so that memory no process tells of may be its."""


@dataclass(frozen=True)
class Meter:
    """The last figures of one device, for proving it free. Used memory is exact, reserved not included."""

    used_mib: int | None = None
    foreign_mib: int = 0
    """Held by live processes that are not ours, as far as the tool tells."""
    told_mib: int = 0
    """Held by processes, whosever."""
    untold: bool = False
    """There is a process whose share the tool does not tell."""
    foreign: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    """Processes that the tool lists and the kernel does not know."""
    unseen_mib: Mapping[int, int | None] = field(default_factory=dict)
    """What these hold, by pid, where the tool tells."""


_NOT_READ = Inventory(complete=False, problem="devices are not read yet")


@dataclass(frozen=True)
class Known:
    """One look, judged."""

    inventory: Inventory = _NOT_READ
    ordinals: Mapping[DeviceId, int] = field(default_factory=dict)
    """What engines that take numbers call a device."""
    meters: Mapping[DeviceId, Meter] = field(default_factory=dict)
    idle_mib: Mapping[DeviceId, int] = field(default_factory=dict)
    """Use of each device when it was last seen without a replica of ours."""
    left_out: tuple[str, ...] = ()
    """Devices that are none to run on, and why."""


class DeviceSource(Protocol):
    @property
    def changes(self) -> bool:
        """Whether reading again can tell something new."""
        ...

    def read(self, holding: Holding, before: Known) -> Known:
        """The devices now. Blocking; never raises."""
        ...


@dataclass(frozen=True)
class DeclaredSource:
    """What the operator says there is; nothing declared is a machine without devices."""

    declared: tuple[Declared, ...]
    machine_id: str
    node: str
    changes: bool = False

    def read(self, holding: Holding, before: Known) -> Known:  # noqa: ARG002 - the protocol's
        devices = declared_devices(self.declared, self.machine_id, self.node)
        return Known(Inventory(devices=devices, host_memory_mib=host_memory_mib()), {d.id: d.index for d in devices})


@dataclass(frozen=True)
class ToolSource:
    """What this machine's tools tell. `sizes`: device id or kind -> MiB, the operator's word over the tools'."""

    machine: Machine
    machine_id: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    changes: bool = True

    def read(self, holding: Holding, before: Known) -> Known:
        known = judge(self.machine.look(), holding, before, self.machine_id, self.sizes)
        return replace(known, inventory=known.inventory.model_copy(update={"host_memory_mib": host_memory_mib()}))


def device_source(
    declared: tuple[Declared, ...] | None, machine_id: str, node: str, sizes: Mapping[str, int]
) -> DeviceSource:
    """What was declared, else what the machine's tools tell."""
    if declared is not None:
        return DeclaredSource(declared, machine_id, node)
    return ToolSource(Machine(), machine_id, sizes)


def judge(sight: Sight, holding: Holding, before: Known, machine_id: str, sizes: Mapping[str, int]) -> Known:
    """The inventory of one look. Devices that a failing tool no longer tells of stay, marked as such."""
    named = _identified(carried(sight), machine_id)
    previous = {device.id: device for device in before.inventory.devices}
    meters = {name: _meter(seen, holding) for name, seen in named.items()}
    devices = [
        _device(name, seen, meters[name], _before(name, seen, before), name in holding.claimed, sizes)
        for name, seen in named.items()
    ]
    missing = [device for device in previous.values() if device.id not in named] if sight.problem else []
    devices += [_silent(device, sight.problem) for device in missing]
    ordinals = {name: seen.index if seen.ordinal is None else seen.ordinal for name, seen in named.items()}
    left_out = tuple(f"{seen.kind or seen.vendor} {seen.index}: {seen.unfit}" for seen in sight.devices if seen.unfit)
    return Known(
        Inventory(devices=tuple(devices), complete=not sight.problem, problem=sight.problem[:300]),
        {**{d.id: before.ordinals[d.id] for d in missing if d.id in before.ordinals}, **ordinals},
        meters,
        _idle(meters, holding, before),
        left_out,
    )


def _idle(meters: Mapping[DeviceId, Meter], holding: Holding, before: Known) -> dict[DeviceId, int]:
    """Without what live processes of others hold: those may come and go."""
    now = {
        name: meter.used_mib - meter.foreign_mib
        for name, meter in meters.items()
        if meter.used_mib is not None and name not in holding.claimed
    }
    return {**before.idle_mib, **now}


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


# --- identity ------------------------------------------------------------------------------------------------------


def _identified(seen: Iterable[Seen], machine_id: str) -> dict[DeviceId, Seen]:
    """By UUID; by bus and machine where there is none; two that say they are one are told apart by their number."""
    named: dict[DeviceId, Seen] = {}
    for device in seen:
        name = identity(device, machine_id)
        while name in named:
            name = DeviceId(f"{name}@{device.index}")
        named[name] = device
    return named


def identity(device: Seen, machine_id: str) -> DeviceId:
    """Unlike any other device's: a bus id is the same on every machine, so the machine's own id goes with it."""
    if device.uuid and not ZEROS.fullmatch(device.uuid):
        return DeviceId(device.uuid)
    place = device.bus or f"{device.vendor}:{device.index}"
    return DeviceId(f"{place}@{machine_id[:12]}")


# --- one device ----------------------------------------------------------------------------------------------------


def _device(
    name: DeviceId, seen: Seen, meter: Meter, before: tuple[int, int], claimed: bool, sizes: Mapping[str, int]
) -> Device:
    foreign, baseline = _held_by_others(seen, meter, before, claimed)
    return Device(
        id=name,
        index=seen.index,
        kind=seen.kind,
        vendor=seen.vendor,
        memory_mib=sizes.get(name, sizes.get(seen.kind, seen.total_mib)),
        foreign_mib=stepped(foreign, before[0]),
        baseline_mib=stepped(baseline, before[1]),
        foreign_processes=(meter.foreign if claimed else (*meter.foreign, *meter.unseen))[:_MAX_NAMED],
        health=DeviceHealth.BAD if seen.sickness else DeviceHealth.OK,
        reason=seen.sickness[:300],
    )


def _before(name: DeviceId, seen: Seen, before: Known) -> tuple[int, int]:
    """(foreign, baseline) as last told; where nothing was, as the device was before the engine that is on it."""
    for device in before.inventory.devices:
        if device.id == name:
            return device.foreign_mib, device.baseline_mib
    return 0, stepped(before.idle_mib.get(name, 0) + seen.reserved_mib, 0)


def _meter(seen: Seen, holding: Holding) -> Meter:
    whose = {user.pid: holding.whose(user.pid) for user in seen.processes}
    foreign = [user for user in seen.processes if whose[user.pid] is Whose.FOREIGN]
    unseen = [user for user in seen.processes if whose[user.pid] is Whose.UNSEEN]
    return Meter(
        used_mib=seen.used_mib,
        foreign_mib=sum(user.mib or 0 for user in foreign),
        told_mib=sum(user.mib or 0 for user in seen.processes),
        untold=any(user.mib is None for user in seen.processes),
        foreign=tuple(_in_words(user) for user in foreign),
        unseen=tuple(_in_words(user) for user in unseen),
        unseen_mib={user.pid: user.mib for user in unseen},
    )


def _in_words(user: User) -> str:
    return f"pid {user.pid} ({user.name[-60:]})" if user.name else f"pid {user.pid}"


def _held_by_others(seen: Seen, meter: Meter, before: tuple[int, int], claimed: bool) -> tuple[int, int]:
    """(foreign, baseline). What no process tells of, while a replica is on the device, is taken to be the replica's."""
    if claimed or seen.used_mib is None:
        return meter.foreign_mib, before[1]
    rest = max(0, seen.used_mib - meter.told_mib)
    if meter.untold or rest > max(BASELINE_MIB, BASELINE_SHARE * (seen.total_mib or 0)):
        return seen.used_mib, seen.reserved_mib
    return meter.told_mib, seen.reserved_mib + rest


def stepped(mib: int, before: int) -> int:
    """`mib` rounded up to a step; what was told before, while that is at most two steps too much."""
    return before if mib <= before < mib + 2 * STEP_MIB else -(-mib // STEP_MIB) * STEP_MIB


def _silent(device: Device, problem: str) -> Device:
    reason = f"the tool tells nothing of it: {problem}"[:300]
    return device.model_copy(update={"health": DeviceHealth.BAD, "reason": reason})
