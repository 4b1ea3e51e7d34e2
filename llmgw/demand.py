"""What is wanted of each model against what there is: keep, take back, stop, and how many to place anew.

Moves start first where there is a place and stop first where there is none, at most max(1, 10 %) down by choice.
What serves now is stopped only when what replaces it is ready.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from llmgw.catalog import Model
from llmgw.draft import Draft
from llmgw.ids import Fingerprint
from llmgw.launches import fingerprints
from llmgw.wire import EngineState
from llmgw.world import Assignment, StopCause, World


@dataclass(frozen=True, slots=True)
class Demand:
    """A model that lacks `missing` replicas: `urgent` of them now, the rest as far as a move may surge."""

    model: Model
    missing: int
    urgent: int
    surge: int
    movers: tuple[Assignment, ...]
    """Replicas that run and are to be replaced, the next to give way first."""
    desired: int

    @property
    def to_place(self) -> int:
        return min(self.missing, self.urgent + self.surge)


def desired(world: World, model: Model, now_s: float) -> int:
    """How many replicas of the model are wanted now."""
    count = model.replicas.min
    scale = world.wishes.scales.get(model.name)
    if scale is not None and (scale.until_s is None or now_s < scale.until_s):
        count = scale.replicas
    if model.name in world.wishes.wakes:
        count = max(count, 1)
    return count


def assess(draft: Draft, model: Model, alive: Sequence[Assignment]) -> Demand:
    """Wish, keep and take back for one model; what it lacks comes back. `alive`: not yet commanded to stop."""
    world, wanted = draft.world, desired(draft.world, model, draft.now_s)
    scale = world.wishes.scales.get(model.name)
    if scale is not None and scale.until_s is not None:
        draft.wake(scale.until_s)
    current = {} if world.catalog is None else fingerprints(world.catalog).of[model.name]
    good = [a for a in alive if _why_moves(draft, a, current) is None]
    overdue = [a for a in alive if _is_overdue(draft, a)]
    for assignment in overdue:
        draft.want_stop(assignment, StopCause.DRAINED, f"the time to drain {assignment.node} is over")
    movers = [a for a in alive if a not in good and a not in overdue and not _is_lost(draft, a)]
    good.sort(key=lambda a: _keep_rank(draft, a, current))
    keep, surplus = good[:wanted], good[wanted:]
    for assignment in keep:
        draft.take_back(assignment)
    for assignment in surplus:
        draft.want_stop(assignment, StopCause.SURPLUS, f"{model.name} needs {wanted} replica{'s' * (wanted != 1)}")
    serving = [a for a in movers if is_serving(draft, a)]
    ready = sum(1 for a in keep if is_serving(draft, a))
    cover = max(0, wanted - ready)
    movers.sort(key=lambda a: (not is_serving(draft, a), a.replica))
    for assignment in movers[min(cover, len(serving)) :]:
        cause, text = _why_moves(draft, assignment, current) or (StopCause.CHANGED, "")
        draft.want_stop(assignment, cause, text)
    still_serving = movers[: min(cover, len(serving))]
    for assignment in still_serving:
        draft.take_back(assignment)
    missing = max(0, wanted - len(keep))
    urgent = max(0, missing - len(still_serving))
    surge = max(0, slack(wanted) - (len(keep) - ready)) if still_serving else 0
    return Demand(model, missing, urgent, surge, tuple(reversed(still_serving)), wanted)


def slack(wanted: int) -> int:
    """How many replicas may be down, or too many, by choice."""
    return max(1, wanted // 10)


def stop_first(draft: Draft, demand: Demand) -> None:
    """No place to start first: let one replica give way, as far as the budget allows."""
    if draft.world.catalog is None:
        return
    current = fingerprints(draft.world.catalog).of[demand.model.name]
    mine = [a for a in draft.sorted_assignments() if a.model == demand.model.name]
    down = demand.desired - sum(1 for a in mine if is_serving(draft, a) and a.stop is None)
    for assignment in demand.movers:
        why = _why_moves(draft, assignment, current)
        # A drain waits for a place elsewhere, until its deadline.
        if why is None or why[0] is StopCause.DRAINED or down >= slack(demand.desired):
            continue
        draft.want_stop(assignment, why[0], f"{why[1]}; there is no room to start the new one first")
        return


def _is_overdue(draft: Draft, assignment: Assignment) -> bool:
    """On a drained node whose deadline is over: it stops with or without a place elsewhere, whatever serves then."""
    view = draft.survey.of(assignment.node)
    deadline_s = view.drain.deadline_s if view is not None and view.drain is not None else None
    if deadline_s is None:
        return False
    draft.wake(deadline_s)
    return draft.now_s >= deadline_s


def drop_lost(draft: Draft, model: Model) -> None:
    """Replicas on lost nodes give way once others have taken their places; until then nothing is moved."""
    wanted = desired(draft.world, model, draft.now_s)
    mine = [a for a in draft.sorted_assignments() if a.model == model.name]
    lost = [a for a in mine if _is_lost(draft, a) and a.stop is None]
    present = sum(1 for a in mine if a.stop is None and not _is_lost(draft, a))
    for assignment in lost[max(0, wanted - present) :]:
        draft.want_stop(assignment, StopCause.REPLACED, f"{assignment.node} was lost and others took its place")


def is_serving(draft: Draft, assignment: Assignment) -> bool:
    """Ready by its node's last report; on a node not heard yet in this run, published."""
    view = draft.survey.of(assignment.node)
    if view is None or view.seen is None:
        return assignment.replica in draft.world.table.endpoints
    row = view.rows.get(assignment.replica)
    return row is not None and row.state is EngineState.READY and view.keeps_routes


def _is_lost(draft: Draft, assignment: Assignment) -> bool:
    view = draft.survey.of(assignment.node)
    return view is None or view.is_lost


def _why_moves(draft: Draft, assignment: Assignment, current: dict[Fingerprint, int]) -> tuple[StopCause, str] | None:
    """Why a replica cannot stay as it is, or None."""
    if assignment.fingerprint not in current:
        return StopCause.CHANGED, "its catalog entry was changed"
    restarts = draft.world.wishes.restarts
    asked_s = max(restarts.get(assignment.model, 0.0), restarts.get(assignment.replica, 0.0))
    if assignment.created_s < asked_s:
        return StopCause.RESTART, "a restart was asked for"
    view = draft.survey.of(assignment.node)
    if view is None or view.is_lost:
        return StopCause.REPLACED, f"{assignment.node} was lost"
    if view.moves_away:
        return StopCause.DRAINED, f"{assignment.node} is {'leaving' if view.leaving else 'drained'}"
    return None


def _keep_rank(draft: Draft, assignment: Assignment, current: dict[Fingerprint, int]) -> tuple[object, ...]:
    """The first are kept: not wished away, ready, begun, on a better profile, the oldest id."""
    view = draft.survey.of(assignment.node)
    begun = view is not None and assignment.replica in view.rows
    return (
        not is_serving(draft, assignment),
        assignment.stop is not None,
        not begun,
        current[assignment.fingerprint],
        len(assignment.replica),
        assignment.replica,
    )
