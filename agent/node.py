"""The one owner of what runs on this node: its replicas, ports, devices, ledger and what it tells about them.

Everything here happens on one event loop. `agent.commands` decides what a batch does; this module keeps the result.
"""

import asyncio
import socket
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial

import structlog

from agent.admission import View
from agent.again import Work, again
from agent.census import CensusTaker, SharedLook
from agent.cgroups import cgroups_for
from agent.containers import Found, ToolFailed, container_tool
from agent.devices import DeviceSource, Holding, Known, Whose, device_source, with_quarantine
from agent.enginelogs import EngineLogs
from agent.handles import raise_soft_limit, why_too_few
from agent.hearing import Hearing
from agent.housekeeping import Housekeeping
from agent.ledger import Ledger, LedgerError, LedgerFile, Record, read_ledger
from agent.local import Executables, Secrets
from agent.marks import processes_of
from agent.metrics import Meters
from agent.oom import MemoryDeaths
from agent.ports import Ports
from agent.proc import Census, Process, boot_id, boottime_s, machine_id
from agent.readiness import Prober
from agent.recovery import recover
from agent.replica import Replica
from agent.reports import Revisions
from agent.settings import Settings
from agent.statefolder import StateFolder, StateInUse, kept_machine_id
from agent.surroundings import Surroundings
from agent.telling import own_version
from agent.tls import Rotation
from agent.weights.shelf import Shelf, User
from agent.whose import whose
from llmgw.fencing import owner_of
from llmgw.ids import DeviceId, ReplicaId
from llmgw.wire import NodeReport, Token

FIRST_LOOK_S = 1.5
"""How long a starting agent waits for the engines it found to say how they are, before it says so itself."""

DEVICES_S = 15.0
__all__ = ["Node", "StateInUse", "log"]

log = structlog.get_logger("agent")


