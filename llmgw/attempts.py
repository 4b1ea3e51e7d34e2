"""Failed attempts: when the next may be made, and when a profile is given up.

The first failure of a replica that was ready restarts at once; then 10 s times two to the power of the failures in a
row, at most 300 s. After `max_attempts` in a row, or failed starts on three nodes since it was last ready, a profile is
given up until its fingerprint changes or an operator restarts or wakes the model, unless it serves elsewhere. Failures
of what the catalog no longer describes do not count.
"""

from collections.abc import Collection, Sequence

from llmgw.catalog import Model
from llmgw.ids import Fingerprint, ModelName, NodeId
from llmgw.launches import fingerprints
from llmgw.sentences import names_shown
from llmgw.world import Assignment, Failure, World

FIRST_DELAY_S = 10.0
LONGEST_DELAY_S = 300.0
CALM_S = 600.0
"""A replica that lived this long begins anew; failures older than this are forgotten."""
KEPT = 50
MANY_NODES = 3
"""Starts of one profile that fail on so many nodes are the profile's fault."""


def counted(world: World, model: Model, known: Sequence[Failure]) -> tuple[Failure, ...]:
    """Failures that still count: of the model as it is now, after its last restart or wake."""
    if not known:
        return ()
    since_s = max(world.wishes.restarts.get(model.name, 0.0), world.wishes.wakes.get(model.name, 0.0))
    current = described(world, model.name)
    return tuple(f for f in known if f.at_s > since_s and f.fingerprint in current)


def described(world: World, model: ModelName) -> Collection[Fingerprint]:
    """Fingerprints of the model as it is in force, and as it served last while that rolls."""
    kept = world.good.get(model)
    current = {} if world.catalog is None else fingerprints(world.catalog).of.get(model, {})
    return current if kept is None else {*current, *fingerprints(kept).of[model]}


def due_s(failure: Failure) -> float:
    """When the attempt after `failure` may be made."""
    if failure.attempt <= 1 and failure.was_ready:
        return failure.at_s
    return failure.at_s + min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** (failure.attempt - 1))


def open_failures(failures: Sequence[Failure]) -> list[Failure]:
    """Failures that no attempt has followed yet, the earliest due first."""
    return sorted((f for f in failures if not f.replaced), key=lambda f: (due_s(f), f.replica))


def given_up(failures: Sequence[Failure], fingerprint: Fingerprint, max_attempts: int) -> Failure | None:
    """The failure by which a profile was given up, or None: too many in a row, or starts that failed on so many nodes
    that it is not the node."""
    mine = [f for f in failures if f.fingerprint == fingerprint]
    in_a_row = next((f for f in mine if f.attempt >= max_attempts), None)
    if in_a_row is not None or len(failed_on(mine)) < MANY_NODES:
        return in_a_row
    return max((f for f in mine if not f.was_ready), key=lambda f: f.at_s)


def failed_on(failures: Sequence[Failure]) -> list[NodeId]:
    """Nodes on which a start of one profile failed since it was last seen ready: what came up since is not bad."""
    ready_s = max((f.at_s for f in failures if f.was_ready), default=0.0)
    return sorted({f.node for f in failures if not f.was_ready and f.at_s >= ready_s})


def how_given_up(failures: Sequence[Failure], lost: Failure, max_attempts: int) -> str:
    """Why `lost` was the last attempt, in words."""
    if lost.attempt >= max_attempts:
        return f"failed {lost.attempt} times in a row"
    nodes = failed_on([f for f in failures if f.fingerprint == lost.fingerprint])
    return f"failed on {len(nodes)} nodes ({names_shown(nodes)})"


def attempt_of(assignment: Assignment, was_ready: bool, now_s: float) -> int:
    """How many attempts in a row have failed, now that this one has."""
    return 1 if was_ready and now_s - assignment.created_s > CALM_S else assignment.attempt


def with_failure(known: Sequence[Failure], failure: Failure) -> tuple[Failure, ...]:
    return (*known, failure)[-KEPT:]


def forgotten_s(world: World, failure: Failure, model: ModelName, known: Sequence[Failure]) -> float | None:
    """When a failure no longer matters: long past, or at once where it is of a former version. None: while nothing
    changes, such as those by which a profile is given up."""
    if world.catalog is None:
        return None
    found = world.catalog.model(model)
    if found is None or failure.fingerprint not in described(world, model):
        return failure.at_s
    if given_up(known, failure.fingerprint, world.catalog.policy.max_attempts) is not None:
        return None
    return failure.at_s + CALM_S + max(p.start_limit_s for p in found.profiles)
