"""What models ask for, in the words of `llmgw.placing`: profiles as needs, models as requests.

A request here is what a model will ask for in this pass as far as can be told before it is judged; it guides the
plan for all, and nothing is placed that is not asked for in the end.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial

from llmgw import attempts, demand, rolling
from llmgw.catalog import Accelerators, Catalog, Model, Profile
from llmgw.draft import Draft
from llmgw.engines import engine_of
from llmgw.ids import DeviceId, ModelName, NodeId
from llmgw.memo import Latest
from llmgw.placing.need import Ask, Identity, Need, Request
from llmgw.rendering import unnameable, weights_of
from llmgw.wire import DeviceNaming

MOST_PROFILES = 20_000
NO_VENDOR = "a vendor whose devices its engine can name"


class Wording:
    """Profiles in the words of placing, each worked out once. `sorts`: vendors and identities of all devices. Of the
    catalog only the engines count."""

    def __init__(self, catalog: Catalog, sorts: Iterable[tuple[str, Identity]]) -> None:
        self._catalog, self._sorts = catalog, sorted(set(sorts))
        self._vendors = sorted({vendor for vendor, _ in self._sorts})
        self._needs: dict[int, tuple[Profile, Need]] = {}
        self._namers: dict[str, tuple[str, ...]] = {}
        self._barred: dict[str, frozenset[tuple[str, Identity]]] = {}

    def need(self, profile: Profile) -> Need:
        """What a profile asks of a node."""
        known = self._needs.get(id(profile))
        if known is None:
            if len(self._needs) >= MOST_PROFILES:
                self._needs.clear()
            need = _need(profile, self._nameable(profile), self._barred_by(profile))
            known = self._needs[id(profile)] = (profile, need)
        return known[1]

    def _nameable(self, profile: Profile) -> tuple[str, ...]:
        """Vendors whose devices can be named to the engine; none: all there are."""
        if not profile.accelerators:
            return ()
        found = self._namers.get(profile.engine)
        if found is None:
            found = tuple(v for v in self._vendors if unnameable(profile, self._catalog, v) is None)
            found = () if len(found) == len(self._vendors) else found or (NO_VENDOR,)
            self._namers[profile.engine] = found
        return found

    def _barred_by(self, profile: Profile) -> frozenset[tuple[str, Identity]]:
        """Sorts of devices that its engine, which takes devices by number or by UUID, could not be shown."""
        if not profile.accelerators:
            return frozenset()
        found = self._barred.get(profile.engine)
        if found is None:
            selection = engine_of(self._catalog, profile.engine).selection
            found = frozenset(
                (vendor, identity)
                for vendor, identity in self._sorts
                if identity and (by := selection(vendor)) is not None and by.naming is _LACKING[identity]
            )
            self._barred[profile.engine] = found
        return found


Sort = tuple[str, Identity]
"""Vendor and identity of a device."""
_WORDINGS: Latest[tuple[str, frozenset[Sort]], Wording] = Latest(64)


def wording(fleet: str, catalog: Catalog, sorts: frozenset[Sort]) -> Wording:
    """The wording of a fleet's catalog; it lasts as long as the engines and the sorts of its devices do."""
    return _WORDINGS.get((fleet, sorts), (catalog.engines,), lambda: Wording(catalog, sorts))


_LACKING: dict[Identity, DeviceNaming] = {"slice": DeviceNaming.INDEX, "bare": DeviceNaming.UUID}
"""How a device of that identity cannot be named."""


def _need(profile: Profile, vendors: tuple[str, ...], barred: frozenset[tuple[str, Identity]]) -> Need:
    return Need(
        asks=tuple(_ask(item, vendors, barred) for item in profile.accelerators),
        host_mib=profile.host_memory_mib or 0,
        pool=profile.pool,
        labels=frozenset(profile.labels.items()),
        prefers=frozenset(profile.prefer_labels.items()),
        nodes=frozenset(profile.nodes),
    )


@lru_cache(maxsize=4096)
def _ask(item: Accelerators, vendors: tuple[str, ...], barred: frozenset[tuple[str, Identity]]) -> Ask:
    return Ask(
        count=item.count,
        kinds=() if item.kind is None else (item.kind,),
        memory_mib=item.memory_mib,
        claim_mib=item.claim_mib,
        devices=frozenset(DeviceId(id_) for id_ in item.devices),
        aligned=item.aligned,
        vendors=vendors,
        barred=barred,
    )


def request_of(
    wording: Wording,
    model: Model,
    profiles: Sequence[Profile],
    *,
    count: int = 1,
    urgent: int | None = None,
    desired: int = 0,
    asked_s: float = 0.0,
    avoid: frozenset[NodeId] = frozenset(),
    never: frozenset[NodeId] = frozenset(),
) -> Request:
    return Request(
        model=model.name,
        needs=tuple(wording.need(profile) for profile in profiles),
        count=count,
        rank=model.priority,
        urgent=urgent,
        asked_s=asked_s,
        desired=desired,
        weights=tuple(weights_of(model, profile) for profile in profiles),
        max_per_node=model.max_per_node,
        spread_zones=model.spread_zones,
        group=model.exclusive_group,
        avoid=avoid,
        never=never,
    )


def requests(
    draft: Draft, catalog: Catalog, wording: Wording, crashing: frozenset[NodeId] = frozenset()
) -> list[Request]:
    """Every model's request; of many the count is 0. `crashing`: nodes that are left out."""
    return [_expected(draft, catalog, wording, model, crashing) for model in catalog.models]


_MET: Latest[tuple[str, ModelName, int], Request] = Latest(20_000)


def _expected(draft: Draft, catalog: Catalog, wording: Wording, model: Model, crashing: frozenset[NodeId]) -> Request:
    wanted = max(0, demand.desired(draft.world, model, draft.now_s) - demand.unread(draft, model))
    version = rolling.version(draft, model)
    mine = draft.of_model(model.name)
    if demand.is_met(draft, version, mine):
        name = draft.world.fleet, model.name, wanted
        asks_nothing = partial(request_of, wording, model, model.profiles, count=0, desired=wanted)
        return _MET.get(name, (wording, model), asks_nothing)
    alive = [a for a in mine if a.stop is None or not a.stop.commanded]
    current, profiles = version.prints, version.model.profiles
    good = sum(1 for a in alive if demand.why_moves(draft, a, current) is None)
    canary = model.canary if model.name in draft.world.good and not version.back else None
    missing = max(0, (wanted if canary is None else min(wanted, canary.replicas)) - good)
    if not missing:
        return request_of(wording, model, profiles, count=0, desired=wanted)
    there = sum(1 for a in alive if not demand.is_displaced(draft, a) and not demand.is_lost(draft, a))
    urgent = max(0, min(missing, wanted - there))
    failures = attempts.counted(draft.world, model, draft.failures.get(model.name, ()))
    failed = attempts.open_failures(failures)
    due = sum(1 for f in failed if attempts.due_s(f) <= draft.now_s)
    count = min(missing, urgent + demand.slack(wanted), due + max(0, missing - len(failed)))
    limit = catalog.policy.max_attempts
    left = [profiles[n] for print_, n in current.items() if not attempts.given_up(failures, print_, limit)]
    return request_of(
        wording,
        model,
        left or profiles,
        count=count if left else 0,
        urgent=min(urgent, count),
        desired=wanted,
        asked_s=demand.asked_s(draft.world, model, draft.now_s),
        avoid=frozenset(f.node for f in failures),
        never=crashing,
    )
