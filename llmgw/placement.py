"""Where a replica goes: the nodes through a table of filters, the devices that fit, the best of the spots.

Every refusal counts, per reason, the nodes it held back, in words that stay the same while nothing changes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from llmgw.catalog import Accelerators, Profile
from llmgw.fitting import fits
from llmgw.ground import FOREIGN_LIMIT_MIB, Ground, Spot, devices_of, shape
from llmgw.ids import ModelName, NodeId
from llmgw.nodes import NodeState, NodeView
from llmgw.wire import DeviceHealth
from llmgw.world import Assignment

APART = 4
"""So many free devices is it worth not to share a node with another replica of the same model. A strict rule would
break up whole nodes, which large replicas need."""


@dataclass(frozen=True, slots=True)
class NoSpot:
    text: str


def find(
    ground: Ground,
    profile: Profile,
    *,
    models_there: Mapping[NodeId, int],
    avoid: frozenset[NodeId],
    never: frozenset[NodeId] = frozenset(),
) -> Spot | NoSpot:
    """The best spot for a replica: free now before released soon, not where it failed, then the tightest fit, apart
    from its like. `never`: nodes that do not come into question at all."""
    if (known := ground.nowhere.get(shape(profile))) is not None:
        return NoSpot(known)
    best: tuple[tuple[bool, bool, int, NodeId], Spot] | None = None
    for id_, offer in ground.offers(profile, _offer):
        if isinstance(offer, str) or id_ in never:
            continue
        key = (offer.waits, id_ in avoid, offer.left + APART * models_there.get(id_, 0), id_)
        if best is None or key < best[0]:
            best = (key, offer)
    if best is not None:
        return best[1]
    text = _in_words(profile, ground)
    if not never:
        ground.nowhere[shape(profile)] = text
    return NoSpot(text)


def would_fit(ground: Ground, profile: Profile, instead_of: Assignment) -> bool:
    """Whether the node of `instead_of` could take the profile once that replica is gone."""
    view = ground.views.get(instead_of.node)
    if view is None or _reason(ground, view, profile, instead_of.host_memory_mib):
        return False
    return ground.spot(view, profile, [claim.device for claim in instead_of.claims]) is not None


def _offer(ground: Ground, view: NodeView, profile: Profile) -> Spot | str:
    reason = _reason(ground, view, profile)
    if reason:
        return reason
    return ground.spot(view, profile) or _shortage(ground, view, profile)


def _reason(ground: Ground, view: NodeView, profile: Profile, spare_mib: int = 0) -> str:
    return next((text for row in FILTERS if (text := row(ground, view, profile, spare_mib))), "")


# --- filters: a reason why a node cannot take it, or nothing; the first that speaks counts ---


def _other_pool(_ground: Ground, view: NodeView, profile: Profile, _spare_mib: int) -> str:
    return "" if view.node.pool == profile.pool else "in other pools"


def _state(_ground: Ground, view: NodeView, _profile: Profile, _spare_mib: int) -> str:
    return "" if view.state is NodeState.HEALTHY else _STATE_WORDS[view.state]


_STATE_WORDS = {
    NodeState.UNKNOWN: "not heard yet",
    NodeState.SUSPECT: "silent",
    NodeState.LOST: "lost",
    NodeState.SET_ASIDE: "set aside, their identity is in doubt",
    NodeState.FOREIGN: "belonging to another installation",
}


def _closed(_ground: Ground, view: NodeView, _profile: Profile, _spare_mib: int) -> str:
    if view.leaving:
        return "leaving"
    if view.drain is not None:
        return "draining"
    return "cordoned" if view.cordoned else ""


def _inventory(_ground: Ground, view: NodeView, profile: Profile, _spare_mib: int) -> str:
    if view.seen is None or view.seen.inventory.complete or not profile.accelerators:
        return ""
    return f"without a complete inventory ({view.seen.inventory.problem or 'devices are still coming up'})"


def _host_memory(ground: Ground, view: NodeView, profile: Profile, spare_mib: int) -> str:
    wanted = profile.host_memory_mib
    if wanted is None or view.seen is None:
        return ""
    has = view.seen.inventory.host_memory_mib
    if has is None:
        return "with unknown main memory"
    left = has - ground.book(view.node.id).host_mib + spare_mib
    return "" if left >= wanted else f"short of {wanted} MiB of main memory"


FILTERS: tuple[Callable[[Ground, NodeView, Profile, int], str], ...] = (
    _other_pool,
    _state,
    _closed,
    _inventory,
    _host_memory,
)
"""The last argument: main memory in MiB to be counted as free."""


# --- refusals in words ---


def _shortage(ground: Ground, view: NodeView, profile: Profile) -> str:
    """What this node lacks."""
    entry = profile.accelerators[0] if profile.accelerators else None
    if entry is None:
        return "without room"
    devices, book = devices_of(view), ground.book(view.node.id)
    fitting = [d for d in devices if fits(entry, d)]
    if len(fitting) < entry.count:
        unknown = sum(1 for d in devices if d.memory_mib is None and entry.memory_mib is not None)
        suffix = f" ({unknown} of unknown memory)" if unknown else ""
        return f"with {len(fitting)} such device{'s' * (len(fitting) != 1)}{suffix}"
    foreign = [d for d in fitting if d.foreign_mib > FOREIGN_LIMIT_MIB]
    ill = [d for d in fitting if d.health is not DeviceHealth.OK or (view.seen and d.id in view.seen.quarantined)]
    strays = [d for d in fitting if d.id in book.strays]
    free = [d for d in ground.free(view) if d in fitting]
    parts = [f"with {len(free)} free"]
    if ill:
        parts.append(f"{len(ill)} out of order or quarantined")
    if strays:
        parts.append(f"{len(strays)} held by engines that no assignment claims")
    if foreign:
        who = ", ".join(sorted({name for d in foreign for name in d.foreign_processes})[:3]) or "foreign processes"
        parts.append(f"{len(foreign)} used by {who}")
    return ", ".join(parts)


def _in_words(profile: Profile, ground: Ground) -> str:
    asked = " and ".join(in_words(entry) for entry in profile.accelerators) or "no device"
    if not ground.views:
        return f"needs {asked} in pool {profile.pool}: the fleet has no nodes"
    fallen = Counter(offer for _, offer in ground.offers(profile, _offer) if isinstance(offer, str))
    counted = (f"{n} node{'s' * (n != 1)} {text}" for text, n in sorted(fallen.items(), key=lambda i: (-i[1], i[0])))
    return f"needs {asked} in pool {profile.pool}: " + "; ".join(counted)


def in_words(entry: Accelerators) -> str:
    size = "" if entry.memory_mib is None else f" with at least {entry.memory_mib / 1024:g} GiB"
    return f"{entry.count} × {entry.kind or 'any device'}{size}"


def hosts(assignments: Iterable[Assignment], model: ModelName) -> Counter[NodeId]:
    """How many replicas of a model each node has."""
    return Counter(a.node for a in assignments if a.model == model)
