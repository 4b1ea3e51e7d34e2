"""Assignments whose carried records cannot be read (DESIGN §8: one record never stops the care of the others).

What is left of such a record, its id, place and devices, becomes an assignment that is marked unreadable: its engine is
neither adopted nor stopped, its devices go to nobody, its route stays while it is ready, and its model counts it. Only
an operator ends it (a restart of it, or its model leaves), or proof that it is gone. Where not even that is left, the
first report that shows an engine which may be it gives it.
"""

from collections.abc import Mapping
from dataclasses import replace

from pydantic import TypeAdapter, ValidationError

from llmgw.claims import by_device, clashes
from llmgw.draft import Draft
from llmgw.ids import Fingerprint, ModelName, ReplicaId, SpecId
from llmgw.nodes import NodeView
from llmgw.wire import ReplicaReport
from llmgw.world import Assignment, Part, StopCause, StopIntent, Unreadable

NAMELESS = "record "
"""Names of records without a readable replica id begin so; no replica's id holds a blank."""
FORGOTTEN_AFTER_S = 600.0
"""So long after a record was set aside no start of it can still be under way."""


def from_record(record: Unreadable) -> Assignment | None:
    """What an unreadable record still says; None where its id or its place cannot be read either."""
    raw = record.raw
    if not isinstance(raw, Mapping):
        return None
    replica, parts = _text(raw, "replica"), _parts(raw.get("parts"))
    if not replica or not parts:
        return None
    return Assignment(
        replica=ReplicaId(replica),
        model=ModelName(_text(raw, "model")),
        profile=_text(raw, "profile"),
        fingerprint=Fingerprint(_text(raw, "fingerprint")),
        attempt=1,
        spec=SpecId(_text(raw, "spec")),
        parts=parts,
        boot="",
        created_s=record.since_s,
        stop=_commanded(raw.get("stop")),
        unreadable=record.problem,
    )


def _commanded(raw: object) -> StopIntent | None:
    """A stop that was commanded goes on; any other wish to stop ends with the record."""
    try:
        stop = _STOP.validate_python(raw)
    except ValidationError:
        return None
    return stop if stop is not None and stop.commanded else None


_STOP: TypeAdapter[StopIntent | None] = TypeAdapter(StopIntent | None)


def name_of(raw: object, index: int) -> str:
    """What an unreadable record is called: its replica id where that can be read."""
    replica = _text(raw, "replica") if isinstance(raw, Mapping) else ""
    return replica or f"{NAMELESS}{index}"


def _text(raw: Mapping[str, object], key: str) -> str:
    value = raw.get(key)
    return value if isinstance(value, str) else ""


def _parts(raw: object) -> tuple[Part, ...]:
    try:
        return _PARTS.validate_python(raw)
    except ValidationError:
        return ()


_PARTS: TypeAdapter[tuple[Part, ...]] = TypeAdapter(tuple[Part, ...])


# --- in a pass -----------------------------------------------------------------------------------------------------


def salvage(draft: Draft) -> tuple[str, ...]:
    """Leave unreadable replicas as they are, and say so; the records of which nothing is left come back."""
    lost = [name for name in draft.world.unreadable if name not in draft.world.assignments]
    if lost:
        _find(draft, lost)
    for assignment in draft.in_question():
        if assignment.unreadable:
            _tend(draft, assignment)
    return tuple(name for name in lost if name not in draft.assignments and _is_nothing_left(draft, name))


def _find(draft: Draft, lost: list[str]) -> None:
    """Engines that no assignment claims and that a record without a place may be about."""
    nameless = next((name for name in lost if name.startswith(NAMELESS)), None)
    for view in draft.survey.nodes.values():
        for replica in sorted(r for r in view.rows if r not in draft.assignments) if view.judges else ():
            name = replica if replica in lost else nameless if _was_ours(draft, view.rows[replica]) else None
            if name is not None:
                draft.put(_from_report(draft.world.unreadable[name], view, view.rows[replica]))


