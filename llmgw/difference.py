"""From a finished pass to its plan: only what differs from the world it was made from."""

from collections.abc import Mapping
from typing import TypeVar

from llmgw import members
from llmgw.draft import Draft
from llmgw.ids import NodeId
from llmgw.world import Known, World

K = TypeVar("K", bound=str)
V = TypeVar("V")


def changed(before: Mapping[K, V], after: Mapping[K, V]) -> dict[K, V]:
    """Entries that are new or other."""
    same = ((key, value, before.get(key)) for key, value in after.items())
    return {key: value for key, value, was in same if was is not value and was != value}


def removed(before: Mapping[K, V], after: Mapping[K, V]) -> tuple[K, ...]:
    return tuple(sorted(key for key in before if key not in after))


def in_order(entries: Mapping[K, V]) -> tuple[V, ...]:
    return tuple(entries[key] for key in sorted(entries))


def with_removed(before: Mapping[K, V], after: Mapping[K, V]) -> dict[K, V | None]:
    """Changed entries, and None for those that are gone."""
    return {**changed(before, after), **dict.fromkeys(removed(before, after))}


def first(changes: Mapping[K, V], limit: int) -> dict[K, V]:
    """The first of the changes; a plan stays under 64 KB and the rest follow in the next."""
    return dict(changes) if len(changes) <= limit else {key: changes[key] for key in sorted(changes)[:limit]}


def known_of(draft: Draft) -> dict[NodeId, Known]:
    """Identities as the reports of nodes that judge give them. An incomplete inventory says nothing of devices."""
    found: dict[NodeId, Known] = {}
    for id_, view in draft.survey.nodes.items():
        if view.judges and view.seen is not None:
            before, devices = draft.world.known.get(id_), tuple(d.id for d in view.seen.inventory.devices)
            if not view.seen.inventory.complete and before is not None:
                devices = before.devices
            found[id_] = Known(view.seen.machine, view.seen.boot, devices)
    return found


def targets_changed(before: World, after: World) -> bool:
    """Whether other streams have to be held, or other limits of silence hold."""
    same = before.catalog is after.catalog and before.wishes is after.wishes
    return not same and _targets(before) != _targets(after)


def _targets(world: World) -> object:
    policy = world.catalog.policy if world.catalog is not None else None
    return (
        {id_: node.url for id_, node in members.nodes(world).items()},
        {id_: (r.url, r.kind, r.settings) for id_, r in members.routers(world).items()},
        None if policy is None else (policy.suspect_after_s, policy.lost_after_s),
    )