class Node:
    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self.settings = settings
        self.boot_id = boot_id()
        self.machine_id = settings.machine_id or machine_id() or kept_machine_id(settings.state_dir / "machine-id")
        self.home = str(settings.state_dir)
        self.handles = raise_soft_limit()
        """File handles that this agent, and each engine, may have open."""
        self.folder = StateFolder(settings.state_dir)
        self.names = frozenset({settings.node})
        """What this node is called, and was before: engines carry the name of their time."""
        self.hearing = Hearing(boottime_s())
        self.token: Token | None = None
        self.must_report_first = False
        """The ledger was lost: no command before the state rebuilt from marks was told."""
        self.closing = False
        self.replicas: dict[ReplicaId, Replica] = {}
        self.ports = Ports(settings.first_port, settings.last_port)
        self.census = CensusTaker()
        self.cgroups = cgroups_for(self.home)
        self.device_looks = SharedLook(self._look_at_devices, "devices")
        self.logs = EngineLogs(settings.state_dir / "logs", settings.log_limit_mib)
        self.memory_deaths = MemoryDeaths(self.cgroups)
        self.house = Housekeeping(self)
        self.ledger = LedgerFile(settings.state_dir / "ledger.json", self._snapshot, self.house.make_folder_anew)
        self.revisions = Revisions()
        self.meters = Meters()
        self._tasks: set[asyncio.Task[None]] = set()
        self._environ = dict(environ)
        self._executables = Executables(settings.allow)
        self.secrets = Secrets(settings.secrets_dir, self._environ)
        self.turn = asyncio.Lock()
        """Held by whoever accepts commands or removes weights."""
        self.shelf = Shelf(
            settings.weights_root,
            settings.state_dir,
            self.secrets,
            self._environ,
            self._make_task,
            self._keep_at,
            users=lambda: [User(r.record.replica, r.record.start.launch) for r in self.replicas.values()],
            changed=self.revisions.note_weights,
            turn=self.turn,
            limit_percent=settings.weights_limit_percent,
        )
        self.containers = container_tool(settings.container_tool, self.home, self._environ, settings.container_user)
        self._source: DeviceSource = device_source(
            settings.devices, self.machine_id, settings.node, settings.device_memory
        )
        self._devices = Known()
        self._hostname = socket.gethostname()
        self._version = own_version()

    # --- begin and end ---------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Take over what runs, and only then be ready for questions. Raises StateInUse, OSError."""
        self.folder.hold()
        self.names = self.folder.names(self.settings.node)
        self._around = self._surroundings(Prober())
        path = self.settings.state_dir / "ledger.json"
        contained = await self._contained()
        running = {one.replica: one.record for one in contained if one.runs and one.record is not None}
        census = await self.census.take()
        recovered = recover(
            read_ledger(path), census, self.boot_id, self.settings.node, self.home, running, self.machine_id, self.names
        )
        await self._clear([one.name for one in contained if one.replica not in recovered.ledger.records])
        for note in recovered.notes:
            log.warning("recovered", note=note)
        self.token, self.must_report_first = recovered.ledger.token, recovered.rebuilt
        self.ports.restore(recovered.ledger.resting_ports, recovered.ledger.resting_with)
        self.hearing.restore(recovered.ledger.heard_s, boottime_s())
        for record in recovered.ledger.records.values():
            self.replicas[record.replica] = self.new_replica(record)
            self.ports.hand_over(record.ports)
        before = {k: v for replica in self.replicas.values() for k, v in replica.record.idle_mib.items()}
        self._devices = Known(idle_mib=before)
        await self.device_looks.take()
        with suppress(LedgerError):  # kept as its problem: what runs here is watched and told all the same
            await self.ledger.save()
        for replica in tuple(self.replicas.values()):
            replica.resume()
            self.changed(replica)
        await self.shelf.open()
        await self._first_look()
        self.note_head()
        self._keep_at(self.house.keep, "housekeeping")
        self._keep_at(self.house.bound_logs, "logs")
        if self._source.changes:
            self._keep_at(self._read_devices, "devices")

    async def close(self) -> None:
        """End the agent's own work; engines run on, and the next agent on this state folder takes them over."""
        self.closing = True
        self.revisions.wake_all()
        for replica in self.replicas.values():
            replica.detach()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.ledger.settle()
        await self._around.prober.close()
        self.folder.let_go()

    def watch_certificate(self, rotation: Rotation) -> None:
        """Take a certificate that was replaced on the disk into force, within seconds."""
        self._keep_at(partial(self.house.keep_certificate, rotation), "certificate")

    # --- what commands use -----------------------------------------------------------------------------------------

    def new_replica(self, record: Record) -> Replica:
        return Replica(record, self._around)

    def view(self) -> View:
        return View(
            inventory=self._devices.inventory,
            quarantined=self.quarantined(),
            records=tuple(replica.record for replica in self.replicas.values()),
            executables=self._executables,
            secrets=self.secrets,
            weights_root=self.settings.weights_root,
            containers=self.containers,
            allow_images=self.settings.allow_images,
        )

    def processes_of(self, record: Record, census: Census) -> tuple[Process, ...]:
        """All live processes of a replica."""
        return processes_of(record, self.settings.node, census, self.cgroups.pids(record.replica))

    def idle_mib(self, devices: Iterable[DeviceId]) -> dict[DeviceId, int]:
        """Use of devices when they were last seen without a replica of ours, where that is known."""
        return {device: self._devices.idle_mib[device] for device in devices if device in self._devices.idle_mib}

    def quarantined(self) -> dict[DeviceId, str]:
        """Devices that a process surviving KILL, or memory that did not come back, may still hold."""
        return {
            claim.device: f"{replica.record.replica}: {replica.stuck}"[:300]
            for replica in self.replicas.values()
            if replica.stuck
            for claim in replica.record.start.claims
        }

    def whose(self, pid: int) -> Whose:
        """Whether a process belongs to a replica here: by its session, or by its mark."""
        sessions = {replica.record.pid for replica in self.replicas.values()}
        return whose(pid, lambda process: process.session in sessions or self.cgroups.holds(pid), self.names)

    def forget(self, replica: ReplicaId) -> None:
        """A replica proven gone: its devices are free, its ports rest. The caller saves."""
        gone = self.replicas.pop(replica)
        self.ports.rest(gone.record.ports, boottime_s())
        gone.detach()
        self.cgroups.remove(replica)
        self.revisions.note_gone(replica)
        self.note_head()

    # --- what replicas tell ----------------------------------------------------------------------------------------

    def changed(self, replica: Replica) -> None:
        self.revisions.note_replica(replica.report())
        self.note_head()

    def became_ready(self, replica: Replica, after_s: float) -> None:
        self.meters.ready_after.observe(after_s)
        log.info("ready", replica=replica.record.replica, after_s=round(after_s, 3))

    def gone(self, replica: Replica) -> None:
        self.forget(replica.record.replica)
        self.meters.stopped.inc()
        self.ledger.save_soon()
        log.info("gone", replica=replica.record.replica)

    # --- what it tells ---------------------------------------------------------------------------------------------

    def note_head(self) -> None:
        """Something about the node itself may have changed."""
        self.revisions.note_head(self._devices.inventory, self.token, self.quarantined(), self.problems())

    def problems(self) -> tuple[str, ...]:
        """What is wrong with the agent itself."""
        said = (
            *(self.ledger.problem, self.folder.problem, self.census.problem, self.hearing.problem(boottime_s())),
            why_too_few(self.handles, len(self.replicas)),
        )
        return tuple(problem[:300] for problem in said if problem)

    def report(self) -> NodeReport:
        quarantined = self.quarantined()
        return NodeReport(
            node=self.settings.node,
            machine_id=self.machine_id,
            boot_id=self.boot_id,
            instance=self.revisions.instance,
            revision=self.revisions.number,
            owner=owner_of(self.token) if self.token else None,
            token=self.token,
            inventory=with_quarantine(self._devices.inventory, quarantined),
            replicas=tuple(
                self.replicas[replica].report() for replica in self.revisions.known() if replica in self.replicas
            ),
            quarantined=quarantined,
            weights=self.shelf.rows(),
            disk=self.house.disk,
            hostname=self._hostname,
            version=self._version,
            problems=self.problems(),
        )

    def told(self, revision: int) -> None:
        """A stream has sent this revision."""
        self.revisions.told = max(self.revisions.told, revision)
        self.must_report_first = False

    # --- inside ----------------------------------------------------------------------------------------------------

    async def _contained(self) -> tuple[Found, ...]:
        """Our containers, as far as the tool tells."""
        try:
            return await self.containers.found() if self.containers is not None else ()
        except ToolFailed as failed:
            log.warning("containers are not known", problem=str(failed))
            return ()

    async def _clear(self, names: list[str]) -> None:
        """Remove containers of ours that have ended, or ran before this boot, and that no record knows."""
        if self.containers is not None and names:
            log.info("containers cleared", names=names)
            with suppress(ToolFailed):
                await self.containers.remove(names)

    def _surroundings(self, prober: Prober) -> Surroundings:
        return Surroundings(
            settings=self.settings,
            environ=self._environ,
            executables=self._executables,
            secrets=self.secrets,
            containers=self.containers,
            ports=self.ports,
            logs=self.logs,
            ledger=self.ledger,
            census=self.census,
            cgroups=self.cgroups,
            memory_deaths=self.memory_deaths,
            prober=prober,
            devices=lambda: self._devices,
            look_at_devices=self.device_looks.take if self._source.changes else None,
            keep_at=self._keep_at,
            watcher=self,
        )

    def _snapshot(self) -> Ledger:
        return Ledger(
            boot_id=self.boot_id,
            machine_id=self.machine_id,
            token=self.token,
            records={replica.record.replica: replica.record for replica in self.replicas.values()},
            resting_ports=self.ports.resting,
            resting_with=self.ports.companions,
            heard_s=self.hearing.heard_s,
        )

    def _make_task(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _keep_at(self, work: Work, name: str) -> asyncio.Task[None]:
        """Work that is begun again where it breaks."""
        return self._make_task(again(work, partial(self._broke, name)), name)

    def _broke(self, name: str, error: BaseException) -> None:
        self.meters.bugs.inc()
        log.error("a task broke: this is a bug", task=name, exc_info=error)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broke(task.get_name(), error)

    async def _first_look(self) -> None:
        looks = [asyncio.create_task(replica.looked.wait()) for replica in self.replicas.values()]
        if looks:
            _, late = await asyncio.wait(looks, timeout=FIRST_LOOK_S)
            for look in late:
                look.cancel()

    async def _read_devices(self) -> None:
        while True:
            await asyncio.sleep(DEVICES_S)
            await self.device_looks.take()
            self.note_head()

    async def _look_at_devices(self) -> Known:
        """One look, judged against what is ours at its beginning."""
        claims = (claim.device for replica in self.replicas.values() for claim in replica.record.start.claims)
        holding, before = Holding(self.whose, frozenset(claims)), self._devices
        self._devices = await asyncio.to_thread(self._source.read, holding, before)
        for note in self._devices.left_out:
            if note not in before.left_out:
                log.info("device left out", device=note)
        return self._devices
