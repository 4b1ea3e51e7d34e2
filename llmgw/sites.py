"""From reports to sites: what a node has to offer in this pass, and why it does not."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from llmgw.catalog import DEFAULT_POOL
from llmgw.ids import DeviceId
from llmgw.nodes import NodeState, NodeView
from llmgw.placing.need import Identity, Site, Slot
from llmgw.wire import Device, DeviceHealth, Inventory

FOREIGN_LIMIT_MIB = 512
"""Memory that foreign processes may hold on a device we call free (a display)."""
ORDINARY_MIB = 1024
"""Memory that driver and firmware may keep of a device that is still as large as it is said to be."""
VENDORS_WITH_UUIDS = ("nvidia", "amd")

_STATE_WORDS = {
    NodeState.UNKNOWN: "not heard yet",
    NodeState.SUSPECT: "silent",
    NodeState.LOST: "lost",
    NodeState.SET_ASIDE: "set aside, their identity is in doubt",
    NodeState.FOREIGN: "belonging to another installation",
}

Slots = tuple[Slot, ...]
_KEPT: OrderedDict[tuple[int, int], tuple[Inventory, Slots]] = OrderedDict()
_MAX_KEPT = 20_000


def site_of(view: NodeView, strays: Collection[DeviceId], shared_percent: int) -> Site:
    """`strays`: devices held by engines that no assignment claims. `shared_percent`: what claims may take of one."""
    seen = view.seen
    return Site(
        id=view.node.id,
        slots=() if seen is None else _slots(view, strays, shared_percent),
        pool=view.node.pool or DEFAULT_POOL,
        labels=view.node.labels,
        zone=view.node.zone,
        host_mib=None if seen is None else seen.inventory.host_memory_mib,
        weights=frozenset() if seen is None else frozenset(w.source for w in seen.weights if w.complete),
        closed=_closed(view),
        blind=_blind(view),
    )


def _closed(view: NodeView) -> str:
    if view.state is not NodeState.HEALTHY:
        return _STATE_WORDS[view.state]
    if view.leaving:
        return "leaving"
    if view.drain is not None:
        return "draining"
    return "cordoned" if view.cordoned else ""


def _blind(view: NodeView) -> str:
    """A tool that fails is not an empty node."""
    if view.seen is None or view.seen.inventory.complete:
        return ""
    return f"without a complete inventory ({view.seen.inventory.problem or 'devices are still coming up'})"


def _slots(view: NodeView, strays: Collection[DeviceId], shared_percent: int) -> Slots:
    """Slots of a node. What follows from its inventory alone is kept: it changes seldom and is asked for every pass."""
    assert view.seen is not None, "only a node that was heard has slots"  # noqa: S101 - a programming error
    inventory = view.seen.inventory
    quarantined = view.seen.quarantined
    key = (id(inventory), shared_percent)
    known = _KEPT.get(key)
    if known is not None and known[0] is inventory:
        slots = known[1]
    else:
        kept = _kept_of(inventory.devices)
        slots = tuple(_slot(device, kept(device), shared_percent) for device in in_order(inventory.devices))
        _KEPT[key] = (inventory, slots)
        while len(_KEPT) > _MAX_KEPT:
            _KEPT.popitem(last=False)
    if not quarantined and not strays:
        return slots
    return tuple(_held(slot, quarantined, strays) for slot in slots)


def in_order(devices: Sequence[Device]) -> list[Device]:
    return sorted(devices, key=lambda d: (d.index, d.id))


def _slot(device: Device, kept_mib: int, shared_percent: int) -> Slot:
    """`kept_mib`: what driver and firmware keep of it. Claims share what is left; of who asks for a whole device that
    is a part only where it is more than any driver's ordinary share."""
    memory = device.memory_mib
    share = None if memory is None else max(0, memory - kept_mib) * shared_percent // 100
    if memory is not None and kept_mib > ORDINARY_MIB:
        memory = max(0, memory - kept_mib)
    slot = Slot(device.id, device.kind, memory, share, device.vendor, kept_mib=kept_mib, identity=_identity(device))
    if device.health is not DeviceHealth.OK:
        return _without(slot, 0, "out of order or quarantined")
    if device.foreign_mib > FOREIGN_LIMIT_MIB:
        who = ", ".join(sorted(device.foreign_processes)[:3]) or "foreign processes"
        used = _without(slot, max(0, (share or 0) - device.foreign_mib), f"used by {who}")
        return replace(used, others_mib=device.foreign_mib)
    return slot


def _kept_of(devices: Sequence[Device]) -> Callable[[Device], int]:
    """What driver and firmware keep of a device: of those alike as much as of any, so that small differences do not
    make them different; what is out of the ordinary counts for itself."""
    ordinary: dict[tuple[str, int | None], int] = {}
    for device in devices:
        if device.baseline_mib <= ORDINARY_MIB:
            alike = device.kind, device.memory_mib
            ordinary[alike] = max(ordinary.get(alike, 0), device.baseline_mib)
    return lambda device: max(device.baseline_mib, ordinary.get((device.kind, device.memory_mib), 0))


def _identity(device: Device) -> Identity:
    """What a driver knows it by, as the agent will ask when it starts an engine."""
    if device.id.startswith("MIG-"):
        return "slice"
    has_uuid = device.id.startswith("GPU-") and "@" not in device.id
    return "bare" if device.vendor in VENDORS_WITH_UUIDS and not has_uuid else ""


def _held(slot: Slot, quarantined: Collection[DeviceId], strays: Collection[DeviceId]) -> Slot:
    if slot.id in quarantined:
        return _without(slot, 0, "out of order or quarantined")
    if slot.id in strays and not slot.trouble:
        return _without(slot, 0, "held by engines that no assignment claims")
    return slot


def _without(slot: Slot, left_mib: int, trouble: str) -> Slot:
    return replace(slot, left_mib=left_mib, trouble=trouble)
