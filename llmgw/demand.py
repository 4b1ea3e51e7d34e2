"""What is wanted of each model against what there is: keep, take back, stop, and how many to place anew.

Moves start first where there is a place and stop first where there is none, at most max(1, 10 %) down by choice.
What serves now is stopped only when what replaces it is ready.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from llmgw import rolling
from llmgw.catalog import Idle, Model
from llmgw.draft import Draft
from llmgw.ids import Fingerprint, ModelName, ReplicaId
from llmgw.memo import Latest
from llmgw.rolling import Version
from llmgw.sentences import counted
from llmgw.stopping import live_routers
from llmgw.wire import EngineState
from llmgw.world import Assignment, StopCause, World


@dataclass(frozen=True, slots=True)
class Demand:
    """A model that lacks `missing` replicas: `urgent` of them now, the rest as far as a move may surge."""

    version: Version
    missing: int
    urgent: int
    surge: int
    movers: tuple[Assignment, ...]
    """Replicas that serve and are to be replaced, the next to give way first."""
    desired: int
    serving: int
    """Replicas that serve and stay."""
    former: int = 0
    """Replicas of the last good version that a canary leaves to it and that are missing."""

    @property
    def to_place(self) -> int:
        return min(self.missing, self.urgent + self.surge)


def desired(world: World, model: Model, now_s: float) -> int:
    """How many replicas of the model are wanted now: never outside its bounds."""
    count = model.replicas.min
    scale = world.wishes.scales.get(model.name)
    if scale is not None and (scale.until_s is None or now_s < scale.until_s):
        count = scale.replicas
    if model.name in world.wishes.wakes:
        count = max(count, 1)
    return min(max(count, model.replicas.min), model.replicas.max)


def asked_s(world: World, model: Model, now_s: float) -> float:
    """Since when it is asked for, where nothing but a wish to wake wants it; 0 where it is wanted at any rate."""
    if model.replicas.min > 0:
        return 0.0
    scale = world.wishes.scales.get(model.name)
    if scale is not None and scale.replicas > 0 and (scale.until_s is None or now_s < scale.until_s):
        return 0.0
    return world.wishes.wakes.get(model.name, 0.0)


def is_met(draft: Draft, version: Version, mine: Sequence[Assignment]) -> bool:
    """Whether a model has exactly what is wanted, all of it steady and of that version: the common case, in which
    `assess` would change nothing. `mine`: all its replicas."""
    model, wishes = version.model, draft.world.wishes
    if version.back or not draft.is_steady(model.name) or model.name in wishes.scales:
        return False
    if len(mine) != desired(draft.world, model, draft.now_s):
        return False
    if wishes.restarts and (model.name in wishes.restarts or any(a.replica in wishes.restarts for a in mine)):
        return False
    prints = version.prints
    return _OF_VERSION.get(
        (draft.world.fleet, model.name), (mine, prints), lambda: all(a.fingerprint in prints for a in mine)
    )


_OF_VERSION: Latest[tuple[str, ModelName], bool] = Latest(20_000)


def assess(draft: Draft, version: Version, alive: Sequence[Assignment]) -> Demand:
    """Wish, keep and take back for one model; what it lacks comes back. `version`: what its replicas are to be.
    `alive`: readable ones that are not yet commanded to stop."""
    model = version.model
    wanted = max(0, desired(draft.world, model, draft.now_s) - unread(draft, model))
    scale = draft.world.wishes.scales.get(model.name)
    if scale is not None and scale.until_s is not None:
        draft.wake(scale.until_s)
    current = version.prints
    if len(alive) == wanted and all(_is_as_wanted(draft, a, current) for a in alive):
        return Demand(version, 0, 0, 0, (), wanted, 0)
    reasons = {a.replica: why_moves(draft, a, current) for a in alive}
    keep = _keep(draft, model, [a for a in alive if reasons[a.replica] is None], wanted, current)
    serves = [a for a in keep if is_serving(draft, a)]
    serving = len(serves)
    movers = sorted((a for a in alive if reasons[a.replica] is not None and not is_lost(draft, a)), key=_gives_way_last)
    limit = rolling.canary_limit(draft, version, serves, wanted)
    most = wanted if limit is None else limit
    former = rolling.last_good(draft.world, model) if limit is not None else None
    may_come = frozenset[Fingerprint]() if former is None else frozenset(former.prints)
    stay = _moves(draft, movers, reasons, max(0, wanted - serving), may_come)
    missing = max(0, most - len(keep))
    urgent = max(0, missing - len(stay))
    coming = len(keep) - serving + urgent
    surge = max(0, slack(wanted) + _drained(reasons, stay) - coming) if stay else 0
    lost = max(0, wanted - most - sum(1 for a in movers if not is_displaced(draft, a)))
    return Demand(version, missing, urgent, surge, tuple(reversed(stay)), wanted, serving, lost)


def _is_as_wanted(draft: Draft, assignment: Assignment, current: Mapping[Fingerprint, int]) -> bool:
    return assignment.stop is None and assignment.sleep is None and why_moves(draft, assignment, current) is None


def unread(draft: Draft, model: Model) -> int:
    """Replicas that count although their records could not be read: none is started in their place, none stopped."""
    if not draft.world.unreadable:
        return 0
    mine = (a for a in draft.assignments.values() if a.unreadable and a.model == model.name)
    return sum(1 for a in mine if a.stop is None and not is_lost(draft, a))


def _keep(
    draft: Draft, model: Model, good: list[Assignment], wanted: int, current: Mapping[Fingerprint, int]
) -> list[Assignment]:
    """The best of what may stay; the others are surplus."""
    if len(good) > wanted:
        crowd, unused = Counter(a.node for a in good), idle(draft.world)
        good.sort(key=lambda a: (*_keep_rank(draft, a, current, unused), crowd[a.node], len(a.replica), a.replica))
    for assignment in good[:wanted]:
        draft.take_back(assignment)
        draft.awaken(draft.assignments[assignment.replica])
    asleep = _falls_asleep(draft, model, good[wanted:])
    for assignment in good[wanted:]:
        if assignment is not asleep:
            draft.want_stop(assignment, StopCause.SURPLUS, _why_spare(draft, model, assignment, wanted))
    return [*good[:wanted], *([] if asleep is None else [asleep])]


def _falls_asleep(draft: Draft, model: Model, spare: Sequence[Assignment]) -> Assignment | None:
    """The one that sleeps where it is instead of being stopped, where only idleness is the reason: what sleeps
    already, else what serves. What is on its way out, or never was ready, is no use."""
    if model.idle is not Idle.SLEEP or desired(draft.world, model, draft.now_s) > 0:
        return None
    scale = draft.world.wishes.scales.get(model.name)
    if model.replicas.max == 0 or (scale is not None and (scale.until_s is None or draft.now_s < scale.until_s)):
        return None
    able = [a for a in spare if a.stop is None and not a.unreadable and _may_sleep(draft, a)]
    able = [a for a in able if not _has_slept_enough(draft, model, a)]
    found = min(able, key=lambda a: (a.sleep is None, a.replica), default=None)
    if found is not None:
        draft.let_sleep(found)
        draft.wake((draft.now_s if found.sleep is None else found.sleep.since_s) + model.asleep_timeout_s)
    return found


def _has_slept_enough(draft: Draft, model: Model, assignment: Assignment) -> bool:
    """A sleeper holds main memory, and some of its devices' own: after a long time without a request for nothing."""
    sleep = assignment.sleep
    return sleep is not None and not sleep.ends and draft.now_s >= sleep.since_s + model.asleep_timeout_s


