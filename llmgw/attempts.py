"""Failed attempts: when the next may be made, and when a profile is given up.

The first failure of a replica that was ready restarts at once; then 10 s times two to the power of the failures in a
row, at most 300 s. After `max_attempts` in a row a profile is given up until its fingerprint changes or an operator
restarts or wakes the model, unless it serves elsewhere. Failures of what the catalog no longer describes do not count.
"""

from collections.abc import Collection, Sequence

from llmgw.catalog import Model
from llmgw.ids import Fingerprint, ModelName
from llmgw.launches import fingerprints
from llmgw.world import Assignment, Failure, World

FIRST_DELAY_S = 10.0
LONGEST_DELAY_S = 300.0
CALM_S = 600.0
"""A replica that lived this long begins anew; failures older than this are forgotten."""
KEPT = 50


def counted(world: World, model: Model, known: Sequence[Failure]) -> tuple[Failure, ...]:
    """Failures that still count: of the model as it is now, after its last restart or wake."""
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
    """The failure by which a profile was given up, or None."""
    return next((f for f in failures if f.fingerprint == fingerprint and f.attempt >= max_attempts), None)


def attempt_of(assignment: Assignment, was_ready: bool, now_s: float) -> int:
    """How many attempts in a row have failed, now that this one has."""
    return 1 if was_ready and now_s - assignment.created_s > CALM_S else assignment.attempt


def with_failure(known: Sequence[Failure], failure: Failure) -> tuple[Failure, ...]:
    return (*known, failure)[-KEPT:]


def forgotten_s(world: World, failure: Failure, model: ModelName) -> float | None:
    """When a failure no longer matters: long past, or at once where it is of a former version. None: while nothing
    changes, such as one by which a profile is given up."""
    if world.catalog is None:
        return None
    found = world.catalog.model(model)
    if found is None or failure.fingerprint not in described(world, model):
        return failure.at_s
    if failure.attempt >= world.catalog.policy.max_attempts:
        return None
    return failure.at_s + CALM_S + max(p.start_limit_s for p in found.profiles)
