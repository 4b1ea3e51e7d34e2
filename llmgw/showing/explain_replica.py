"""Sentences about one replica, and about engines of ours that no assignment claims."""

from collections.abc import Iterator

from llmgw.ids import NodeId, ReplicaId
from llmgw.nodes import NodeView
from llmgw.replica_state import ReplicaState
from llmgw.sentences import counted, lasting, names_shown
from llmgw.showing.explain_waiting import waiting_sentences
from llmgw.showing.fleet_rows import replica_row
from llmgw.showing.scene import Scene
from llmgw.wire import ReplicaReport
from llmgw.world import Assignment, Failure


def replica_line(scene: Scene, assignment: Assignment) -> str:
    """One replica on one line, as it stands under its model or node."""
    row = replica_row(scene, assignment)
    where = f"on {row.node}" + (f" with {counted(len(assignment.claims), 'device')}" if assignment.claims else "")
    why = f": {row.reason}" if row.reason else ""
    attempt = f", attempt {row.attempt}" if row.attempt > 1 else ""
    state = f"{_state(row.state, row.published)} {where}, for {lasting(row.age_s)}"
    if row.state is ReplicaState.UNKNOWN:
        state = f"out of sight {where}"
    return f"{row.id} ({row.profile}) is {state}{attempt}{why.rstrip('.')}."


def _state(state: ReplicaState, published: bool) -> str:
    return "ready and not published" if state is ReplicaState.READY and not published else state


def replica_sentences(scene: Scene, assignment: Assignment) -> Iterator[str]:
    yield replica_line(scene, assignment)
    if assignment.unreadable:
        yield f"The record of how it was decided could not be read: {assignment.unreadable}."
        yield f"`llmgw restart {assignment.replica}` stops it, and its model starts another if it wants one."
    else:
        yield _decided(scene, assignment)
    if assignment.claims:
        yield f"Its devices: {names_shown([c.device for c in assignment.claims])}."
    row = scene.row(assignment)
    if row is not None:
        yield _reported(scene, row, assignment.node)
    if (endpoint := scene.world.table.endpoints.get(assignment.replica)) is not None:
        yield f"Routers send it traffic at {endpoint.url} for {', '.join(endpoint.models)}."
    yield from _stop(scene, assignment)
    yield from _sleep(scene, assignment)
    yield from _telling(scene, assignment)


def _decided(scene: Scene, assignment: Assignment) -> str:
    """When it was put where it is, and the rank of its profile among the model's."""
    age = lasting(scene.age_s(assignment.created_s))
    how = "found running and adopted" if assignment.adopted else "decided"
    catalog = scene.world.catalog
    model = None if catalog is None else catalog.model(assignment.model)
    names = [] if model is None else [p.name for p in model.profiles]
    if assignment.profile not in names:
        choice = "its profile is no longer in the catalog"
    elif len(names) == 1:
        choice = "the model's only profile"
    else:
        choice = f"choice {names.index(assignment.profile) + 1} of the model's {len(names)} profiles"
    return f"It was {how} {age} ago: profile {assignment.profile}, {choice}; attempt {assignment.attempt}."


def _reported(scene: Scene, row: ReplicaReport, node: NodeId) -> str:
    details = [
        f"process {row.pid}" if row.pid is not None else "",
        f"port {row.port}" if row.port is not None else "",
        f"exit code {row.exit_code}" if row.exit_code is not None and "exit code" not in row.reason else "",
        row.reason,
    ]
    said = ", ".join(text for text in details if text)
    age = lasting(scene.reported_age_s(row, node))
    return f"{node} reports that it has been {row.state} for {age}" + (f" ({said})." if said else ".")


def _stop(scene: Scene, assignment: Assignment) -> Iterator[str]:
    stop = assignment.stop
    if stop is None:
        return
    age = lasting(scene.age_s(stop.since_s))
    yield f"It has been on the way out for {age} ({stop.cause.replace('_', ' ')}): {stop.text}."
    if stop.commanded and stop.commanded_s is not None:
        yield f"The stop was decided for good {lasting(scene.age_s(stop.commanded_s))} ago: it never serves again."
    elif (waiting := scene.waiting("replica", assignment.replica)) is not None:
        yield f"Before it is told to stop: {waiting.text}."
    else:
        yield "The stop can still be taken back."


def _sleep(scene: Scene, assignment: Assignment) -> Iterator[str]:
    """Why it is not published although nobody wants it gone."""
    sleep = assignment.sleep
    if sleep is None or assignment.stop is not None:
        return
    age = lasting(scene.age_s(sleep.since_s))
    if sleep.ends:
        yield f"It was put to sleep {age} ago, is wanted again, and is published once its engine is awake."
    elif not sleep.commanded:
        waiting = scene.waiting("replica", assignment.replica)
        yield f"It was idle and is to sleep for {age}" + (f"; {waiting.text}." if waiting is not None else ".")
    else:
        yield (
            f"Nobody used it: it was withdrawn {age} ago and its engine sleeps where it is. A request or "
            f"`llmgw wake {assignment.model}` wakes it; a model that lacks a place gets this one."
        )
        model = None if scene.world.catalog is None else scene.world.catalog.model(assignment.model)
        left_s = None if model is None else scene.left_s(sleep.since_s + model.asleep_timeout_s)
        if left_s is not None:
            yield f"If nobody asks for it, it is stopped in {lasting(left_s)}."


def _telling(scene: Scene, assignment: Assignment) -> Iterator[str]:
    """What its node has been told, and what it answered."""
    world, node = scene.world, assignment.node
    outgoing = [o for o in world.outbox.get(node, ()) if o.subject == assignment.replica]
    for item in outgoing:
        yield f"{node} still has to be told: {item.kind.replace('_', ' ')}."
    if (refused := world.refused.get(assignment.replica)) is not None:
        yield f"{node} refused it {lasting(scene.age_s(refused.at_s))} ago ({refused.code}): {refused.text}."
    call = world.calls.get(node)
    if outgoing and call is not None and call.failures:
        yield f"The last {counted(call.failures, 'call')} to {node} failed: {call.problem}."


def gone_sentences(scene: Scene, failure: Failure) -> Iterator[str]:
    """About a replica that failed and is no more."""
    age = lasting(scene.age_s(failure.at_s))
    yield f"{failure.replica} is gone: attempt {failure.attempt} on {failure.node} failed {age} ago: {failure.text}."
    model = next((m for m, known in scene.world.failures.items() if failure in known), None)
    if model is not None:
        yield f"It was one of {model}: `llmgw explain {model}` says what came after it."
    yield f"{failure.node} keeps its whole log for a while: `llmgw logs {failure.replica}` asks for it."


def unclaimed_sentences(scene: Scene, replica: ReplicaId) -> list[str]:
    """About an engine that no assignment claims; empty when nobody reports one."""
    view, row = _reporter(scene, replica)
    if view is None or row is None:
        return []
    known = f"{replica} runs {row.model} on {view.node.id}, and no assignment claims it."
    said = [known, _reported(scene, row, view.node.id)]
    since_s = scene.world.unclaimed.get(replica)
    if since_s is not None:
        said.append(f"It has been known for {lasting(scene.age_s(since_s))}.")
    if (waiting := scene.waiting("replica", replica)) is not None:
        said += waiting_sentences(scene, waiting, replica)
    return said


def _reporter(scene: Scene, replica: ReplicaId) -> tuple[NodeView | None, ReplicaReport | None]:
    found = (view for view in scene.survey.nodes.values() if replica in view.rows)
    view = next(found, None)
    return view, None if view is None else view.rows[replica]
