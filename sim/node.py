"""A node as a pure state machine: what an agent answers and reports, without processes or clocks.

It keeps the promises of the wire (fencing, idempotent commands, no double booking, absence only after proof) and
has the faults of real nodes: slow starts, crashes, stops that take their time, restarts with another instance.
"""

import math
from dataclasses import dataclass, field, replace

from llmgw import fencing
from llmgw.fencing import Fence
from llmgw.ids import DeviceId, NodeId, ReplicaId
from llmgw.observation import NodeSeen
from llmgw.wire import (
    BatchReply,
    Command,
    CommandBatch,
    CommandResult,
    Device,
    DeviceClaim,
    EngineState,
    ErrorCode,
    ErrorReply,
    Inventory,
    Mark,
    Outcome,
    Owner,
    Pull,
    Refusal,
    RefusalCode,
    ReplicaReport,
    Start,
    Stop,
    Token,
    WeightsReport,
)

PORT_REST_S = 3600.0


@dataclass
class Engine:
    start: Start
    mark: Mark
    port: int
    state: EngineState = EngineState.STARTING
    ready_at_s: float = 0.0
    gone_at_s: float | None = None
    was_ready: bool = False
    exit_code: int | None = None
    rests: bool = False
    asleep: bool = False


@dataclass
class SimNode:
    id: NodeId
    devices: tuple[Device, ...]
    complete: bool = True
    """Its inventory is complete; false: devices are still coming up."""
    start_s: float = 3.0
    stop_s: float = 1.0
    wake_s: float = 1.0
    boot: str = "boot-1"
    machine: str = ""
    """Its machine id; empty: one of its own."""
    says: str = ""
    """The node that it says it is, where that is another."""
    instance: str = "agent-1"
    revision: int = 0
    token: Token | None = None
    engines: dict[ReplicaId, Engine] = field(default_factory=dict)
    ports: range = range(20000, 20024)
    next_port: int = 0
    now_s: float = 0.0
    resting: dict[int, float] = field(default_factory=dict)
    """Port to the time at which its rest began."""
    starts: list[ReplicaId] = field(default_factory=list)
    """Every start that was ever accepted, in order."""
    starts_before: int = 0
    """How many of them were before this boot."""
    crash_starts: bool = False
    """Every engine exits while it loads."""
    crash_args: frozenset[str] = frozenset()
    """So does every engine that is started with one of these arguments."""
    unkillable: bool = False
    """Nothing ends by a stop, not even by force."""
    refuses: RefusalCode | None = None
    """Every start is refused with this code."""
    pull_s: float | None = 2.0
    """How long a pull takes; None: it cannot pull."""
    weights: dict[str, float] = field(default_factory=dict)
    """Source -> when it will be whole; 0 when it is."""
    pulled: list[Pull] = field(default_factory=list)
    """Every pull that was ever accepted, in order."""
    _last: tuple[tuple[object, ...], tuple[Device, ...], NodeSeen] | None = None
    """The last report, and what it was made of."""

    # --- time ---

    @property
    def next_s(self) -> float:
        """When an engine becomes ready or is gone by itself next."""
        moments = (e.gone_at_s if e.state is EngineState.STOPPING else e.ready_at_s for e in self.engines.values())
        waiting = (EngineState.STARTING, EngineState.STOPPING)
        wakes = min((e.ready_at_s for e in self.engines.values() if e.state is EngineState.LOADING), default=math.inf)
        pulls = min((m for m in self.weights.values() if m > 0), default=math.inf)
        live = [m for m, e in zip(moments, self.engines.values(), strict=True) if e.state in waiting and m is not None]
        return min(pulls, wakes, min(live, default=math.inf))

    def advance(self, now_s: float) -> None:
        """Let engines become ready, stopping ones end with proof, and pulls arrive."""
        self.now_s = now_s
        for source, whole_s in self.weights.items():
            if 0 < whole_s <= now_s:
                self.weights[source] = 0.0
                self.revision += 1
        for replica, engine in list(self.engines.items()):
            if engine.state is EngineState.STOPPING and engine.gone_at_s is not None and now_s >= engine.gone_at_s:
                self.resting[engine.port] = now_s
                del self.engines[replica]
                self.revision += 1
            elif engine.state is EngineState.LOADING and now_s >= engine.ready_at_s:
                engine.state, engine.asleep = EngineState.READY, False
                self.revision += 1
            elif engine.state is EngineState.STARTING and now_s >= engine.ready_at_s:
                if self.crash_starts or self.crash_args & set(engine.start.launch.argv):
                    self.crash(replica)
                else:
                    engine.state, engine.was_ready = EngineState.READY, True
                    self.revision += 1

    # --- the door ---

    def commands(self, batch: CommandBatch, now_s: float) -> BatchReply | ErrorReply:
        """One batch, as an agent takes it."""
        fence = fencing.compare(batch.token, self.token)
        if fence is Fence.STALE:
            return ErrorReply(code=ErrorCode.STALE_TOKEN, message="stale", held=self.token)
        if fence is Fence.FOREIGN:
            return ErrorReply(code=ErrorCode.FOREIGN_OWNER, message="foreign", held=self.token, owner=self.owner)
        repeats, self.token = fence is Fence.SAME, batch.token
        self.revision += 1
        for released in batch.released_ports:
            self.resting.pop(released, None)
        for replica, asleep in batch.asleep.items():
            self._rest(replica, asleep, now_s)
        results = tuple(self._one(c, batch.token, now_s, repeats) for c in batch.commands)
        return BatchReply(token=batch.token, results=results)

    @property
    def owner(self) -> Owner | None:
        return None if self.token is None else fencing.owner_of(self.token)

    def _one(self, command: Command, token: Token, now_s: float, repeats: bool) -> CommandResult:
        if isinstance(command, Start):
            if repeats and command.replica not in self.engines:
                return _refused(command.replica, RefusalCode.CONFLICT)
            return self._start(command, token, now_s)
        if isinstance(command, Stop):
            return self._stop(command, now_s)
        if isinstance(command, Pull):
            return self._pull(command, now_s)
        return CommandResult(subject="task", outcome=Outcome.ACCEPTED)

    def _pull(self, pull: Pull, now_s: float) -> CommandResult:
        if self.pull_s is None:
            return _refused(pull.source, RefusalCode.UNSUPPORTED)
        if pull.source in self.weights:
            return CommandResult(subject=pull.source, outcome=Outcome.ALREADY)
        self.weights[pull.source] = now_s + self.pull_s
        self.pulled.append(pull)
        return CommandResult(subject=pull.source, outcome=Outcome.ACCEPTED)

    def _start(self, start: Start, token: Token, now_s: float) -> CommandResult:
        if start.replica in self.engines:
            return CommandResult(subject=start.replica, outcome=Outcome.ALREADY)
        if self.refuses is not None:
            return _refused(start.replica, self.refuses)
        if {c.device for c in start.claims} - {d.id for d in self.devices}:
            return _refused(start.replica, RefusalCode.DEVICE_UNKNOWN)
        if not all(self._is_free(claim) for claim in start.claims):
            return _refused(start.replica, RefusalCode.DEVICE_CLAIMED)
        port = self._port(now_s)
        if port is None:
            return _refused(start.replica, RefusalCode.NO_PORT)
        mark = Mark(
            installation=token.installation, fleet=token.fleet, replica=start.replica, epoch=token.epoch, seq=token.seq
        )
        self.engines[start.replica] = Engine(start, mark, port, ready_at_s=now_s + self.start_s)
        self.starts.append(start.replica)
        return CommandResult(subject=start.replica, outcome=Outcome.ACCEPTED)

    def _rest(self, replica: ReplicaId, asleep: bool, now_s: float) -> None:
        """A ready engine falls asleep at once; waking takes a while."""
        engine = self.engines.get(replica)
        if engine is None or engine.rests == asleep or engine.state in (EngineState.STOPPING, EngineState.FAILED):
            return
        engine.rests = asleep
        if asleep and engine.state is EngineState.READY:
            engine.state, engine.asleep, engine.ready_at_s = EngineState.LOADING, True, math.inf
        elif not asleep and engine.asleep:
            engine.ready_at_s = now_s + self.wake_s

    def _is_free(self, claim: DeviceClaim) -> bool:
        """Nobody is on the device, or every one of them has a share and this one is still there."""
        others = [c for e in self.engines.values() for c in e.start.claims if c.device == claim.device]
        has = next(d.memory_mib for d in self.devices if d.id == claim.device)
        shares = [c.memory_mib for c in (*others, claim)]
        return not others or (has is not None and all(shares) and sum(mib or 0 for mib in shares) <= has)

    def _port(self, now_s: float) -> int | None:
        """The next port in turn that nobody uses and that does not rest."""
        self.resting = {port: since_s for port, since_s in self.resting.items() if now_s - since_s < PORT_REST_S}
        taken = {engine.port for engine in self.engines.values()} | set(self.resting)
        for offset in range(len(self.ports)):
            port = self.ports[(self.next_port + offset) % len(self.ports)]
            if port not in taken:
                self.next_port = port + 1 - self.ports.start
                return port
        return None

    def _stop(self, stop: Stop, now_s: float) -> CommandResult:
        """The process ends after a while. Its row goes with the proof, not before."""
        engine = self.engines.get(stop.replica)
        if engine is None or (engine.state is EngineState.STOPPING and not stop.force):
            return CommandResult(subject=stop.replica, outcome=Outcome.ALREADY)
        if engine.state is EngineState.FAILED and not self.unkillable:
            self.resting[engine.port] = now_s
            del self.engines[stop.replica]
            return CommandResult(subject=stop.replica, outcome=Outcome.ACCEPTED, gone=True)
        took_s = 0.1 if engine.state is EngineState.FAILED or stop.force else self.stop_s
        took_s = 1e9 if self.unkillable else took_s
        engine.state, engine.gone_at_s = EngineState.STOPPING, now_s + took_s
        return CommandResult(subject=stop.replica, outcome=Outcome.ACCEPTED)

    # --- faults ---

    def crash(self, replica: ReplicaId) -> None:
        engine = self.engines.get(replica)
        if engine is not None and engine.state is not EngineState.STOPPING:
            engine.state, engine.exit_code = EngineState.FAILED, 1
            self.revision += 1

    def restart_agent(self) -> None:
        """Engines live on; the agent is another instance and knows them again."""
        number = int(self.instance.rpartition("-")[2]) + 1
        self.instance, self.revision = f"agent-{number}", 0

    def reboot(self) -> None:
        self.resting |= dict.fromkeys((engine.port for engine in self.engines.values()), self.now_s)
        self.engines.clear()
        self.starts_before = len(self.starts)
        number = int(self.boot.rpartition("-")[2]) + 1
        self.boot = f"boot-{number}"
        self.restart_agent()

    # --- what it says ---

    def report(self) -> NodeSeen:
        """What it reports now; the very same value while nothing has changed."""
        now = (
            *(self.boot, self.instance, self.revision, self.machine, self.says, self.complete, self.token),
            *((r, e.state, e.was_ready, e.exit_code, e.rests, e.asleep, id(e)) for r, e in self.engines.items()),
            *self.weights.items(),
        )
        if self._last is None or self._last[0] != now or self._last[1] is not self.devices:
            self._last = now, self.devices, self._report()
        return self._last[2]

    def _report(self) -> NodeSeen:
        return NodeSeen(
            node=self.id,
            machine=self.machine or f"machine-{self.id}",
            boot=self.boot,
            instance=self.instance,
            revision=self.revision,
            token=self.token,
            owner=self.owner,
            says=self.says,
            inventory=Inventory(devices=self.devices, complete=self.complete, host_memory_mib=1 << 20),
            replicas=tuple(self._row(r, e) for r, e in sorted(self.engines.items())),
            weights=tuple(
                WeightsReport(source=source, path="", bytes=0, complete=not whole_s, pulling=whole_s > 0)
                for source, whole_s in sorted(self.weights.items())
            ),
        )

    def _row(self, replica: ReplicaId, engine: Engine) -> ReplicaReport:
        return ReplicaReport(
            replica=replica,
            model=engine.start.model,
            mark=engine.mark,
            fingerprint=engine.start.fingerprint,
            attempt=engine.start.attempt,
            state=engine.state,
            claims=engine.start.claims,
            served_name=engine.start.launch.served_name,
            url=f"http://{self.id}:{engine.port}",
            port=engine.port,
            was_ready=engine.was_ready,
            exit_code=engine.exit_code,
            reason="the process ended" if engine.state is EngineState.FAILED else "",
            rests=engine.rests,
            asleep=engine.asleep,
        )


def _refused(subject: str, code: RefusalCode) -> CommandResult:
    return CommandResult(subject=subject, outcome=Outcome.REFUSED, refusal=Refusal(code=code, message=str(code)))


def devices(node: str, count: int, kind: str = "h100", memory_mib: int | None = 81920) -> tuple[Device, ...]:
    """`count` equal devices with identities of their own."""
    one = Device(id=DeviceId(""), index=0, kind=kind, vendor="nvidia", memory_mib=memory_mib)
    return tuple(one.model_copy(update={"id": DeviceId(f"GPU-{node}-{i}"), "index": i}) for i in range(count))


def with_inventory(node: SimNode, new: tuple[Device, ...]) -> SimNode:
    """The same node with other devices."""
    return replace(node, devices=new, revision=node.revision + 1)
