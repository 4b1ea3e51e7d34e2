"""Every stop has a reason that holds when it is decided, and can be checked against the world: a row per cause."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from llmgw import rolling
from llmgw.catalog import Model
from llmgw.demand import desired, unread
from llmgw.draft import Draft
from llmgw.nodes import NodeView, survey
from llmgw.wire import EngineState
from llmgw.world import Assignment, StopCause, StopIntent, World
from sim.fleet import SimFleet


@dataclass(frozen=True, slots=True)
class _Stop:
    """What is to stop, and the world after the plan that says so."""

    draft: Draft
    assignment: Assignment
    intent: StopIntent

    @property
    def world(self) -> World:
        return self.draft.world

    @property
    def model(self) -> Model | None:
        return self.draft.models.get(self.assignment.model)

    @property
    def view(self) -> NodeView | None:
        return self.draft.survey.of(self.assignment.node)


def every_stop_has_a_reason_that_holds(fleet: SimFleet) -> None:
    known = fleet.seen.causes
    new = {
        replica: assignment.stop
        for replica, assignment in fleet.world.assignments.items()
        if assignment.stop is not None and known.get(replica) is not assignment.stop.cause
    }
    fleet.seen.causes = {r: a.stop.cause for r, a in fleet.world.assignments.items() if a.stop is not None}
    if not new:
        return
    draft = Draft.over(fleet.world, fleet.clock_s, survey(fleet.world), "")
    for replica, intent in sorted(new.items()):
        holds = HOLDS[intent.cause](_Stop(draft, fleet.world.assignments[replica], intent))
        assert holds, f"{replica} is to stop ({intent.cause}: {intent.text}), which is not so"


def _removed(stop: _Stop) -> bool:
    return stop.model is None


def _surplus(stop: _Stop) -> bool:
    """As many as are wanted stay, or give way to another for a reason of its own."""
    if stop.model is None:
        return False
    mine = (a for a in stop.draft.of_model(stop.assignment.model) if not a.unreadable)
    left = sum(1 for a in mine if a.stop is None or a.stop.cause is StopCause.DISPLACED)
    return left >= desired(stop.world, stop.model, stop.draft.now_s) - unread(stop.draft, stop.model)


def _changed(stop: _Stop) -> bool:
    prints = None if stop.model is None else rolling.version(stop.draft, stop.model).prints
    return prints is not None and stop.assignment.fingerprint not in prints


def _restart(stop: _Stop) -> bool:
    restarts, assignment = stop.world.wishes.restarts, stop.assignment
    return max(restarts.get(assignment.model, 0.0), restarts.get(assignment.replica, 0.0)) > assignment.created_s


def _drained(stop: _Stop) -> bool:
    return stop.view is not None and (stop.view.drain is not None or stop.view.leaving)


def _replaced(stop: _Stop) -> bool:
    """Its node was lost, or came back as another boot."""
    view = stop.view
    booted = view is not None and view.seen is not None and view.seen.boot != stop.assignment.boot
    return view is None or view.is_lost or booted


def _failed(stop: _Stop) -> bool:
    row = None if stop.view is None else stop.view.rows.get(stop.assignment.replica)
    return stop.intent.commanded and (row is None or row.state is EngineState.FAILED)


def _displaced(stop: _Stop) -> bool:
    by = None if stop.intent.by is None else stop.world.assignments.get(stop.intent.by)
    other = None if by is None else stop.draft.models.get(by.model)
    better = other is not None and (stop.model is None or other.priority > stop.model.priority)
    return by is not None and better and by.node == stop.assignment.node


def _fleet_ends(stop: _Stop) -> bool:
    return stop.world.ending


HOLDS: Mapping[StopCause, Callable[[_Stop], bool]] = {
    StopCause.REMOVED: _removed,
    StopCause.SURPLUS: _surplus,
    StopCause.CHANGED: _changed,
    StopCause.RESTART: _restart,
    StopCause.DRAINED: _drained,
    StopCause.REPLACED: _replaced,
    StopCause.FAILED: _failed,
    StopCause.DISPLACED: _displaced,
    StopCause.FLEET_ENDS: _fleet_ends,
}
