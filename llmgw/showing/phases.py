"""The phase of a fleet: one word for what it is doing, and what is left to do, in words."""

from collections import Counter
from collections.abc import Callable
from enum import StrEnum

from llmgw import holding, members
from llmgw.demand import desired
from llmgw.ids import ModelName, RouterId
from llmgw.launches import fingerprints
from llmgw.memo import Latest
from llmgw.recent import Recent
from llmgw.sentences import counted, names_shown
from llmgw.world import Assignment, SilenceLevel, World


class Phase(StrEnum):
    ENDING = "ending"
    FENCED = "fenced"  # somebody else commands: observe only
    SAFE_MODE = "safe_mode"  # deciding fails: nothing is started or stopped
    OVERTAKEN = "overtaken"  # our memory is older than the fleet's: listening before commanding
    PAUSED = "paused"  # by an operator: watching and publishing alone
    SETTLING = "settling"  # hearing the nodes before anything is started or stopped
    NO_CATALOG = "no_catalog"
    HELD = "held"  # a catalog waits for a confirmation
    CONVERGING = "converging"  # on the way to what is wanted
    DEGRADED = "degraded"  # nothing is under way, and something is out of order or lacking
    STEADY = "steady"


def phase(world: World, recent: Recent, now_s: float) -> Phase:
    """The first phase whose rule holds."""
    return next(phase for phase, holds in _RULES if holds(world, recent, now_s))


_RULES: tuple[tuple[Phase, Callable[[World, Recent, float], bool]], ...] = (
    (Phase.ENDING, lambda world, _, __: world.ending),
    (Phase.FENCED, lambda world, _, __: world.fenced_by is not None),
    (Phase.SAFE_MODE, lambda _, recent, __: bool(recent.safe_mode)),
    (Phase.OVERTAKEN, lambda world, _, __: world.overtaken_by is not None),
    (Phase.PAUSED, lambda world, _, now_s: holding.paused(world, now_s) is not None),
    (Phase.SETTLING, lambda world, _, __: world.settling_since_s is not None and _has_any_to_hear(world)),
    (Phase.NO_CATALOG, lambda world, _, __: world.catalog is None),
    (Phase.HELD, lambda world, _, __: world.held is not None),
    (Phase.CONVERGING, lambda world, _, now_s: is_moving(world, now_s)),
    (Phase.DEGRADED, lambda world, _, now_s: bool(world.waiting or lacking_models(world, now_s))),
    (Phase.STEADY, lambda _, __, ___: True),
)


def _has_any_to_hear(world: World) -> bool:
    return world.catalog is not None or bool(members.nodes(world))


LASTING = frozenset(
    {
        "brake",
        "crashes",
        "failed",
        "foreign",
        "lost",
        "no_place",
        "quarantined",
        "rolled_back",
        "set_aside",
        "silent",
        "unreadable",
        "wake_overdue",
    }
)
"""Codes of waiting entries that the plane itself does nothing about: a person or the world has to."""


UNTIL_PEOPLE = frozenset({"canary", "unclaimed"})
"""The same, where the entry has no end of its own."""


def is_moving(world: World, now_s: float) -> bool:
    """Whether the plane is on its way: something is decided, told or timed and not there yet."""
    waits = world.waiting.values()
    if any(w.code not in LASTING and (w.code not in UNTIL_PEOPLE or w.until_s is not None) for w in waits):
        return True
    lacking = (world.waiting.get(f"model/{name}") for name in lacking_models(world, now_s))
    if any(waiting is None or waiting.code not in LASTING for waiting in lacking):
        return True
    published = world.table.endpoints
    unlike = [a for a in world.assignments.values() if a.stop is not None or a.replica not in published]
    return any(_is_under_way(world, a) for a in unlike) or any(world.outbox.values()) or bool(routers_behind(world))


def _is_under_way(world: World, assignment: Assignment) -> bool:
    """On its way in or out; what a lost node holds waits for the node."""
    if assignment.stop is None and (assignment.unreadable or assignment.replica in world.table.endpoints):
        return False
    if assignment.stop is None and assignment.sleep is not None and assignment.sleep.commanded:
        return assignment.sleep.ends
    return members.node_level(world, assignment.node) is not SilenceLevel.LOST


def unfinished(world: World, now_s: float) -> tuple[str, ...]:
    """What is left to do, or else to wait for; empty when everything is as wanted."""
    said = unlike_wanted(world, now_s)
    return said or ((f"{counted(len(world.waiting), 'reason')} to wait",) if world.waiting else ())


def unlike_wanted(world: World, now_s: float) -> tuple[str, ...]:
    """What differs from what is wanted, in words; empty when nothing does."""
    lacking = sorted(lacking_models(world, now_s))
    stopping = sum(1 for a in world.assignments.values() if a.stop is not None)
    rolling = sorted(rolling_models(world) - set(lacking))
    untold = sum(1 for items in world.outbox.values() if items)
    behind = sorted(routers_behind(world))
    said = (
        f"{counted(len(lacking), 'model')} without all replicas: {names_shown(lacking)}" if lacking else "",
        f"{counted(len(rolling), 'model')} served by the version before the edit: {names_shown(rolling)}"
        if rolling
        else "",
        f"{counted(stopping, 'replica')} on the way out" if stopping else "",
        f"{counted(untold, 'node')} with commands outstanding" if untold else "",
        f"without the newest table: {names_shown(behind)}" if behind else "",
    )
    return tuple(text for text in said if text)


def lacking_models(world: World, now_s: float) -> frozenset[ModelName]:
    """Models with fewer published replicas than are wanted."""
    if world.catalog is None:
        return frozenset()
    ready = _published(world)
    return frozenset(m.name for m in world.catalog.models if ready[m.name] < desired(world, m, now_s))


_PUBLISHED: Latest[str, Counter[str]] = Latest(64)


def _published(world: World) -> Counter[str]:
    """Endpoints per model."""
    endpoints = world.table.endpoints
    return _PUBLISHED.get(
        world.fleet, (endpoints,), lambda: Counter(e.models[0] for e in endpoints.values() if e.models)
    )


def rolling_models(world: World) -> frozenset[ModelName]:
    """Models with endpoints of a version that is no longer the catalog's, while the new one waits or rolls."""
    if world.catalog is None or not world.good:
        return frozenset()
    prints = fingerprints(world.catalog).of
    served = (world.assignments[r] for r in world.table.endpoints if r in world.assignments)
    return frozenset(a.model for a in served if a.model in world.good and a.fingerprint not in prints.get(a.model, ()))


def routers_behind(world: World) -> frozenset[RouterId]:
    """Routers that are heard, or may be, and have not confirmed the newest table."""
    return frozenset(
        id_
        for id_ in members.routers(world)
        if not _is_silent(world, id_) and _acked(world, id_) < world.table_revision
    )


def _acked(world: World, id_: RouterId) -> int:
    facts = world.routers.get(id_)
    return -1 if facts is None else facts.acked_revision


def _is_silent(world: World, id_: RouterId) -> bool:
    silence = world.silence.get(f"router/{id_}")
    return silence is not None and silence.level is not SilenceLevel.HEARD
