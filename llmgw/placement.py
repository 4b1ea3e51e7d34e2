"""Where a replica goes: the profiles in order, the nodes through a table of filters, the devices that fit best.

Whole devices by identity. A device is taken from the decision until it is proven free; one that is being released may
be claimed and is waited for. Every refusal counts, per reason, the nodes it held back.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from llmgw.catalog import Accelerators, Profile
from llmgw.draft import Draft
from llmgw.ids import DeviceId, ModelName, NodeId
from llmgw.nodes import NodeState, NodeView
from llmgw.wire import Device, DeviceClaim, DeviceHealth
from llmgw.world import Assignment

FOREIGN_LIMIT_MIB = 512
"""Memory that foreign processes may hold on a device we call free (a display, a driver's baseline)."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A node and the claims a replica would have there."""

    view: NodeView
    claims: tuple[DeviceClaim, ...]
    vendor: str | None
    left: int
    """Free devices that would remain."""
    waits: bool = False
    """Some of the devices are still being released."""


@dataclass(frozen=True, slots=True)
class NoSpot:
    text: str


@dataclass(frozen=True, slots=True)
class Ground:
    """The fleet's devices in this pass."""

    views: Mapping[NodeId, NodeView]
    claims: Mapping[DeviceId, Sequence[Assignment]]
    host_mib: Mapping[NodeId, int]
    """Main memory promised on each node."""

    @classmethod
    def of(cls, draft: Draft) -> "Ground":
        host: Counter[NodeId] = Counter()
        for assignment in draft.assignments.values():
            host[assignment.node] += assignment.host_memory_mib
        return cls(draft.survey.nodes, draft.claims(), host)


def find(
    ground: Ground, profile: Profile, *, models_there: Mapping[NodeId, int], avoid: frozenset[NodeId]
) -> Spot | NoSpot:
    """The best spot for a replica: free now before released soon, then apart from its like, then the tightest fit."""
    fallen: Counter[str] = Counter()
    best: tuple[tuple[bool, bool, int, int, str], Spot] | None = None
    for id_, view in ground.views.items():
        reason = next((text for row in FILTERS if (text := row(ground, view, profile))), None)
        spot = _spot(ground, view, profile) if reason is None else None
        if isinstance(spot, Spot):
            key = (spot.waits, id_ in avoid, models_there.get(id_, 0), spot.left, str(id_))
            if best is None or key < best[0]:
                best = (key, spot)
        else:
            fallen[reason or str(spot)] += 1
    return best[1] if best is not None else NoSpot(_in_words(profile, fallen, len(ground.views)))


# --- filters: a reason why a node cannot take it, or nothing; the first that speaks counts ---


def _other_pool(ground: Ground, view: NodeView, profile: Profile) -> str:
    return "" if view.node.pool == profile.pool else "in other pools"


def _state(ground: Ground, view: NodeView, profile: Profile) -> str:
    return "" if view.state is NodeState.HEALTHY else _STATE_WORDS[view.state]


_STATE_WORDS = {
    NodeState.UNKNOWN: "not heard yet",
    NodeState.SUSPECT: "silent",
    NodeState.LOST: "lost",
    NodeState.SET_ASIDE: "set aside, their identity is in doubt",
    NodeState.FOREIGN: "belonging to another installation",
}


def _closed(ground: Ground, view: NodeView, profile: Profile) -> str:
    if view.leaving:
        return "leaving"
    if view.drain is not None:
        return "draining"
    return "cordoned" if view.cordoned else ""


def _inventory(ground: Ground, view: NodeView, profile: Profile) -> str:
    if view.seen is None or view.seen.inventory.complete or not profile.accelerators:
        return ""
    return f"without a complete inventory ({view.seen.inventory.problem or 'devices are still coming up'})"


def _host_memory(ground: Ground, view: NodeView, profile: Profile) -> str:
    wanted = profile.host_memory_mib
    if wanted is None or view.seen is None:
        return ""
    has = view.seen.inventory.host_memory_mib
    if has is None:
        return "with unknown main memory"
    return "" if has - ground.host_mib.get(view.node.id, 0) >= wanted else f"short of {wanted} MiB of main memory"


FILTERS: tuple[Callable[[Ground, NodeView, Profile], str], ...] = (
    _other_pool,
    _state,
    _closed,
    _inventory,
    _host_memory,
)


# --- devices ---


def _spot(ground: Ground, view: NodeView, profile: Profile) -> Spot | str:
    """The devices for every accelerator entry, met together on this node; or why not."""
    devices = () if view.seen is None else view.seen.inventory.devices
    free = [d for d in devices if _is_usable(view, d) and d.id not in ground.claims]
    taken = _pick(profile.accelerators, free)
    if taken is not None:
        return _made(view, taken, len(free) - len(taken), waits=False)
    soon = free + [d for d in devices if _is_usable(view, d) and _is_being_released(ground, d.id)]
    taken = _pick(profile.accelerators, soon) if len(soon) > len(free) else None
    if taken is not None:
        return _made(view, taken, len(soon) - len(taken), waits=True)
    return _shortage(ground, view, profile, devices)


def _made(view: NodeView, taken: Sequence[Device], left: int, *, waits: bool) -> Spot:
    claims = tuple(DeviceClaim(device=d.id) for d in taken)
    return Spot(view, claims, taken[0].vendor if taken else None, left, waits)


def _is_usable(view: NodeView, device: Device) -> bool:
    quarantined = view.seen is not None and device.id in view.seen.quarantined
    return device.health is DeviceHealth.OK and not quarantined and device.foreign_mib <= FOREIGN_LIMIT_MIB


def _is_being_released(ground: Ground, device: DeviceId) -> bool:
    """All that hold it are told to stop, and nobody waits for it yet."""
    holders = ground.claims.get(device, ())
    return bool(holders) and all(a.stop is not None and a.stop.commanded for a in holders)


def _pick(asked: Sequence[Accelerators], free: Sequence[Device]) -> list[Device] | None:
    """Devices for all entries, the most demanding first; of those that do, the smallest, then the lowest index."""
    left = sorted(free, key=lambda d: (d.memory_mib or 0, d.index, d.id))
    taken: list[Device] = []
    for entry in sorted(asked, key=lambda e: (-(e.memory_mib or 0), e.kind is None, e.kind or "", -e.count)):
        fitting = [d for d in left if fits(entry, d)][: entry.count]
        if len(fitting) < entry.count:
            return None
        taken += fitting
        left = [d for d in left if d not in fitting]
    return sorted(taken, key=lambda d: (d.index, d.id))


def fits(entry: Accelerators, device: Device) -> bool:
    """Kind and memory. Unknown memory is neither zero nor infinite: it meets no demand for a size."""
    if entry.memory_mib is not None and (device.memory_mib is None or device.memory_mib < entry.memory_mib):
        return False
    return entry.kind is None or is_kind(entry.kind, device.kind)


def is_kind(asked: str, reported: str) -> bool:
    """Every word of the asked kind is one of the reported: `h100` is an `NVIDIA H100 80GB HBM3`, not an `H10`."""
    return _words(asked) <= _words(reported)


def _words(kind: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W_]+", kind.casefold()))


# --- refusals in words ---


def _shortage(ground: Ground, view: NodeView, profile: Profile, devices: Sequence[Device]) -> str:
    """What this node lacks, in words that say the same while nothing changes."""
    entry = profile.accelerators[0] if profile.accelerators else None
    if entry is None:
        return "without room"
    fitting = [d for d in devices if fits(entry, d)]
    if len(fitting) < entry.count:
        unknown = sum(1 for d in devices if d.memory_mib is None and entry.memory_mib is not None)
        suffix = f" ({unknown} of unknown memory)" if unknown else ""
        return f"with {len(fitting)} such device{'s' * (len(fitting) != 1)}{suffix}"
    foreign = [d for d in fitting if d.foreign_mib > FOREIGN_LIMIT_MIB]
    ill = [d for d in fitting if d.health is not DeviceHealth.OK or (view.seen and d.id in view.seen.quarantined)]
    free = [d for d in fitting if _is_usable(view, d) and d.id not in ground.claims]
    parts = [f"with {len(free)} free"]
    if ill:
        parts.append(f"{len(ill)} out of order or quarantined")
    if foreign:
        who = ", ".join(sorted({name for d in foreign for name in d.foreign_processes})[:3]) or "foreign processes"
        parts.append(f"{len(foreign)} used by {who} ({max(d.foreign_mib for d in foreign)} MiB)")
    return ", ".join(parts)


def _in_words(profile: Profile, fallen: Mapping[str, int], nodes: int) -> str:
    asked = " and ".join(in_words(entry) for entry in profile.accelerators) or "no device"
    if not nodes:
        return f"needs {asked} in pool {profile.pool}: the fleet has no nodes"
    counted = (f"{n} node{'s' * (n != 1)} {text}" for text, n in sorted(fallen.items(), key=lambda i: (-i[1], i[0])))
    return f"needs {asked} in pool {profile.pool}: " + "; ".join(counted)


def in_words(entry: Accelerators) -> str:
    size = "" if entry.memory_mib is None else f" with at least {entry.memory_mib / 1024:g} GiB"
    return f"{entry.count} × {entry.kind or 'any device'}{size}"


def hosts(assignments: Iterable[Assignment], model: ModelName) -> Counter[NodeId]:
    """How many replicas of a model each node has."""
    return Counter(a.node for a in assignments if a.model == model)