def _why_spare(draft: Draft, model: Model, assignment: Assignment, wanted: int) -> str:
    if model.idle is Idle.SLEEP and not wanted and _has_slept_enough(draft, model, assignment):
        return f"nobody asked for {model.name} in the {model.asleep_timeout_s:g} s that it slept"
    return f"{model.name} needs {counted(wanted, 'replica')}"


def _may_sleep(draft: Draft, assignment: Assignment) -> bool:
    spec = draft.specs.get(assignment.spec)
    able = spec is not None and spec.sleep is not None
    return able and (assignment.sleep is not None or is_serving(draft, assignment))


def _keep_rank(
    draft: Draft, assignment: Assignment, current: Mapping[Fingerprint, int], unused: frozenset[ReplicaId]
) -> tuple[bool, bool, bool, int, bool]:
    """The first are kept: ready, not wished away, begun, on a better profile, in use."""
    view = draft.survey.of(assignment.node)
    begun = view is not None and assignment.replica in view.rows
    serves, wished = is_serving(draft, assignment), assignment.stop is not None
    return not serves, wished, not begun, current[assignment.fingerprint], assignment.replica in unused


def idle(world: World) -> frozenset[ReplicaId]:
    """What no live router uses, as far as routers tell it."""
    live = [facts.idle for facts in live_routers(world).values()]
    return frozenset.intersection(*live) if live else frozenset()


def _gives_way_last(assignment: Assignment) -> tuple[bool, int, str]:
    """Those already wished away go first, so that a wish that was begun is carried through."""
    return assignment.stop is not None, len(assignment.replica), assignment.replica


Reason = tuple[StopCause, str]


def _moves(
    draft: Draft,
    movers: Sequence[Assignment],
    reasons: Mapping[ReplicaId, Reason | None],
    cover: int,
    may_come: frozenset[Fingerprint],
) -> list[Assignment]:
    """Stop the movers that nothing needs any more; those that have to serve until they are replaced come back.
    `may_come`: of these versions also such as do not serve yet."""
    in_time = [a for a in movers if not _is_overdue(draft, a)]
    stay = [a for a in in_time if is_serving(draft, a)][:cover]
    others = (a for a in in_time if a not in stay and (_is_suspect(draft, a) or a.fingerprint in may_come))
    may_return = list(others)[: cover - len(stay)]
    for assignment in movers:
        reason = reasons[assignment.replica]
        if assignment not in stay and assignment not in may_return and reason is not None:
            draft.want_stop(assignment, *reason)
    return stay


