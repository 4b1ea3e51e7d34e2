"""What a batch of commands does: fenced, judged, written down, then acted on, in that order.

Stops are looked at before starts, so a batch may hand a failed replica's devices on. A batch sent twice changes
nothing. Refusals are results; only a batch that may not be looked at at all raises `BatchRefused`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import assert_never

from agent.admission import admit, malformed
from agent.ledger import LedgerError, Record, StopIntent, StopStep
from agent.local import refuse
from agent.marks import marked_records
from agent.node import Node
from agent.ports import NoPort
from agent.proc import Census, boottime_s
from agent.replica import Replica
from llmgw.fencing import Fence, compare, owner_of
from llmgw.ids import DeviceId, ReplicaId
from llmgw.wire import (
    BatchReply,
    Command,
    CommandBatch,
    CommandResult,
    EngineState,
    ErrorCode,
    ErrorReply,
    Mark,
    Outcome,
    Owner,
    Pull,
    Refusal,
    RefusalCode,
    Release,
    RemoveWeights,
    Restore,
    Start,
    Stop,
    Token,
)


class BatchRefused(Exception):  # noqa: N818 - a refusal, not a fault
    """The whole batch was refused; nothing was done."""

    def __init__(self, status: int, reply: ErrorReply) -> None:
        super().__init__(reply.message)
        self.status = status
        self.reply = reply


@dataclass
class _Staged:
    """What a batch has changed in memory and what it will do once that is on the disk."""

    token_before: Token | None
    repeats: bool = False
    """The batch was taken before: what it did not start then, or a boot has ended, may be taken for gone since."""
    results: dict[int, CommandResult] = field(default_factory=dict)
    acts: list[Callable[[], None]] = field(default_factory=list)
    undo: list[Callable[[], None]] = field(default_factory=list)
    rests: list[Replica] = field(default_factory=list)
    """Replicas that were told to sleep, or to be awake again."""


class Commands:
    """Takes batches one at a time."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def execute(self, batch: CommandBatch) -> BatchReply:
        """Accept and return: engines start and stop in the background. Raises BatchRefused."""
        self._node.hearing.note(boottime_s())
        async with self._node.turn:
            self._fence(batch)
            census = await self._node.census.take() if self._needs_census(batch) else Census()
            staged = self._stage(batch, census)
            await self._write_down(staged)
            self._node.note_head()
            for act in staged.acts:
                act()
            for replica in staged.rests:
                replica.follow_rest()
            await self._see_to_weights(batch, staged)
            results = tuple(staged.results[number] for number in range(len(batch.commands)))
            for command, result in zip(batch.commands, results, strict=True):
                self._node.meters.commands.labels(command.kind, result.outcome).inc()
            return BatchReply(token=batch.token, results=results)

    async def release(self, order: Release) -> None:
        """Forget the owner; engines stay as they are, shown and never touched by a new owner. Raises BatchRefused."""
        async with self._node.turn:
            held = self._node.token
            if held is not None and owner_of(held) != order.owner:
                raise self._refused(403, ErrorCode.FOREIGN_OWNER, _foreign_text(owner_of(held)))
            self._node.token = None
            staged = _Staged(token_before=held)
            await self._write_down(staged)
            self._node.note_head()

    async def restore(self, order: Restore) -> None:
        """Lift the quarantine of a device whose memory did not come back. Raises BatchRefused, also while a process
        of ours lives on it: that is no matter of belief."""
        async with self._node.turn:
            held = [r for r in self._node.replicas.values() if r.stuck and _claims(r, order.device)]
            if not held:
                raise self._refused(409, ErrorCode.INVALID, f"device {order.device} is not quarantined")
            census = await self._node.census.take()
            for replica in held:
                if left := self._node.processes_of(replica.record, census):
                    text = f"{replica.record.replica} still runs as pid {left[0].pid} ({left[0].name})"
                    raise self._refused(409, ErrorCode.INVALID, f"{text}: the device is free once that has ended")
            for replica in held:
                replica.believe_free()

    # --- the door --------------------------------------------------------------------------------------------------

    def _fence(self, batch: CommandBatch) -> None:
        node = self._node
        if node.must_report_first:
            raise self._refused(
                503,
                ErrorCode.NOT_READY,
                "the ledger was lost and rebuilt from marks: read /v1/state once, then command",
            )
        held = node.token
        fence = compare(batch.token, held)
        if fence is Fence.FOREIGN and held is not None:
            raise self._refused(403, ErrorCode.FOREIGN_OWNER, _foreign_text(owner_of(held)))
        if fence is Fence.STALE and held is not None:
            raise self._refused(
                409,
                ErrorCode.STALE_TOKEN,
                f"token {batch.token.epoch}.{batch.token.seq} is older than {held.epoch}.{held.seq}, which is held",
            )
        if batch.node != node.settings.node:
            raise self._refused(
                409, ErrorCode.WRONG_NODE, f"this is node {node.settings.node!r}, the batch is for {batch.node!r}"
            )
        if problems := malformed(batch):
            raise self._refused(422, ErrorCode.INVALID, "; ".join(problems))

    def _refused(self, status: int, code: ErrorCode, message: str) -> BatchRefused:
        held = self._node.token
        self._node.meters.refused_batches.labels(code).inc()
        owner = owner_of(held) if held else None
        return BatchRefused(status, ErrorReply(code=code, message=message, held=held, owner=owner))

    # --- judging ---------------------------------------------------------------------------------------------------

    def _needs_census(self, batch: CommandBatch) -> bool:
        """Whether the answer depends on which processes there are: stops of what is unknown, or has failed."""
        return any(
            command.kind in ("start", "stop") and self._is_failed_or_absent(command.replica, command.kind)
            for command in batch.commands
        )

    def _is_failed_or_absent(self, replica: ReplicaId, kind: str) -> bool:
        known = self._node.replicas.get(replica)
        return kind == "stop" if known is None else known.state is EngineState.FAILED

    def _stage(self, batch: CommandBatch, census: Census) -> _Staged:
        """Judge every command and change memory accordingly; nothing outside memory is touched."""
        staged = _Staged(token_before=self._node.token, repeats=batch.token == self._node.token)
        self._node.token = batch.token
        self._node.ports.release(batch.released_ports)
        order = sorted(enumerate(batch.commands), key=lambda numbered: numbered[1].kind != "stop")
        for number, command in order:
            result = self._judge(command, batch.token, census, staged)
            if result is not None:
                staged.results[number] = result
        for replica, asleep in batch.asleep.items():
            self._rest(replica, asleep, staged)
        return staged

    def _rest(self, id_: ReplicaId, asleep: bool, staged: _Staged) -> None:
        """What is not here, is another's or ends has nothing to do with sleep."""
        replica, held = self._node.replicas.get(id_), self._node.token
        if replica is None or held is None or _owner(replica.record.mark) != owner_of(held):
            return
        if replica.record.asleep == asleep or replica.state in (EngineState.STOPPING, EngineState.FAILED):
            return
        before = replica.record.dozes
        replica.update(asleep=asleep, dozes=before or (asleep and replica.record.was_ready))
        staged.undo.append(lambda: replica.update(asleep=not asleep, dozes=before))
        staged.rests.append(replica)

    def _judge(self, command: Command, token: Token, census: Census, staged: _Staged) -> CommandResult | None:
        """The result; None for what is answered after the ledger is written."""
        match command:
            case Stop():
                return self._stop(command, census, staged)
            case Start():
                return self._start(command, token, census, staged)
            case Pull() | RemoveWeights():
                return None
            case _:
                assert_never(command)

    def _start(self, start: Start, token: Token, census: Census, staged: _Staged) -> CommandResult:
        known = self._node.replicas.get(start.replica)
        if known is not None and (answer := self._start_again(start, known, token, census)) is not None:
            return answer
        if staged.repeats:
            text = f"{start.replica} was not accepted when this batch came first, and a repeat of it changes nothing"
            return _refused(start.replica, refuse(RefusalCode.CONFLICT, text))
        if (refusal := admit(start, self._node.view())) is not None:
            return _refused(start.replica, refusal)
        try:
            port, *extra = self._node.ports.take(1 + len(start.launch.extra_ports), boottime_s())
        except NoPort as full:
            return _refused(start.replica, refuse(RefusalCode.NO_PORT, str(full)))
        record = Record(
            start=start,
            mark=Mark(**token.model_dump(), replica=start.replica),
            home=self._node.home,
            node=self._node.settings.node,
            port=port,
            extra_ports=dict(zip(start.launch.extra_ports, extra, strict=True)),
            idle_mib=self._node.idle_mib(claim.device for claim in start.claims),
        )
        replica = self._node.replicas[start.replica] = self._node.new_replica(record)
        staged.acts.append(replica.begin)
        staged.undo.append(lambda: self._unstart(record))
        return _accepted(start.replica)

    def _start_again(self, start: Start, known: Replica, token: Token, census: Census) -> CommandResult | None:
        """The answer to a start of a replica that is here; None when it failed, is gone, and may be tried again."""
        record = known.record
        same = (record.start.fingerprint, _owner(record.mark)) == (start.fingerprint, owner_of(token))
        if known.state is EngineState.STOPPING or not same:
            what = "is being stopped" if same else f"runs with fingerprint {record.start.fingerprint!r}"
            return _refused(start.replica, refuse(RefusalCode.CONFLICT, f"{start.replica} {what}; start another id"))
        if known.state is not EngineState.FAILED or start.attempt <= record.start.attempt:
            return CommandResult(subject=start.replica, outcome=Outcome.ALREADY)
        if left := self._node.processes_of(record, census):
            text = f"attempt {record.start.attempt} left pid {left[0].pid} ({left[0].name}) behind: stop it first"
            return _refused(start.replica, refuse(RefusalCode.DEVICE_CLAIMED, text))
        if known.stuck:
            return _refused(start.replica, refuse(RefusalCode.DEVICE_QUARANTINED, known.stuck))
        self._node.forget(start.replica)
        return None

    def _unstart(self, record: Record) -> None:
        del self._node.replicas[record.replica]
        self._node.ports.give_back(record.ports)

    def _stop(self, stop: Stop, census: Census, staged: _Staged) -> CommandResult:
        listed = self._node.replicas.get(stop.replica)
        known = listed or self._unlisted(stop.replica, census)
        if known is None:
            return CommandResult(subject=stop.replica, outcome=Outcome.ALREADY)
        held = self._node.token
        if held is not None and _owner(known.record.mark) != owner_of(held):
            owner = _owner(known.record.mark)
            text = f"{stop.replica} was started by installation {owner.installation!r}, fleet {owner.fleet!r}"
            return _refused(stop.replica, refuse(RefusalCode.NOT_OURS, text))
        left = self._node.processes_of(known.record, census)
        if known.state is EngineState.FAILED and known.freed and not known.leaves_container and not left:
            self._node.forget(stop.replica)
            return CommandResult(subject=stop.replica, outcome=Outcome.ACCEPTED, gone=True)
        before = known.record.stop
        if before is not None and (not stop.force or before.step is StopStep.KILL):
            return CommandResult(subject=stop.replica, outcome=Outcome.ALREADY)
        step = StopStep.KILL if stop.force else StopStep.TERM
        known.update(stop=StopIntent(reason=stop.reason[:300], step=step, drain_s=stop.drain_s))
        staged.acts.append(known.stop if listed else known.resume)
        staged.undo.append(lambda: known.update(stop=before))
        return _accepted(stop.replica)

    def _unlisted(self, replica: ReplicaId, census: Census) -> Replica | None:
        """A replica that is in no record, and of which a marked process runs all the same."""
        record = marked_records(census, self._node.settings.node, self._node.home).get(replica)
        if record is None:
            return None
        found = self._node.replicas[replica] = self._node.new_replica(record)
        return found

    # --- acting ----------------------------------------------------------------------------------------------------

    async def _write_down(self, staged: _Staged) -> None:
        """The ledger, on disk; or everything as it was, and a refusal."""
        try:
            await self._node.ledger.save()
        except LedgerError as error:
            self._node.token = staged.token_before
            for undo in staged.undo:
                undo()
            raise self._refused(503, ErrorCode.NOT_READY, f"nothing was done: {error}") from error

    async def _see_to_weights(self, batch: CommandBatch, staged: _Staged) -> None:
        for number, command in enumerate(batch.commands):
            if isinstance(command, RemoveWeights):
                staged.results[number] = await self._node.shelf.remove(command)
            elif isinstance(command, Pull):
                staged.results[number] = await self._node.shelf.pull(command)


def _accepted(subject: str) -> CommandResult:
    return CommandResult(subject=subject, outcome=Outcome.ACCEPTED)


def _refused(subject: str, refusal: Refusal) -> CommandResult:
    return CommandResult(subject=subject, outcome=Outcome.REFUSED, refusal=refusal)


def _owner(mark: Mark) -> Owner:
    return Owner(installation=mark.installation, fleet=mark.fleet)


def _claims(replica: Replica, device: DeviceId) -> bool:
    return any(claim.device == device for claim in replica.record.start.claims)


def _foreign_text(owner: Owner) -> str:
    return (
        f"this node belongs to installation {owner.installation!r}, fleet {owner.fleet!r}; "
        "to take it over, release it there first (POST /v1/release)"
    )
