"""The fleet's devices as one pass knows them: who holds each, which are free, and the spot a profile would get on a
node. Kept up to date while the pass places; spots are worked out once per kind of demand and node.

A device is taken from the decision until it is proven free. One that is being released may be claimed and is waited
for. What an engine holds that no assignment claims is taken as well.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from llmgw.catalog import Accelerators, Profile
from llmgw.draft import Draft, by_node
from llmgw.fitting import pick
from llmgw.ids import DeviceId, NodeId, PoolName
from llmgw.nodes import NodeView
from llmgw.wire import Device, DeviceClaim, DeviceHealth
from llmgw.world import Assignment

FOREIGN_LIMIT_MIB = 512
"""Memory that foreign processes may hold on a device we call free (a display, a driver's baseline)."""

Shape: TypeAlias = tuple[PoolName, tuple[Accelerators, ...], int | None]


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


@dataclass
class _Book:
    """One node's devices and main memory."""

    holders: dict[DeviceId, list[Assignment]] = field(default_factory=dict)
    strays: set[DeviceId] = field(default_factory=set)
    """Held by engines that no assignment claims."""
    host_mib: int = 0
    """Main memory promised."""

    def add(self, assignment: Assignment) -> None:
        for claim in assignment.claims:
            self.holders.setdefault(claim.device, []).append(assignment)
        self.host_mib += assignment.host_memory_mib

    def remove(self, assignment: Assignment) -> None:
        for claim in assignment.claims:
            left = [a for a in self.holders.get(claim.device, ()) if a.replica != assignment.replica]
            if left:
                self.holders[claim.device] = left
            else:
                self.holders.pop(claim.device, None)
        self.host_mib -= assignment.host_memory_mib

    def is_being_released(self, device: DeviceId) -> bool:
        holders = self.holders.get(device, ())
        told = all(a.stop is not None and a.stop.commanded for a in holders)
        return bool(holders) and told and device not in self.strays


@dataclass
class Ground:
    """Books of one pass, opened per node when somebody asks for it."""

    draft: Draft
    views: Mapping[NodeId, NodeView]
    books: dict[NodeId, _Book] = field(default_factory=dict)
    known: dict[Shape, dict[NodeId, Spot | str]] = field(default_factory=dict)
    """What each node offers to a kind of demand, or why it does not."""
    nowhere: dict[Shape, str] = field(default_factory=dict)
    """Kinds of demand that no node meets now, and why in words."""
    _by_node: dict[NodeId, list[Assignment]] | None = None

    @classmethod
    def of(cls, draft: Draft) -> "Ground":
        return cls(draft, draft.survey.nodes)

    def book(self, node: NodeId) -> _Book:
        """Who holds what on a node."""
        if node not in self.books:
            if self._by_node is None:
                self._by_node = by_node(self.draft.assignments.values())
            self.books[node] = _opened(self.draft, node, self._by_node.get(node, ()))
        return self.books[node]

    def take(self, assignment: Assignment) -> None:
        """From now on it holds its claims."""
        self.book(assignment.node).add(assignment)
        self._changed(assignment.node)

    def give_back(self, assignment: Assignment) -> None:
        """It is gone: proven, or never begun."""
        self.book(assignment.node).remove(assignment)
        self._changed(assignment.node)

    def _changed(self, node: NodeId) -> None:
        for offers in self.known.values():
            offers.pop(node, None)
        self.nowhere.clear()

    def offers(
        self, profile: Profile, ask: Callable[["Ground", NodeView, Profile], Spot | str]
    ) -> Iterable[tuple[NodeId, Spot | str]]:
        """What every node offers to the profile, by `ask` where it is not known yet."""
        known = self.known.setdefault(shape(profile), {})
        for id_, view in self.views.items():
            offer = known.get(id_)
            if offer is None:
                offer = known[id_] = ask(self, view, profile)
            yield id_, offer

    # --- devices of one node ---

    def free(self, view: NodeView) -> list[Device]:
        book = self.book(view.node.id)
        return [
            d for d in devices_of(view) if d.id not in book.holders and d.id not in book.strays and is_usable(view, d)
        ]

    def free_soon(self, view: NodeView) -> list[Device]:
        """Devices that are being released and that nobody waits for yet."""
        book = self.book(view.node.id)
        return [d for d in devices_of(view) if book.is_being_released(d.id) and is_usable(view, d)]

    def spot(self, view: NodeView, profile: Profile, released: Iterable[DeviceId] = ()) -> Spot | None:
        """The devices for every entry of the profile, met together on this node; None when they are not there.
        `released`: devices to be counted as being released."""
        free = self.free(view)
        taken = pick(profile.accelerators, free)
        if taken is not None:
            return _made(view, taken, len(free) - len(taken), waits=False)
        also = set(released)
        soon = [*free, *self.free_soon(view), *(d for d in devices_of(view) if d.id in also and is_usable(view, d))]
        taken = pick(profile.accelerators, soon) if len(soon) > len(free) else None
        return None if taken is None else _made(view, taken, len(soon) - len(taken), waits=True)


def shape(profile: Profile) -> Shape:
    """What a profile asks of a node: equal shapes fit equally."""
    return profile.pool, profile.accelerators, profile.host_memory_mib


def devices_of(view: NodeView) -> Sequence[Device]:
    return () if view.seen is None else view.seen.inventory.devices


def is_usable(view: NodeView, device: Device) -> bool:
    quarantined = view.seen is not None and device.id in view.seen.quarantined
    return device.health is DeviceHealth.OK and not quarantined and device.foreign_mib <= FOREIGN_LIMIT_MIB


def _made(view: NodeView, taken: Sequence[Device], left: int, *, waits: bool) -> Spot:
    claims = tuple(DeviceClaim(device=d.id) for d in taken)
    return Spot(view, claims, taken[0].vendor if taken else None, left, waits)


def _opened(draft: Draft, node: NodeId, mine: Iterable[Assignment]) -> _Book:
    book = _Book()
    for assignment in mine:
        book.add(assignment)
    view = draft.survey.of(node)
    for row in () if view is None or view.seen is None else view.seen.replicas:
        assigned = draft.assignments.get(row.replica)
        if assigned is None or assigned.node != node:
            book.strays.update(claim.device for claim in row.claims)
    return book
