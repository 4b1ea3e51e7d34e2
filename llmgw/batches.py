"""What a lane sends, computed at the moment of sending from the world: a node's commands, a router's difference.

Never decides: which commands are outstanding and which routers are behind is the plan's word.
"""

from collections.abc import Sequence
from itertools import chain

from pydantic import BaseModel

from llmgw import members, stopping, table_log
from llmgw.calls import (
    CallOutcome,
    Delta,
    DispatchAnswer,
    DispatchCall,
    PublishCall,
    PullOrder,
    StartOrder,
    TaskResult,
    cut,
)
from llmgw.ids import NodeId, ReplicaId, RouterId
from llmgw.rendering import weights_of
from llmgw.sentences import counted
from llmgw.table import TableChange
from llmgw.table_log import Step
from llmgw.weights import pull_secret
from llmgw.wire import (
    BatchReply,
    Command,
    CommandBatch,
    CommandResult,
    Outcome,
    Pull,
    RemoveWeights,
    Start,
    Stop,
    Token,
)
from llmgw.world import Assignment, NodeTask, Outgoing, OutgoingKind, World

MAX_STARTS = 32
"""Starts in one batch; the rest follow in the next."""

MAX_CALL_BYTES = 60_000
"""What the commands of a batch may have as JSON (an activity's input stays under 64 KB). A single one may be larger."""

MAX_PATHS = 100
"""Outcomes of paths that are kept of one answer."""

MAX_DELTA_ITEMS = 150
"""A larger difference is not carried in a history: the router gets the whole table, read by query."""
MAX_DELTA_CHARS = 256 * 1024
"""The same for the names in it: an activity's input must fit into one payload."""


def next_token(world: World) -> Token:
    """The token of the next command or table. The caller records it as used before it leaves."""
    return Token(installation=world.installation, fleet=world.fleet, epoch=world.epoch, seq=world.seq + 1)


def for_node(world: World, node: NodeId) -> DispatchCall | None:
    """The node's outstanding commands as one call; None when there is nothing to say or nobody to say it to."""
    outgoing, member = world.outbox.get(node, ()), members.node(world, node)
    if not outgoing or member is None:
        return None
    room = _Room(MAX_CALL_BYTES)
    stops = tuple(stop for stop in _stops(world, outgoing) if room.takes(stop))
    coming = _starts(world, outgoing)
    starts = tuple(order for order in coming[:MAX_STARTS] if room.takes(order, world.specs[order.spec]))
    wanted = {item.subject for item in _of(outgoing, OutgoingKind.TASK)}
    tasks = {task.id: _task(world, task) for task in world.wishes.tasks if task.id in wanted}
    taken = {id_: command for id_, command in tasks.items() if room.takes(command)}
    pulls = (_pull(world, item) for item in _of(outgoing, OutgoingKind.PULL))
    waited = tuple(order for order in pulls if order is not None and room.takes(order))[:MAX_STARTS]
    asleep = {ReplicaId(i.subject): True for i in _of(outgoing, OutgoingKind.SLEEP)}
    asleep |= {ReplicaId(i.subject): False for i in _of(outgoing, OutgoingKind.WAKE)}
    if not (starts or stops or taken or waited or asleep):
        return None
    return DispatchCall(
        node=node,
        url=member.url,
        token=next_token(world),
        specs={order.spec: world.specs[order.spec] for order in starts},
        starts=starts,
        stops=stops,
        tasks=taken,
        pulls=waited,
        asleep=asleep,
        released_ports=tuple(sorted({port.port for port in world.resting.get(node, ()) if port.let_go})),
        more=len(taken) < len(tasks) or any(order.replica not in world.sent for order in coming[len(starts) :]),
    )


