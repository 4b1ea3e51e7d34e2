"""What each node still has to be told: the whole list of commands whose effect its report does not show yet.

A list that only repeats what was just told kicks no lane: a repeat is due when a call failed and its back-off is over,
or when an accepted command is not visible in the report after `REPEAT_S`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

from llmgw import adoption, sleeping, stopping
from llmgw.claims import by_device, clashes
from llmgw.draft import Draft
from llmgw.ids import DeviceId, NodeId, ReplicaId
from llmgw.nodes import NodeView
from llmgw.weights import must_be_pulled, on_the_way, row_of
from llmgw.wire import EngineState, RefusalCode
from llmgw.world import Assignment, Call, Outgoing, OutgoingKind

REPEAT_S = 5.0
REFUSAL_RETRY_S = 5.0
LONGEST_RETRY_S = 30.0
LOST_AFTER_S = 10.0
"""A call without an answer after this time has no lane any more."""
LASTING_REFUSALS = frozenset(
    {RefusalCode.NOT_ALLOWED, RefusalCode.NOT_FOUND, RefusalCode.UNSUPPORTED, RefusalCode.NO_SECRET}
)
"""Refusals that only an operator can mend: asked again seldom."""
LASTING_RETRY_S = 30.0


def retry_s(failures: int) -> float:
    """Back-off after so many failed calls in a row."""
    return min(LONGEST_RETRY_S, 0.5 * 2.0 ** min(failures, 10))


def write(draft: Draft) -> tuple[NodeId, ...]:
    """Fill the draft's outbox; the nodes whose lanes run now."""
    if draft.hold:
        return ()
    kicked: list[NodeId] = []
    for id_ in sorted(_concerned(draft)):
        view = draft.survey.of(id_)
        if view is None or not view.listens:
            continue
        mine = draft.on_node(id_)
        tasks = (Outgoing(OutgoingKind.TASK, t.id) for t in draft.world.wishes.tasks if t.node == id_)
        sleeps = sleeping.outgoing(view, mine)
        outgoing = (*_stops(draft, view, mine), *_starts(draft, view, mine), *tasks, *sleeps)
        if outgoing:
            draft.outbox[id_] = outgoing
            if _is_due(draft, id_, outgoing):
                kicked.append(id_)
    return tuple(kicked)


def _concerned(draft: Draft) -> set[NodeId]:
    """Nodes that may have to be told anything: where all is steady there is nothing to say."""
    nodes = {part.node for a in draft.in_question() for part in a.parts}
    nodes.update(task.node for task in draft.world.wishes.tasks)
    if draft.unclaimed:
        nodes.update(
            id_ for id_, view in draft.survey.nodes.items() if not draft.unclaimed.keys().isdisjoint(view.rows)
        )
    return nodes


def _is_due(draft: Draft, node: NodeId, outgoing: Sequence[Outgoing]) -> bool:
    call = draft.world.calls.get(node, Call())
    news = bool(set(outgoing) - set(draft.world.outbox.get(node, ())))
    if call.asked_s is not None:  # its lane tells what is new when the answer is there
        due_s = call.asked_s + LOST_AFTER_S
    elif call.failures and call.failed_s is not None:
        due_s = call.failed_s + retry_s(call.failures)
        news = False
    else:
        due_s = (call.told_s or 0.0) + (0.0 if call.more else REPEAT_S)
    draft.wake(due_s)
    return news or draft.now_s >= due_s


# --- stops ---


def _stops(draft: Draft, view: NodeView, mine: Sequence[Assignment]) -> list[Outgoing]:
    stops: list[Outgoing] = []
    for assignment in mine:
        if assignment.stop is None or not assignment.stop.commanded:
            continue
        row = view.rows.get(assignment.replica)
        since_s = assignment.stop.commanded_s or draft.now_s
        force_s = since_s + stopping.force_after_s(draft, assignment)
        if draft.now_s >= force_s:
            text = f"does not end on {view.node.id} for {draft.now_s - since_s:.0f} s: its agent is told to use force"
            draft.wait(f"replica/{assignment.replica}", "stuck", "does not end: its agent is told to use force")
            if f"replica/{assignment.replica}" not in draft.world.waiting:
                draft.event(f"replica/{assignment.replica}", text)
            stops.append(Outgoing(OutgoingKind.FORCE_STOP, assignment.replica))
        elif row is None or row.state is not EngineState.STOPPING:
            draft.wake(force_s)
            stops.append(Outgoing(OutgoingKind.STOP, assignment.replica))
        else:
            draft.wake(force_s)
    strays = sorted(r for r in view.rows if r not in draft.assignments) if view.judges else ()
    stops += [Outgoing(OutgoingKind.STOP, r) for r in strays if adoption.is_to_stop(draft, view.rows[r])]
    return stops


# --- starts ---


def _starts(draft: Draft, view: NodeView, mine: Sequence[Assignment]) -> list[Outgoing]:
    coming = [a for a in mine if a.stop is None and a.replica not in view.rows and view.judges and not a.unreadable]
    if not coming:
        return []
    policy = draft.world.catalog.policy if draft.world.catalog is not None else None
    slots = policy.max_loading_per_node if policy is not None else 2
    slots -= sum(1 for a in mine if _is_loading(view, a))
    neighbours = _Neighbours.of(mine)
    starts: list[Outgoing] = []
    for assignment in sorted(coming, key=lambda a: _turn(draft, a)):
        reason, until_s = _why_not(draft, assignment, neighbours)
        if not reason and (pull := _pull(draft, view, assignment)) is not None:
            starts.extend(pull)
            continue
        if not reason and slots <= 0 and not _was_told(draft, assignment):
            reason, until_s = f"{view.node.id} is loading as many replicas as it may at a time", None
        if reason:
            draft.wait(f"replica/{assignment.replica}", "waiting", reason, until_s)
            continue
        draft.wait(f"replica/{assignment.replica}", "told", f"{view.node.id} is told to start it")
        slots -= 1
        starts.append(Outgoing(OutgoingKind.START, assignment.replica))
    return starts


