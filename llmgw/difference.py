"""From a finished pass to its plan: only what differs from the world it was made from."""

from collections.abc import Mapping
from typing import TypeVar

from llmgw import members
from llmgw.draft import Draft
from llmgw.ids import NodeId
from llmgw.memo import Latest
from llmgw.world import Known, Seen, World

K = TypeVar("K", bound=str)
V = TypeVar("V")


def changed(before: Mapping[K, V], after: Mapping[K, V]) -> dict[K, V]:
    """Entries that are new or other."""
    get = before.get
    return {key: value for key, value in after.items() if (was := get(key)) is not value and was != value}


def removed(before: Mapping[K, V], after: Mapping[K, V]) -> tuple[K, ...]:
    return tuple(sorted(before.keys() - after.keys()))


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
        if (seen := view.seen) is not None and view.judges:
            before = draft.world.known.get(id_)
            name = draft.world.fleet, id_
            found[id_] = _KNOWN.get(name, (seen, before), lambda s=seen, b=before: _known(s, b))  # type: ignore[misc]
    return found


_KNOWN: Latest[tuple[str, NodeId], Known] = Latest(20_000)


def _known(seen: Seen, before: Known | None) -> Known:
    devices = tuple(d.id for d in seen.inventory.devices)
    if not seen.inventory.complete and before is not None:
        devices = before.devices
    made = Known(seen.machine, seen.boot, devices)
    return before if made == before and before is not None else made


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
