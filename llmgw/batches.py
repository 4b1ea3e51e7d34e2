"""What a lane sends, computed at the moment of sending from the world: a node's commands, a router's difference.

Never decides: which commands are outstanding and which routers are behind is the plan's word.
"""

from collections.abc import Sequence

from llmgw import members, table_log
from llmgw.calls import Delta, DispatchCall, PublishCall, StartOrder
from llmgw.ids import NodeId, ReplicaId, RouterId
from llmgw.table import TableChange
from llmgw.table_log import Step
from llmgw.wire import Command, CommandBatch, RemoveWeights, Start, Stop, Token
from llmgw.world import Assignment, Outgoing, OutgoingKind, World

MAX_STARTS = 32
"""Starts in one batch; the rest follow in the next (an activity's input stays under 64 KB)."""

MAX_DELTA_ITEMS = 150
"""A larger difference is not carried in a history: the router gets the whole table, read by query."""


def next_token(world: World) -> Token:
    """The token of the next command or table. The caller records it as used before it leaves."""
    return Token(installation=world.installation, fleet=world.fleet, epoch=world.epoch, seq=world.seq + 1)


def for_node(world: World, node: NodeId) -> DispatchCall | None:
    """The node's outstanding commands as one call; None when there is nothing to say or nobody to say it to."""
    outgoing, member = world.outbox.get(node, ()), members.node(world, node)
    if not outgoing or member is None:
        return None
    starts = tuple(_start(world, item) for item in _of(outgoing, OutgoingKind.START))[:MAX_STARTS]
    orders = tuple(order for order in starts if order is not None)
    stops = tuple(
        Stop(
            replica=ReplicaId(item.subject),
            reason=_stop_reason(world, ReplicaId(item.subject)),
            force=item.kind is OutgoingKind.FORCE_STOP,
        )
        for item in _of(outgoing, OutgoingKind.STOP, OutgoingKind.FORCE_STOP)
    )
    wanted = {item.subject for item in _of(outgoing, OutgoingKind.TASK)}
    tasks = {task.id: task.command for task in world.wishes.tasks if task.id in wanted}
    if not (orders or stops or tasks):
        return None
    return DispatchCall(
        node=node,
        url=member.url,
        token=next_token(world),
        specs={order.spec: world.specs[order.spec] for order in orders},
        starts=orders,
        stops=stops,
        tasks=tasks,
        released_ports=tuple(sorted({port.port for port in world.resting.get(node, ()) if port.let_go})),
    )


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
    commands = (*call.stops, *starts, *call.tasks.values())
    return CommandBatch(token=call.token, node=call.node, commands=commands, released_ports=call.released_ports)


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
        devices = f" on {len(order.claims)} device{'s' * (len(order.claims) != 1)}" if order.claims else ""
        said.append(f"start {order.model}/{profile}{devices}")
    for stop in call.stops:
        assignment = world.assignments.get(stop.replica)
        said.append(f"stop {assignment.model if assignment else stop.replica} ({stop.reason})")
    said += [
        "remove weights" if isinstance(command, RemoveWeights) else f"pull {command.source}"
        for command in call.tasks.values()
    ]
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
    if facts is not None and change is not None and _size(change) <= MAX_DELTA_ITEMS:
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
