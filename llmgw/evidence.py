"""What the reports prove about our replicas: gone, failed, or still there.

Absence counts only from a report whose token is no older than the last command that named the replica. A start that
was refused, or whose answer is not known, is a wait: it is told again. A new boot voids everything the node ran, but
not a start that is still under way to it: that one is stopped by a newer command.
"""

from dataclasses import replace

from llmgw import attempts
from llmgw.draft import Draft
from llmgw.ids import ModelName
from llmgw.nodes import NodeView
from llmgw.wire import EngineState, ReplicaReport
from llmgw.world import Assignment, Failure, Outgoing, OutgoingKind, StopCause, StopIntent


def weigh(draft: Draft) -> None:
    """Settle every assignment on a node whose report is evidence."""
    for assignment in draft.in_question():
        view = draft.survey.of(assignment.node)
        if view is not None and view.judges and view.seen is not None:
            _one(draft, assignment, view)
    for model, known in list(draft.failures.items()):
        draft.set_failures(model, tuple(f for f in known if not _is_forgotten(draft, model, f, known)))


def _is_forgotten(draft: Draft, model: ModelName, failure: Failure, known: tuple[Failure, ...]) -> bool:
    at_s = attempts.forgotten_s(draft.world, failure, model, known)
    if at_s is not None:
        draft.wake(at_s)
    return at_s is not None and draft.now_s >= at_s


def _one(draft: Draft, assignment: Assignment, view: NodeView) -> None:
    row = view.rows.get(assignment.replica)
    if assignment.unreadable:
        _unreadable(draft, assignment, view, row)
    elif view.seen is not None and assignment.boot and view.seen.boot != assignment.boot:
        _booted(draft, assignment, view, row)
    elif row is None:
        _absent(draft, assignment, view)
    elif row.state is EngineState.FAILED:
        _failed(draft, assignment, row)


def _unreadable(draft: Draft, assignment: Assignment, view: NodeView, row: ReplicaReport | None) -> None:
    """It is only ever proven gone: without its record nothing else can be said of it."""
    never_told = assignment.replica not in draft.world.sent
    if row is None and (never_told or is_proof(draft, assignment, view)):
        draft.gone(assignment, f"is gone from {assignment.node}; its record could not be read")


def _booted(draft: Draft, assignment: Assignment, view: NodeView, row: ReplicaReport | None) -> None:
    """What ran is void. A start that was under way may still have been taken by the new boot, or be taken yet."""
    text = f"{assignment.node} was booted anew"
    told = assignment.replica in draft.world.sent
    if row is not None and row.state is not EngineState.FAILED and view.seen is not None:
        draft.put(replace(assignment, boot=view.seen.boot))
    elif row is None and (not told or is_proof(draft, assignment, view)):
        draft.gone(assignment, text)
    elif assignment.stop is None or not assignment.stop.commanded:
        draft.command(assignment, StopIntent(StopCause.REPLACED, text, draft.now_s, -1))


def _absent(draft: Draft, assignment: Assignment, view: NodeView) -> None:
    if not is_proof(draft, assignment, view):
        return
    if assignment.stop is not None and assignment.stop.commanded:
        draft.gone(assignment, f"stopped on {assignment.node}: {assignment.stop.text}")
    elif not never_begun(draft, assignment):
        _record(draft, assignment, None, "it is no longer on its node")
        draft.gone(assignment, f"is no longer on {assignment.node}")


def never_begun(draft: Draft, assignment: Assignment) -> bool:
    """Whether its node may never have shown it: it still has to be told, or its start was refused or may just be."""
    if assignment.adopted or assignment.replica in draft.world.table.endpoints:
        return False
    call = draft.world.calls.get(assignment.node)
    if draft.hold or call is None or call.asked_s is not None:
        return True
    outgoing = draft.world.outbox.get(assignment.node, ())
    told = {Outgoing(kind, assignment.replica) for kind in (OutgoingKind.START, OutgoingKind.PULL)}
    return assignment.replica in draft.world.refused or not told.isdisjoint(outgoing)


def is_proof(draft: Draft, assignment: Assignment, view: NodeView) -> bool:
    """Whether the node's report, which does not list the replica, proves that nothing of it lives or can begin."""
    sent = draft.world.sent.get(assignment.replica)
    if sent is None:
        return assignment.adopted  # it was there when it was adopted, and nobody has told it anything
    token = None if view.seen is None else view.seen.token
    ours = token is not None and (token.installation, token.epoch) == (draft.world.installation, draft.world.epoch)
    return token is not None and ours and token.seq >= sent


def _failed(draft: Draft, assignment: Assignment, row: ReplicaReport) -> None:
    if assignment.stop is not None and assignment.stop.commanded:
        return
    if assignment.stop is None:
        _record(draft, assignment, row, row.reason)
    text = _how(row)
    draft.event(f"replica/{assignment.replica}", f"failed on {assignment.node}: {text}")
    stop = StopIntent(
        StopCause.FAILED, text, draft.now_s, -1, commanded=True, commanded_s=draft.now_s, port=draft.port_of(assignment)
    )
    draft.put(replace(assignment, stop=stop))


def _how(row: ReplicaReport) -> str:
    is_told = row.exit_code is None or "exit code" in row.reason
    code = "" if is_told else f"exit code {row.exit_code}"
    return ", ".join(filter(None, (row.reason, code))) or "the engine ended"


def _record(draft: Draft, assignment: Assignment, row: ReplicaReport | None, text: str) -> None:
    was_ready = row.was_ready if row is not None else assignment.replica in draft.world.table.endpoints
    failure = Failure(
        replica=assignment.replica,
        node=assignment.node,
        fingerprint=assignment.fingerprint,
        at_s=draft.now_s,
        was_ready=was_ready,
        exit_code=None if row is None else row.exit_code,
        text=_how(row) if row is not None else text,
        log_tail=() if row is None else row.log_tail[-3:],
        attempt=attempts.attempt_of(assignment, was_ready, draft.now_s),
    )
    known = draft.failures.get(assignment.model, ())
    draft.set_failures(assignment.model, attempts.with_failure(known, failure))
