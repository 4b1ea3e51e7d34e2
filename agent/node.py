"""The node: the one owner of its replicas, ports and ledger. Takes batches, keeps the fence, tells its report.

Everything runs on one event loop. A batch is on the disk before it is answered, and answered before it has an
effect that cannot be repeated. It never dials out and never decides what should run.
"""

import asyncio
import shutil
from collections.abc import Coroutine, Mapping

from agent import weights
from agent.admission import View, admit, malformed
from agent.census import CensusTaker
from agent.devices import DeviceSource, device_source, with_quarantine
from agent.enginelogs import EngineLogs
from agent.ledger import Ledger, LedgerError, LedgerFile, Record, StopIntent, StopStep, read_ledger
from agent.local import Executables, Secrets
from agent.marks import MARKER, marked_records
from agent.metrics import Metrics
from agent.ports import NoPort, Ports
from agent.proc import boot_id, boottime_s, machine_id, take_census
from agent.readiness import Prober
from agent.replica import Replica, Surroundings
from agent.reports import Revisions
from agent.settings import Settings
from llmgw import fencing
from llmgw.fencing import Fence
from llmgw.ids import DeviceId, ReplicaId
from llmgw.wire import (
    BatchReply,
    Command,
    CommandBatch,
    CommandResult,
    DiskReport,
    ErrorCode,
    ErrorReply,
    Inventory,
    Mark,
    NodeReport,
    Outcome,
    Owner,
    Pull,
    Refusal,
    RefusalCode,
    RemoveWeights,
    Start,
    Stop,
    Token,
)

DEVICES_EVERY_S = 5.0
LOGS_EVERY_S = 10.0


class RefusedBatch(Exception):  # noqa: N818 - an answer, not a fault
    """The whole batch is refused: HTTP status and what to answer."""

    def __init__(self, status: int, reply: ErrorReply) -> None:
        super().__init__(reply.message)
        self.status = status
        self.reply = reply


