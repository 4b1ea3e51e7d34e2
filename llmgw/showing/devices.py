"""Devices as people count them: *free* is only what the next replica could have at once."""

from collections import Counter
from enum import StrEnum

from llmgw.ids import DeviceId, ReplicaId
from llmgw.memory import format_mib
from llmgw.nodes import NodeView
from llmgw.showing.paging import View
from llmgw.showing.scene import Scene
from llmgw.sites import FOREIGN_LIMIT_MIB
from llmgw.wire import Device, DeviceHealth


class DeviceState(StrEnum):
    FREE = "free"
    CLOSED = "closed"  # unused, on a node that takes nothing: cordoned, drained, leaving or not heard
    USED = "used"  # a replica is assigned to it
    OTHERS = "others"  # used by processes that no replica of the fleet accounts for
    QUARANTINED = "quarantined"
    BAD = "bad"


class DeviceRow(View):
    id: DeviceId
    index: int
    kind: str
    memory_mib: int | None = None
    free: bool
    """It may be used at once: unused alone is not enough."""
    holders: tuple[ReplicaId, ...] = ()
    problem: str = ""


def device_row(scene: Scene, view: NodeView, device: Device) -> DeviceRow:
    state = _device_state(scene, view, device)
    return DeviceRow(
        id=device.id,
        index=device.index,
        kind=device.kind,
        memory_mib=device.memory_mib,
        free=state is DeviceState.FREE,
        holders=_holders(scene, device),
        problem=_problem(view, device) or (_others(scene, view, device) if state is DeviceState.OTHERS else ""),
    )


def device_states(scene: Scene) -> dict[DeviceState, int]:
    """How many devices of all nodes are in each state; states that none is in are left out."""
    found: Counter[DeviceState] = Counter()
    for view in scene.survey.nodes.values():
        devices = () if view.seen is None else view.seen.inventory.devices
        found.update(_device_state(scene, view, device) for device in devices)
    return dict(sorted(found.items()))


def _device_state(scene: Scene, view: NodeView, device: Device) -> DeviceState:
    quarantined = {} if view.seen is None else view.seen.quarantined
    if device.id in quarantined or device.health is DeviceHealth.QUARANTINED:
        return DeviceState.QUARANTINED
    if device.health is not DeviceHealth.OK:
        return DeviceState.BAD
    if scene.by_device.get(device.id):
        return DeviceState.USED
    if _others(scene, view, device):
        return DeviceState.OTHERS
    is_open = view.judges and not (view.cordoned or view.leaving or view.drain is not None)
    return DeviceState.FREE if is_open else DeviceState.CLOSED


def _holders(scene: Scene, device: Device) -> tuple[ReplicaId, ...]:
    return tuple(a.replica for a in scene.by_device.get(device.id, ()))


def _problem(view: NodeView, device: Device) -> str:
    quarantined = "" if view.seen is None else view.seen.quarantined.get(device.id, "")
    return quarantined or ("" if device.health is DeviceHealth.OK else device.reason or device.health)


def _others(scene: Scene, view: NodeView, device: Device) -> str:
    """Who uses a device that no assignment claims, by the same limits as placing; empty: nobody."""
    rows = () if view.seen is None else view.seen.replicas
    strays = sorted(
        row.replica
        for row in rows
        if row.replica not in scene.world.assignments and any(claim.device == device.id for claim in row.claims)
    )
    if strays:
        return f"held by {', '.join(strays)}, which no assignment claims"
    if device.foreign_mib <= FOREIGN_LIMIT_MIB:
        return ""
    who = ", ".join(sorted(device.foreign_processes)[:3]) or "processes of others"
    return f"{format_mib(device.foreign_mib)} used by {who}"
