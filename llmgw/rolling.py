"""Which version of a changed model runs: the catalog's, and for some of its replicas, or all, the last good one.

The last good version is the entry that served when it was edited. It is kept while the new one rolls, through further
edits, and brought back when every profile of the new version was given up, or an operator reverts. A canary lets the
new version have few replicas at first. A version is named by its fingerprints, so that a wish about it ends with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from llmgw import attempts, canonical, members
from llmgw.catalog import Catalog, Model
from llmgw.draft import Draft
from llmgw.ids import Fingerprint, ModelName
from llmgw.launches import fingerprints
from llmgw.wire import EngineState
from llmgw.world import Assignment, World


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a model: the catalog that describes it, and why it is not the one in force."""

    catalog: Catalog
    model: Model
    back: str = ""
    """Why the last good version runs; empty for the one in force."""

    @property
    def prints(self) -> Mapping[Fingerprint, int]:
        """Fingerprint to index of the profile."""
        return fingerprints(self.catalog).of[self.model.name]


def name_of(prints: Mapping[Fingerprint, int]) -> str:
    """A version's name; the order of its profiles does not matter."""
    return canonical.digest(sorted(prints), size=8)


# --- what is kept --------------------------------------------------------------------------------------------------


def entry_of(catalog: Catalog, name: ModelName) -> Catalog | None:
    """A model's entry alone, with the engines it names."""
    model = catalog.model(name)
    if model is None:
        return None
    used = {profile.engine for profile in model.profiles}
    engines = {k: v for k, v in catalog.engines.items() if k in used}
    return Catalog(models=(model.model_copy(update={"aliases": ()}),), engines=engines)


def to_keep(before: World, after: World) -> tuple[ModelName, ...]:
    """Models that served as `before` describes them and not as `after` does, and have no last good version yet."""
    old, new = before.catalog, after.catalog
    if old is None or new is None or old is new:
        return ()
    was, now = fingerprints(old).of, fingerprints(new).of
    served: dict[ModelName, set[Fingerprint]] = {}
    for replica in before.table.endpoints:
        if (a := before.assignments.get(replica)) is not None:
            served.setdefault(a.model, set()).add(a.fingerprint)
    found = (
        name
        for name, prints in served.items()
        if name in was and name in now and name not in before.good and prints & was[name].keys() - now[name].keys()
    )
    return tuple(sorted(found))


def remember(before: World, after: World, names: tuple[ModelName, ...]) -> World:
    """`after` with the entries of `names` in `before` as their last good versions."""
    if before.catalog is None or not names:
        return after
    entries = {name: entry for name in names if (entry := entry_of(before.catalog, name)) is not None}
    return replace(after, good={**after.good, **entries})


def to_forget(draft: Draft) -> tuple[ModelName, ...]:
    """Models that are all of the version in force and serve, and such as left."""
    return tuple(sorted(name for name in draft.world.good if _is_over(draft, name)))


def _is_over(draft: Draft, name: ModelName) -> bool:
    catalog, model = draft.world.catalog, draft.models.get(name)
    if catalog is None:
        return False
    if model is None:
        return not any(a.model == name for a in draft.assignments.values())
    prints = fingerprints(catalog).of[name]
    mine = [a for a in draft.assignments.values() if a.model == name and not a.unreadable]
    return bool(mine) and all(a.fingerprint in prints and _serves(draft, a) for a in mine)


def _serves(draft: Draft, assignment: Assignment) -> bool:
    view = draft.survey.of(assignment.node)
    row = view.rows.get(assignment.replica) if view is not None and view.judges else None
    return assignment.stop is None and row is not None and row.state is EngineState.READY


# --- which version counts ------------------------------------------------------------------------------------------


def version(draft: Draft, model: Model) -> Version:
    """The version that the model's replicas are to be of in this pass."""
    catalog = draft.world.catalog
    assert catalog is not None, "models come from a catalog"  # noqa: S101 - a programming error, not bad input
    in_force = Version(catalog, model)
    former = last_good(draft.world, model)
    why = "" if former is None else _why_back(draft, in_force)
    return in_force if former is None or not why else replace(former, back=why)


def last_good(world: World, model: Model) -> Version | None:
    """The version that served last, while another one rolls."""
    kept = world.good.get(model.name)
    entry = None if kept is None else kept.model(model.name)
    return None if kept is None or entry is None else Version(kept, entry)


def _why_back(draft: Draft, in_force: Version) -> str:
    name, prints = in_force.model.name, in_force.prints
    if draft.world.wishes.reverted.get(name) == name_of(prints):
        return "an operator went back to it"
    failures = attempts.counted(draft.world, in_force.model, draft.failures.get(name, ()))
    policy = in_force.catalog.policy
    lost = [attempts.given_up(failures, print_, policy.max_attempts) for print_ in prints]
    found = [f for f in lost if f is not None]
    mine = (a for a in draft.assignments.values() if a.model == name and a.fingerprint in prints)
    if len(found) < len(lost) or any(_serves(draft, a) for a in mine):
        return ""
    last = max(found, key=lambda f: f.at_s)
    line = f"; last log line: {last.log_tail[-1]}" if last.log_tail else ""
    how = attempts.how_given_up(failures, last, policy.max_attempts)
    return f"the new version {how}, last: {last.text}{line}"


# --- canaries ------------------------------------------------------------------------------------------------------


def canary_limit(draft: Draft, in_force: Version, serving: list[Assignment], wanted: int) -> int | None:
    """How many replicas the new version may have for now; None where it may have all. `serving`: those that serve."""
    canary, name = in_force.model.canary, in_force.model.name
    if canary is None or canary.replicas >= wanted or in_force.back or name not in draft.world.good:
        return None
    if draft.world.wishes.promoted.get(name) == name_of(in_force.prints):
        return None
    if len(serving) < canary.replicas:
        return canary.replicas
    over_s = None
    if canary.hold_s is not None:
        since = [draft.world.published_s.get(a.replica, draft.now_s) for a in serving]
        over_s = sorted(since)[canary.replicas - 1] + canary.hold_s
        if draft.now_s >= over_s:
            return None
    text = f"{len(serving)} of {wanted} replicas try the new version"
    ends = "until it has served long enough" if canary.hold_s is not None else f"until `llmgw promote {name}`"
    draft.wait(f"model/{name}", "canary", f"{text}; the others keep the last good one {ends}", over_s)
    return canary.replicas


def tidied(world: World, wishes: Mapping[ModelName, str]) -> Mapping[ModelName, str]:
    """Of wishes about versions those that still mean something."""
    if world.catalog is None or not wishes:
        return wishes
    of = fingerprints(world.catalog).of
    kept = {name: version for name, version in wishes.items() if name in of and name_of(of[name]) == version}
    return wishes if len(kept) == len(wishes) else kept


def present_name(world: World, name: ModelName) -> str:
    """The name of the version in force; empty for a model that the catalog does not have."""
    if world.catalog is None or name not in members.model_names(world):
        return ""
    return name_of(fingerprints(world.catalog).of[name])