class Node:
    """Use `open`, then `commands` and `report`; `close` lets go of engines without touching them."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], version: str) -> None:
        self.settings = settings
        self.revisions = Revisions()
        self.metrics = Metrics()
        self.logs = EngineLogs(settings.state_dir / "logs", settings.log_limit_mib)
        self._environ = environ
        self._version = version
        self._boot = boot_id()
        self._machine = settings.machine_id or machine_id(settings.state_dir / "machine-id")
        self._token: Token | None = None
        self._replicas: dict[ReplicaId, Replica] = {}
        self._shown: set[ReplicaId] = set()
        self._inventory = Inventory(complete=False, problem="not read yet")
        self._source: DeviceSource = device_source(settings.devices, self._machine, settings.node)
        self._ports = Ports(settings.first_port, settings.last_port)
        self._ledger = LedgerFile(settings.state_dir / "ledger.json", self._snapshot)
        self._executables = Executables(settings.allow)
        self._secrets = Secrets(settings.secrets_dir, environ)
        self._prober = Prober()
        self._tasks: set[asyncio.Task[None]] = set()
        self._door = asyncio.Lock()
        self.closing = False
        self._around = Surroundings(
            settings=settings,
            environ=environ,
            executables=self._executables,
            secrets=self._secrets,
            ports=self._ports,
            logs=self.logs,
            ledger=self._ledger,
            census=CensusTaker(),
            prober=self._prober,
            inventory=lambda: self._inventory,
            make_task=self._make_task,
            watcher=self,
        )

    # --- coming up and going ---------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Take over what an earlier agent left, then be ready for commands and reports."""
        ledger = await asyncio.to_thread(self._recovered)
        self._token = ledger.token
        self._ports.restore(ledger.resting_ports)
        self._inventory = await asyncio.to_thread(self._source.read, self._is_ours)
        for replica, record in ledger.records.items():
            self._replicas[replica] = Replica(record, self._around)
            self._shown.add(replica)
        for taken_over in list(self._replicas.values()):
            self._ports.hand_over(taken_over.record.ports)
            taken_over.resume()
            self.revisions.note_replica(taken_over.report())
        self._note_head()
        await self._ledger.save()
        self._make_task(self._look_after_logs(), "logs")
        if self._source.changes:
            self._make_task(self._look_after_devices(), "devices")

    def _recovered(self) -> Ledger:
        """The ledger on disk, or one made from the marks of what runs. A new boot voids the replicas."""
        ledger = read_ledger(self.settings.state_dir / "ledger.json")
        if ledger is not None and ledger.boot_id == self._boot:
            return ledger
        if ledger is not None:
            return Ledger(boot_id=self._boot, token=ledger.token)
        home = str(self.settings.state_dir)
        records = marked_records(take_census(MARKER), self.settings.node, home)
        newest = max((r.mark for r in records.values()), key=lambda m: (m.epoch, m.seq), default=None)
        token = None
        if newest is not None:
            token = Token(installation=newest.installation, fleet=newest.fleet, epoch=newest.epoch, seq=newest.seq)
        return Ledger(boot_id=self._boot, token=token, records=records)

    async def close(self) -> None:
        """End the agent, not the engines."""
        self.closing = True
        self.revisions.wake_all()
        for replica in self._replicas.values():
            replica.detach()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._ledger.settle()
        await self._prober.close()

    # --- commands --------------------------------------------------------------------------------------------------

    async def commands(self, batch: CommandBatch) -> BatchReply:
        """Take a batch. Raises RefusedBatch when nothing of it was taken."""
        async with self._door:
            self._let_in(batch)
            before, self._token = self._token, batch.token
            self._ports.release(batch.released_ports)
            fresh: list[Replica] = []
            ended: list[Replica] = []
            results = [await self._one(command, batch.token, fresh, ended) for command in batch.commands]
            try:
                await self._ledger.save()
            except LedgerError as error:
                self._take_back(fresh, before)
                reply = ErrorReply(code=ErrorCode.INVALID, message=f"nothing is promised: {error}"[:300])
                raise RefusedBatch(503, reply) from error
            self._set_going(fresh, ended)
            self._note_head()
            for command, result in zip(batch.commands, results, strict=True):
                self.metrics.command(command.kind, result.outcome)
            return BatchReply(token=batch.token, results=tuple(results))

    def _let_in(self, batch: CommandBatch) -> None:
        if batch.node != self.settings.node:
            message = f"this agent is node {self.settings.node}, not {batch.node}: correct the address of either"
            raise RefusedBatch(409, ErrorReply(code=ErrorCode.WRONG_NODE, message=message))
        if problems := malformed(batch):
            raise RefusedBatch(422, ErrorReply(code=ErrorCode.INVALID, message="; ".join(problems)))
        fence = fencing.compare(batch.token, self._token)
        if fence is Fence.STALE:
            message = "a newer token is held"
            raise RefusedBatch(409, ErrorReply(code=ErrorCode.STALE_TOKEN, message=message, held=self._token))
        if fence is Fence.FOREIGN:
            owner = self.owner
            message = f"this agent belongs to {owner}; POST /v1/release there gives it up"
            reply = ErrorReply(code=ErrorCode.FOREIGN_OWNER, message=message, held=self._token, owner=owner)
            raise RefusedBatch(403, reply)

    async def _one(self, command: Command, token: Token, fresh: list[Replica], ended: list[Replica]) -> CommandResult:
        match command:
            case Start():
                return self._start(command, token, fresh)
            case Stop():
                return await self._stop(command, ended)
            case RemoveWeights():
                in_use = tuple(r.record.start.launch.weights or "" for r in self._replicas.values())
                return await asyncio.to_thread(weights.remove, self.settings.weights_root, command, in_use)
            case Pull():
                return _refused(command.source, RefusalCode.UNSUPPORTED, "this agent does not download weights yet")

    def _start(self, start: Start, token: Token, fresh: list[Replica]) -> CommandResult:
        known = self._replicas.get(start.replica)
        if known is not None:
            if known.record.start.fingerprint != start.fingerprint:
                return _refused(start.replica, RefusalCode.CONFLICT, "this replica id runs with another fingerprint")
            return CommandResult(subject=start.replica, outcome=Outcome.ALREADY)
        records = tuple(r.record for r in self._replicas.values())
        view = View(self._inventory, self._quarantined(), records, self._executables, self._secrets)
        if (refusal := admit(start, view)) is not None:
            return CommandResult(subject=start.replica, outcome=Outcome.REFUSED, refusal=refusal)
        names = start.launch.extra_ports
        try:
            ports = self._ports.take(1 + len(names), boottime_s())
        except NoPort as error:
            return _refused(start.replica, RefusalCode.NO_PORT, str(error))
        mark = Mark(
            installation=token.installation, fleet=token.fleet, replica=start.replica, epoch=token.epoch, seq=token.seq
        )
        record = Record(
            start=start,
            mark=mark,
            home=str(self.settings.state_dir),
            port=ports[0],
            extra_ports=dict(zip(names, ports[1:], strict=True)),
        )
        replica = self._replicas[start.replica] = Replica(record, self._around)
        fresh.append(replica)
        return CommandResult(subject=start.replica, outcome=Outcome.ACCEPTED)

    async def _stop(self, stop: Stop, ended: list[Replica]) -> CommandResult:
        replica = self._replicas.get(stop.replica) or await self._unrecorded(stop.replica)
        if replica is None:
            return CommandResult(subject=stop.replica, outcome=Outcome.ALREADY)
        step = StopStep.KILL if stop.force else StopStep.TERM
        under_way = replica.record.stop
        if under_way is not None and (not stop.force or under_way.step is StopStep.KILL):
            return CommandResult(subject=stop.replica, outcome=Outcome.ALREADY)
        replica.update(stop=StopIntent(reason=stop.reason[:300], step=step))
        ended.append(replica)
        return CommandResult(subject=stop.replica, outcome=Outcome.ACCEPTED)

    async def _unrecorded(self, replica: ReplicaId) -> Replica | None:
        """A replica that only its marks still tell of."""
        census = await self._around.census.take()
        record = marked_records(census, self.settings.node, str(self.settings.state_dir)).get(replica)
        if record is None:
            return None
        found = self._replicas[replica] = Replica(record, self._around)
        return found

    def _set_going(self, fresh: list[Replica], ended: list[Replica]) -> None:
        for replica in (*fresh, *ended):
            self._shown.add(replica.record.replica)
            self.changed(replica)
        for replica in fresh:
            if replica.record.stop is None:
                replica.begin()
        for replica in ended:
            replica.stop()

    def _take_back(self, fresh: list[Replica], token: Token | None) -> None:
        """Nothing of the batch is promised: its new replicas never were."""
        self._token = token
        for replica in fresh:
            del self._replicas[replica.record.replica]
            self._ports.give_back(replica.record.ports)

    async def release(self, owner: Owner) -> None:
        """Forget the owner. Raises RefusedBatch when another one is named, or engines still run for it."""
        async with self._door:
            if self.owner is not None and owner != self.owner:
                reply = ErrorReply(code=ErrorCode.FOREIGN_OWNER, message="another owner", owner=self.owner)
                raise RefusedBatch(403, reply)
            if self._replicas:
                running = ", ".join(sorted(self._replicas))
                message = f"replicas of this owner are still here: {running}; stop them first"
                raise RefusedBatch(409, ErrorReply(code=ErrorCode.INVALID, message=message[:300], owner=self.owner))
            self._token = None
            await self._ledger.save()
            self._note_head()

    # --- what replicas tell (agent.replica.Watcher) -----------------------------------------------------------------

    def changed(self, replica: Replica) -> None:
        if replica.record.replica in self._shown:
            self.revisions.note_replica(replica.report())
            self.metrics.replicas(r.state for r in self._replicas.values())
            self._note_head()

    def became_ready(self, replica: Replica, after_s: float) -> None:
        self.metrics.ready(replica.record.start.launch.engine, after_s)

    def gone(self, replica: Replica) -> None:
        """Proven: its devices are free, its ports rest, and the report no longer shows it."""
        id_ = replica.record.replica
        self._replicas.pop(id_, None)
        self._shown.discard(id_)
        self._ports.rest(replica.record.ports, boottime_s())
        self._ledger.save_soon()
        self.revisions.note_gone(id_)
        self.metrics.replicas(r.state for r in self._replicas.values())
        self._note_head()

    # --- what it says ----------------------------------------------------------------------------------------------

    @property
    def owner(self) -> Owner | None:
        return None if self._token is None else fencing.owner_of(self._token)

    def report(self) -> NodeReport:
        """Everything, sampled now."""
        shown = sorted(self._shown & self._replicas.keys())
        return NodeReport(
            node=self.settings.node,
            machine_id=self._machine,
            boot_id=self._boot,
            instance=self.revisions.instance,
            revision=self.revisions.number,
            owner=self.owner,
            token=self._token,
            inventory=with_quarantine(self._inventory, self._quarantined()),
            replicas=tuple(self._replicas[id_].report() for id_ in shown),
            quarantined=self._quarantined(),
            disk=_disk(self.settings),
            version=self._version,
        )

    def _quarantined(self) -> dict[DeviceId, str]:
        """Devices of replicas that survive KILL."""
        stuck = (r for r in self._replicas.values() if r.stuck)
        return {claim.device: replica.stuck for replica in stuck for claim in replica.record.start.claims}

    def _note_head(self) -> None:
        self.revisions.note_head(self._inventory, self._token, self._quarantined())

    def _snapshot(self) -> Ledger:
        return Ledger(
            boot_id=self._boot,
            token=self._token,
            records={id_: replica.record for id_, replica in self._replicas.items()},
            resting_ports=self._ports.resting,
        )

    # --- background ------------------------------------------------------------------------------------------------

    def _is_ours(self, pid: int) -> bool:
        return any(replica.record.pid == pid for replica in self._replicas.values())

    async def _look_after_devices(self) -> None:
        while True:
            await asyncio.sleep(DEVICES_EVERY_S)
            self._inventory = await asyncio.to_thread(self._source.read, self._is_ours)
            self._note_head()

    async def _look_after_logs(self) -> None:
        while True:
            await asyncio.sleep(LOGS_EVERY_S)
            for replica in list(self._replicas.values()):
                record = replica.record
                await asyncio.to_thread(self.logs.bound, record.replica, record.start.attempt)
            self.logs.forget_old({*self._replicas})

    def _make_task(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _refused(subject: str, code: RefusalCode, message: str) -> CommandResult:
    refusal = Refusal(code=code, message=message[:300])
    return CommandResult(subject=subject, outcome=Outcome.REFUSED, refusal=refusal)


def _disk(settings: Settings) -> DiskReport:

    usage = shutil.disk_usage(settings.weights_root or settings.state_dir)
    return DiskReport(free_bytes=usage.free, total_bytes=usage.total)