class _Room:
    """What still fits. Whatever comes after the first that does not fit stays behind as well, so that the order is
    kept; the very first always fits. A part that was counted is not counted again."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._counted: set[int] = set()
        self._full = False

    def takes(self, *parts: BaseModel) -> bool:
        fresh = [part for part in parts if id(part) not in self._counted]
        size = sum(len(part.model_dump_json()) for part in fresh)
        self._full = self._full or (size > self._left and bool(self._counted))
        if not self._full:
            self._left -= size
            self._counted.update(map(id, fresh))
        return not self._full


def _stops(world: World, outgoing: Sequence[Outgoing]) -> list[Stop]:
    return [
        Stop(
            replica=ReplicaId(item.subject),
            reason=_stop_reason(world, ReplicaId(item.subject)),
            force=item.kind is OutgoingKind.FORCE_STOP,
            drain_s=stopping.drain_left_s(world, world.assignments.get(ReplicaId(item.subject))),
        )
        for item in _of(outgoing, OutgoingKind.STOP, OutgoingKind.FORCE_STOP)
    ]


def _starts(world: World, outgoing: Sequence[Outgoing]) -> list[StartOrder]:
    """What the node was never told comes first: what it was told may only not show in its report yet."""
    found = (_start(world, item) for item in _of(outgoing, OutgoingKind.START))
    return sorted((order for order in found if order is not None), key=lambda order: order.replica in world.sent)


def command_batch(call: DispatchCall) -> CommandBatch:
    """The call as the batch on the wire: each Start with its whole launch spec. Results come in this order."""
    starts: list[Command] = [
        Start(
            replica=order.replica,
            model=order.model,
            fingerprint=order.fingerprint,
            attempt=order.attempt,
            launch=call.specs[order.spec],
            claims=order.claims,
            host_memory_mib=order.host_memory_mib,
        )
        for order in call.starts
    ]
    # Stops go first: what they free may be what a start of the same batch takes.
    commands = (*call.stops, *starts, *call.tasks.values(), *(order.pull for order in call.pulls))
    return CommandBatch(
        token=call.token,
        node=call.node,
        commands=commands,
        released_ports=call.released_ports,
        asleep=call.asleep,
    )


def answer_of(call: DispatchCall, reply: BatchReply) -> DispatchAnswer:
    """The answer in short: only refusals and finished tasks enter the history. Results come in command order."""
    replicas = len(call.stops) + len(call.starts)
    refused = tuple(
        _short(result) for result in reply.results[:replicas] if result.outcome is Outcome.REFUSED and result.refusal
    )
    waiting = zip(call.waiting(), reply.results[replicas + len(call.tasks) :], strict=False)
    refused += tuple(
        _short(result).model_copy(update={"subject": replica})
        for replica, result in waiting
        if result.outcome is Outcome.REFUSED and result.refusal
    )
    tasks = tuple(
        TaskResult(task=task, result=_short(result))
        for task, result in zip(call.tasks, reply.results[replicas:], strict=False)
    )
    stopped = {stop.replica for stop in call.stops}
    gone = tuple(ReplicaId(r.subject) for r in reply.results[:replicas] if r.gone and r.subject in stopped)
    return DispatchAnswer(outcome=CallOutcome.ANSWERED, refused=refused, gone=gone, tasks=tasks, held=reply.token)


def _short(result: CommandResult) -> CommandResult:
    refusal = result.refusal and result.refusal.model_copy(update={"message": cut(result.refusal.message)})
    return result.model_copy(update={"refusal": refusal, "paths": result.paths[:MAX_PATHS]})


def _of(outgoing: Sequence[Outgoing], *kinds: OutgoingKind) -> list[Outgoing]:
    return [item for item in outgoing if item.kind in kinds]


def _start(world: World, item: Outgoing) -> StartOrder | None:
    assignment: Assignment | None = world.assignments.get(ReplicaId(item.subject))
    if assignment is None or assignment.spec not in world.specs:
        return None
    return StartOrder(
        replica=assignment.replica,
        model=assignment.model,
        fingerprint=assignment.fingerprint,
        attempt=assignment.attempt,
        spec=assignment.spec,
        claims=assignment.claims,
        host_memory_mib=assignment.host_memory_mib,
    )


def _pull(world: World, item: Outgoing) -> PullOrder | None:
    """What a replica's weights come from, with the secret that its engine would use."""
    assignment = world.assignments.get(ReplicaId(item.subject))
    spec = None if assignment is None else world.specs.get(assignment.spec)
    if assignment is None or spec is None or spec.weights is None:
        return None
    return PullOrder(replica=assignment.replica, pull=Pull(source=spec.weights, secret=pull_secret(spec)))


def _task(world: World, task: NodeTask) -> RemoveWeights | Pull:
    """A task's command as it is sent: a removal names what must stay at this moment."""
    if not isinstance(task.command, RemoveWeights):
        return task.command
    return task.command.model_copy(update={"keep": kept_weights(world, task.node)})