def _pull(draft: Draft, view: NodeView, assignment: Assignment) -> list[Outgoing] | None:
    """What fetches weights that the engine cannot fetch itself, with the wait for it said; None when they are there.

    A node that was told goes on by itself, and its row says how far it is."""
    spec = draft.specs[assignment.spec]
    if not must_be_pulled(spec):
        return None
    row = row_of(view.seen.weights if view.seen is not None else (), spec.weights)
    if row is not None and row.complete:
        return None
    subject = f"replica/{assignment.replica}"
    if row is not None and row.pulling:
        draft.wait(subject, "fetching", f"{view.node.id} fetches its weights: {on_the_way(row)}")
        return []
    draft.wait(subject, "fetching", f"{view.node.id} is told to fetch {spec.weights}")
    return [Outgoing(OutgoingKind.PULL, assignment.replica)]


def _turn(draft: Draft, assignment: Assignment) -> tuple[bool, int, float, int, str]:
    """Who loads first: what was told already, then by the model's priority, then the older."""
    model = draft.models.get(assignment.model)
    priority = 0 if model is None else -model.priority
    told = _was_told(draft, assignment)
    return not told, priority, assignment.created_s, len(assignment.replica), assignment.replica


def _is_loading(view: NodeView, assignment: Assignment) -> bool:
    row = view.rows.get(assignment.replica)
    return row is not None and row.state in (EngineState.STARTING, EngineState.LOADING) and not row.was_ready


def _was_told(draft: Draft, assignment: Assignment) -> bool:
    return assignment.replica in draft.world.sent


@dataclass(frozen=True, slots=True)
class _Neighbours:
    """All that is assigned to one node."""

    replicas: Sequence[Assignment]
    devices: Mapping[ReplicaId, Mapping[DeviceId, bool]]
    """See `claims.by_device`."""
    claimants: Mapping[DeviceId, int]
    anyone_ends: bool

    @classmethod
    def of(cls, mine: Sequence[Assignment]) -> Self:
        devices = {a.replica: by_device(a.claims) for a in mine}
        claimants = Counter(chain.from_iterable(devices.values()))
        return cls(mine, devices, claimants, any(a.stop is not None for a in mine))

    def leave_alone(self, replica: ReplicaId) -> bool:
        """Nobody shares a device with it, and nobody's place becomes free: nearly always so, and seen at once."""
        return not self.anyone_ends and all(self.claimants[device] == 1 for device in self.devices[replica])


def _place_is_taken(draft: Draft, assignment: Assignment, neighbours: _Neighbours) -> str:
    """Who is still on its devices, has not left its memory, or must not run beside it; and on a shared device, whose
    start is under way: engines measure what is free while they load."""
    if neighbours.leave_alone(assignment.replica):
        return ""
    devices = neighbours.devices
    own = devices[assignment.replica]
    rivals = [a for a in neighbours.replicas if a.replica != assignment.replica]
    view = draft.survey.of(assignment.node)
    leaving = {a.replica for a in rivals if a.stop is not None and (a.stop.commanded or a.stop.by is not None)}
    others = sorted(a.replica for a in rivals if clashes(own, devices[a.replica]))
    if others:
        return f"its devices on {assignment.node} are still being released by {', '.join(others)}"
    going = sorted(
        a.replica
        for a in rivals
        if a.replica in leaving and (own.keys() & devices[a.replica].keys() or _makes_room(draft, assignment, a))
    )
    if going:
        return f"its place on {assignment.node} is still being released by {', '.join(going)}"
    beside = (a for a in rivals if own.keys() & devices[a.replica].keys())
    loading = sorted(a.replica for a in beside if _comes_first(draft, view, a, assignment))
    return f"{', '.join(loading)} is loading on the same device of {assignment.node}" if loading else ""


def _makes_room(draft: Draft, assignment: Assignment, leaving: Assignment) -> bool:
    """Whether what leaves was counted on: it gives way to this one, or must not run beside it."""
    if leaving.stop is not None and leaving.stop.by == assignment.replica:
        return True
    mine, other = draft.models.get(assignment.model), draft.models.get(leaving.model)
    group = None if mine is None or mine.name == leaving.model else mine.exclusive_group
    return group is not None and other is not None and other.exclusive_group == group


def _comes_first(draft: Draft, view: NodeView | None, other: Assignment, assignment: Assignment) -> bool:
    """Another that shares a device is loading, or was told to start, or is told before this one."""
    if view is None or other.stop is not None:
        return False
    if other.replica in view.rows:
        return _is_loading(view, other)
    return not _was_told(draft, assignment) and _turn(draft, other) < _turn(draft, assignment)


def _why_not(draft: Draft, assignment: Assignment, neighbours: _Neighbours) -> tuple[str, float | None]:
    """Why a start is not told now, and until when at the latest."""
    if reason := _place_is_taken(draft, assignment, neighbours):
        return reason, None
    refused = draft.world.refused.get(assignment.replica)
    if refused is None:
        return "", None
    again_s = refused.at_s + (LASTING_RETRY_S if refused.code in LASTING_REFUSALS else REFUSAL_RETRY_S)
    return ("", None) if draft.now_s >= again_s else (f"{assignment.node} refuses: {refused.text}", again_s)