def _is_overdue(draft: Draft, assignment: Assignment) -> bool:
    """A drain waits for places elsewhere, until its deadline; what is displaced never waits for them."""
    if is_displaced(draft, assignment):
        return True
    view = draft.survey.of(assignment.node)
    deadline_s = view.drain.deadline_s if view is not None and view.drain is not None else None
    if deadline_s is None:
        return False
    draft.wake(deadline_s)
    return draft.now_s >= deadline_s


def _drained(reasons: Mapping[ReplicaId, Reason | None], stay: Sequence[Assignment]) -> int:
    """An emptied node's replicas move all at once; what is only newer goes step by step."""
    found = (reasons[a.replica] for a in stay)
    return sum(1 for reason in found if reason is not None and reason[0] is StopCause.DRAINED)


def slack(wanted: int) -> int:
    """How many replicas may be down, or too many, by choice."""
    return max(1, wanted // 10)


def give_way(draft: Draft, demand: Demand, helps: Callable[[Assignment], bool]) -> None:
    """No place to start first: replicas give way as far as the budget allows, if their place `helps`. Wishes that were
    begun count; what is wished beyond the budget is taken back."""
    current, budget = demand.version.prints, slack(demand.desired) - demand.desired
    budget += demand.serving + len(demand.movers)
    for assignment in demand.movers:
        reason = why_moves(draft, assignment, current)
        yields = reason is not None and reason[0] is not StopCause.DRAINED and budget > 0 and helps(assignment)
        if reason is not None and yields:
            budget -= 1
            draft.want_stop(assignment, reason[0], f"{reason[1]}; there is no room to start the new one first")
        else:
            draft.take_back(assignment)


def stay(draft: Draft, demand: Demand) -> None:
    """What serves and is to be replaced goes on serving."""
    for assignment in demand.movers:
        draft.take_back(assignment)


def drop_lost(draft: Draft, model: Model, mine: Sequence[Assignment]) -> None:
    """Replicas on lost nodes give way once others have taken their places; until then nothing is moved."""
    wanted = max(0, desired(draft.world, model, draft.now_s) - unread(draft, model))
    lost = [a for a in mine if a.stop is None and is_lost(draft, a)]
    present = sum(1 for a in mine if a.stop is None and not is_lost(draft, a))
    for assignment in lost[max(0, wanted - present) :]:
        draft.want_stop(assignment, StopCause.REPLACED, f"{assignment.node} was lost")


def is_serving(draft: Draft, assignment: Assignment) -> bool:
    """Ready by its node's last report; where that is missing or in doubt, published."""
    if assignment.sleep is not None:
        return False
    view = draft.survey.of(assignment.node)
    if view is None or view.seen is None or not view.judges:
        keeps = view is None or view.keeps_routes
        return keeps and assignment.replica in draft.world.table.endpoints
    row = view.rows.get(assignment.replica)
    return row is not None and row.state is EngineState.READY


def is_lost(draft: Draft, assignment: Assignment) -> bool:
    """Its node is lost, or not a member any more."""
    view = draft.survey.of(assignment.node)
    return view is None or view.is_lost


def _is_suspect(draft: Draft, assignment: Assignment) -> bool:
    view = draft.survey.of(assignment.node)
    return view is not None and view.is_silent and not view.is_lost


def is_displaced(draft: Draft, assignment: Assignment) -> bool:
    """Another waits for its place."""
    stop = assignment.stop
    if stop is None or stop.by is None or (claimant := draft.assignments.get(stop.by)) is None:
        return False
    return claimant.stop is None and claimant.node == assignment.node


def why_moves(draft: Draft, assignment: Assignment, current: Mapping[Fingerprint, int]) -> Reason | None:
    """Why a replica cannot stay as it is, or None."""
    if assignment.stop is not None and is_displaced(draft, assignment):
        return StopCause.DISPLACED, assignment.stop.text
    if assignment.fingerprint not in current:
        return StopCause.CHANGED, "its catalog entry was changed"
    restarts = draft.world.wishes.restarts
    if restarts and assignment.created_s < max(
        restarts.get(assignment.model, 0.0), restarts.get(assignment.replica, 0.0)
    ):
        return StopCause.RESTART, "a restart was asked for"
    view = draft.survey.of(assignment.node)
    if view is None or view.is_lost:
        return StopCause.REPLACED, f"{assignment.node} was lost"
    if view.drain is not None or view.leaving:
        return StopCause.DRAINED, f"{assignment.node} is {'leaving' if view.leaving else 'drained'}"
    return None