def kept_weights(world: World, node: NodeId) -> dict[str, str]:
    """Sources of weights that may not be removed on a node -> who needs them: a model that may run there, whether it
    does or not, or a replica that is, or is about to be, there."""
    models, member = world.catalog.models if world.catalog is not None else (), members.node(world, node)
    keep = {
        source: f"model {model.name}"
        for model in models
        for profile in model.profiles
        if member is not None and profile.pool == member.pool and (source := weights_of(model, profile)) is not None
    }
    for assignment in world.assignments.values():
        spec = world.specs.get(assignment.spec)
        if assignment.node == node and spec is not None and spec.weights is not None:
            keep[spec.weights] = f"replica {assignment.replica}"
    return dict(sorted(keep.items()))


def _stop_reason(world: World, replica: ReplicaId) -> str:
    assignment = world.assignments.get(replica)
    if assignment is None or assignment.stop is None:
        return "no assignment claims it"
    return assignment.stop.text


def summary_of(world: World, call: DispatchCall) -> str:
    """One line for the timeline in Temporal's web UI."""
    said: list[str] = []
    for order in call.starts:
        profile = world.assignments[order.replica].profile
        devices = f" on {counted(len(order.claims), 'device')}" if order.claims else ""
        said.append(f"start {order.model}/{profile}{devices}")
    for stop in call.stops:
        assignment = world.assignments.get(stop.replica)
        said.append(f"stop {assignment.model if assignment else stop.replica} ({stop.reason})")
    said += [
        "remove weights" if isinstance(command, RemoveWeights) else f"pull {command.source}"
        for command in call.tasks.values()
    ]
    said += sorted({f"pull {order.pull.source}" for order in call.pulls})
    said += [f"{'let' if asleep else 'wake'} {replica}{' sleep' * asleep}" for replica, asleep in call.asleep.items()]
    return _line(f"{call.node}: ", said)


def for_router(world: World, log: Sequence[Step], id_: RouterId) -> PublishCall | None:
    """What brings a router to the newest table: the difference where it is small and its base is held."""
    router = members.router(world, id_)
    if router is None:
        return None
    facts = world.routers.get(id_)
    change: TableChange | None = None
    if facts is not None and facts.acked_revision >= 0 and facts.held_digest == facts.acked_digest:
        change = table_log.since(log, facts.acked_revision, facts.acked_digest)
    delta = None
    if (
        facts is not None
        and change is not None
        and _size(change) <= MAX_DELTA_ITEMS
        and _names(change) <= MAX_DELTA_CHARS
    ):
        delta = Delta(
            base=facts.acked_digest,
            digest=world.table.digest,
            put_models=change.put_models,
            drop_models=change.drop_models,
            put_endpoints=change.put_endpoints,
            drop_endpoints=change.drop_endpoints,
        )
    return PublishCall(
        router=id_,
        kind=router.kind,
        url=router.url,
        token=next_token(world),
        revision=world.table_revision,
        delta=delta,
        settings=router.settings,
    )


def _size(change: TableChange) -> int:
    return sum(map(len, (change.put_models, change.drop_models, change.put_endpoints, change.drop_endpoints)))


def _names(change: TableChange) -> int:
    """Characters of the names that a change carries: each endpoint repeats those of its model."""
    carried = chain((m.aliases for m in change.put_models), (e.models for e in change.put_endpoints))
    return sum(len(name) for names in carried for name in names)


def summary_of_push(call: PublishCall) -> str:
    if call.delta is None:
        return f"{call.router}: the whole table, revision {call.revision}"
    said = []
    if call.delta.drop_endpoints:
        said.append("withdraw " + ", ".join(call.delta.drop_endpoints))
    if call.delta.put_endpoints:
        said.append("publish " + ", ".join(e.id for e in call.delta.put_endpoints))
    if call.delta.drop_models:
        said.append("forget model " + ", ".join(call.delta.drop_models))
    if call.delta.put_models:
        said.append("; ".join(f"{m.name} is {m.state}" for m in call.delta.put_models))
    return _line(f"{call.router}: ", said or ["nothing new"])


def _line(head: str, said: Sequence[str], limit: int = 180) -> str:
    text = head + "; ".join(said)
    return text if len(text) <= limit else text[: limit - 1] + "…"