def unclaimed_routes(draft: Draft) -> tuple[ReplicaId, ...]:
    """Published replicas that a record without a place may be about, while not every node was heard: whoever has one
    will say so, and a route that was withdrawn until then would never come back."""
    names = [name for name in draft.world.unreadable if name not in draft.world.assignments]
    if not names or draft.survey.all_heard():
        return ()
    nameless = any(name.startswith(NAMELESS) for name in names)
    known = draft.world.assignments.keys() | draft.assignments.keys()
    lost = sorted(replica for replica in draft.world.table.endpoints if replica not in known)
    return tuple(replica for replica in lost if nameless or replica in names)


def _was_ours(draft: Draft, row: ReplicaReport) -> bool:
    """Its start is within our memory, and it was not decided away before the record was lost."""
    within = row.mark.epoch == draft.world.epoch and row.mark.seq <= draft.world.seq
    return within and row.replica not in draft.unclaimed


def _from_report(record: Unreadable, view: NodeView, row: ReplicaReport) -> Assignment:
    return Assignment(
        replica=row.replica,
        model=row.model,
        profile="",
        fingerprint=row.fingerprint,
        attempt=row.attempt,
        spec=SpecId(""),
        parts=(Part(view.node.id, row.claims),),
        boot="" if view.seen is None else view.seen.boot,
        created_s=record.since_s,
        adopted=True,
        unreadable=record.problem,
    )


def _tend(draft: Draft, assignment: Assignment) -> None:
    if not assignment.model and (model := _model_of(draft, assignment)) is not None:
        assignment = replace(assignment, model=model)
        draft.put(assignment)
    restarts = draft.world.wishes.restarts
    asked_s = max(restarts.get(assignment.replica, 0.0), restarts.get(assignment.model, 0.0))
    if asked_s > assignment.created_s:
        if assignment.stop is None:
            _keep_place(draft, assignment)  # whoever is to have it asks anew
        draft.want_stop(assignment, StopCause.RESTART, "a restart was asked for")
    elif assignment.stop is None:
        text = f"its record could not be read ({assignment.unreadable}), so it is left as it is"
        draft.wait(f"replica/{assignment.replica}", "unreadable", text)
        _keep_place(draft, assignment)


def _keep_place(draft: Draft, assignment: Assignment) -> None:
    """What was to take its place, and was told nothing yet, does not: the wish to stop it ended with its record."""
    record = draft.world.unreadable.get(assignment.replica)
    raw = record.raw if record is not None and isinstance(record.raw, Mapping) else {}
    stop = raw.get("stop")
    by, mine = stop.get("by") if isinstance(stop, Mapping) else None, by_device(assignment.claims)
    for other in draft.on_node(assignment.node):
        if other.replica in draft.world.sent or other.replica == assignment.replica or other.unreadable:
            continue
        if not other.adopted and (other.replica == by or clashes(by_device(other.claims), mine)):
            text = f"the record of {assignment.replica}, which was to make room, could not be read, so it stays"
            draft.gone(other, f"is not started: {text}")


def _model_of(draft: Draft, assignment: Assignment) -> ModelName | None:
    """The model by the node's report or the published route, where the record does not say it."""
    view, held = draft.survey.of(assignment.node), draft.world.table.endpoints.get(assignment.replica)
    row = None if view is None else view.rows.get(assignment.replica)
    if row is not None:
        return row.model
    return None if held is None or not held.models else ModelName(held.models[0])


def _is_nothing_left(draft: Draft, name: str) -> bool:
    """Every node was heard, and none has it or can still get it."""
    if not all(view.judges for view in draft.survey.nodes.values()):
        return False
    over_s = draft.world.unreadable[name].since_s + FORGOTTEN_AFTER_S
    draft.wake(over_s)
    return draft.now_s >= over_s
