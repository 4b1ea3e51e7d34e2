"""From reports to sites: what a node has to offer in this pass, and why it does not."""

from collections import OrderedDict
from collections.abc import Collection, Sequence

from llmgw.catalog import DEFAULT_POOL
from llmgw.ids import DeviceId
from llmgw.nodes import NodeState, NodeView
from llmgw.placing.need import Site, Slot
from llmgw.wire import Device, DeviceHealth, Inventory

FOREIGN_LIMIT_MIB = 512
"""Memory that foreign processes may hold on a device we call free (a display, a driver's baseline)."""

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
    kept = _KEPT.get(key)
    if kept is not None and kept[0] is inventory:
        slots = kept[1]
    else:
        slots = tuple(_slot(device, shared_percent) for device in in_order(inventory.devices))
        _KEPT[key] = (inventory, slots)
        while len(_KEPT) > _MAX_KEPT:
            _KEPT.popitem(last=False)
    if not quarantined and not strays:
        return slots
    return tuple(_held(slot, quarantined, strays) for slot in slots)


def in_order(devices: Sequence[Device]) -> list[Device]:
    return sorted(devices, key=lambda d: (d.index, d.id))


def _slot(device: Device, shared_percent: int) -> Slot:
    share = None if device.memory_mib is None else device.memory_mib * shared_percent // 100
    slot = Slot(device.id, device.kind, device.memory_mib, share, device.vendor)
    if device.health is not DeviceHealth.OK:
        return _without(slot, 0, "out of order or quarantined")
    if device.foreign_mib > FOREIGN_LIMIT_MIB:
        who = ", ".join(sorted(device.foreign_processes)[:3]) or "foreign processes"
        return _without(slot, max(0, (share or 0) - device.foreign_mib), f"used by {who}")
    return slot


def _held(slot: Slot, quarantined: Collection[DeviceId], strays: Collection[DeviceId]) -> Slot:
    if slot.id in quarantined:
        return _without(slot, 0, "out of order or quarantined")
    if slot.id in strays and not slot.trouble:
        return _without(slot, 0, "held by engines that no assignment claims")
    return slot


def _without(slot: Slot, left_mib: int, trouble: str) -> Slot:
    return Slot(slot.id, slot.kind, slot.memory_mib, slot.share_mib, slot.vendor, left_mib, trouble)
