"""The level of idle between serving and gone: an engine that can sleeps where it is, and its place stays its own.

In the order of a stop: withdrawn, taken out of its table by every router that carries traffic, a silent one too, and
nothing in flight; only then its node is told. There is no limit after which it is told all the same: nobody waits for
what a sleeper gives up, and who lacks a place takes that (`llmgw.yielding`). On the way back it counts as awake once a
report proves that no word to let it sleep is under way any more.
"""

from collections.abc import Sequence
from dataclasses import replace

from llmgw import evidence, members, stopping
from llmgw.draft import Draft
from llmgw.nodes import NodeView
from llmgw.router_kinds import kind_of
from llmgw.wire import EngineState
from llmgw.world import Assignment, Outgoing, OutgoingKind, RouterFacts


def sleeps(assignment: Assignment) -> bool:
    """Whether it sleeps or is to, and nothing else is wanted of it."""
    return assignment.stop is None and assignment.sleep is not None and not assignment.sleep.ends


def end(draft: Draft) -> None:
    """Forget the wish of what is proven to be told no more to sleep: it is published as soon as it is ready."""
    for replica in sorted(draft.sleepers):
        assignment = draft.assignments.get(replica)
        if assignment is None or assignment.sleep is None or not assignment.sleep.ends:
            continue
        view = draft.survey.of(assignment.node)
        row = None if view is None or not view.judges else view.rows.get(replica)
        if view is not None and row is not None and not row.rests and evidence.is_proof(draft, assignment, view):
            draft.put(replace(assignment, sleep=None))


def command(draft: Draft, published: frozenset[str], revision: int) -> None:
    """Decide for good that what was withdrawn falls asleep. `published` and `revision`: the table after this pass."""
    for assignment in draft.in_question():
        sleep = assignment.sleep
        if sleep is None or not sleeps(assignment) or sleep.commanded or assignment.replica in published:
            continue
        if sleep.withdrawn_at < 0:
            sleep = replace(sleep, withdrawn_at=revision)
            draft.put(replace(assignment, sleep=sleep))
        if reason := draft.hold or _why_not_yet(draft, assignment, sleep.withdrawn_at):
            draft.wait(f"replica/{assignment.replica}", "draining", f"before it sleeps: {reason}")
        else:
            draft.put(replace(assignment, sleep=replace(sleep, commanded=True)))
            draft.event(f"replica/{assignment.replica}", f"is put to sleep on {assignment.node}")


def _why_not_yet(draft: Draft, assignment: Assignment, withdrawn_at: int) -> str:
    routers = {
        id_: draft.world.routers.get(id_, RouterFacts())
        for id_, router in members.routers(draft.world).items()
        if kind_of(router.kind).carries_traffic
    }
    behind = sorted(id_ for id_, facts in routers.items() if stopping.told_revision(facts) < withdrawn_at)
    if behind:
        return f"waits until {', '.join(behind)} has taken it out of its table"
    busy = sorted(id_ for id_, facts in routers.items() if assignment.replica in facts.draining)
    return f"requests are in flight at {', '.join(busy)}" if busy else ""


def outgoing(view: NodeView, mine: Sequence[Assignment]) -> list[Outgoing]:
    """What the node still has to be told: level, so also where an engine was put to sleep that nobody remembers."""
    found: list[Outgoing] = []
    for assignment in mine:
        row = view.rows.get(assignment.replica)
        if assignment.stop is not None or assignment.unreadable or row is None or not view.judges:
            continue
        if row.state in (EngineState.STOPPING, EngineState.FAILED):
            continue
        sleep = assignment.sleep
        asleep = sleep is not None and sleep.commanded and not sleep.ends
        if asleep and not row.rests:
            found.append(Outgoing(OutgoingKind.SLEEP, assignment.replica))
        elif not asleep and (row.rests or (sleep is not None and sleep.ends)):
            found.append(Outgoing(OutgoingKind.WAKE, assignment.replica))
    return found
