"""The world as the plane knows it: one immutable value, handed to `decide`.

Records are replaced, never changed; maps are copied before they are handed over. What is carried over
continue-as-new is said per field of `World`; reports never are, the first observation brings them again.
Clock readings (`…_s` with `since` or `at`) are workflow time in epoch seconds, never a node's clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from llmgw.catalog import Catalog, Node, Router
from llmgw.ids import DeviceId, Fingerprint, ModelName, NodeId, ReplicaId, RouterId, SpecId
from llmgw.table import EMPTY, Table
from llmgw.wire import (
    DeviceClaim,
    DiskReport,
    Inventory,
    LaunchSpec,
    Owner,
    Pull,
    RefusalCode,
    RemoveWeights,
    ReplicaReport,
    Token,
    WeightsReport,
)

# --- what we decided -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """The share of a replica on one node."""

    node: NodeId
    claims: tuple[DeviceClaim, ...] = ()


class StopCause(StrEnum):
    """Why a replica is no longer wanted. Each cause has its own rule in `llmgw.stopping`."""

    REMOVED = "removed"  # its model left the catalog
    SURPLUS = "surplus"
    CHANGED = "changed"  # its fingerprint is no longer the catalog's
    FAILED = "failed"  # the engine ended or passed a limit
    DRAINED = "drained"  # its node is drained or leaves
    REPLACED = "replaced"  # its node was lost and another replica took its place
    RESTART = "restart"  # an operator asked
    FLEET_ENDS = "fleet_ends"
    DISPLACED = "displaced"  # one of a higher priority takes its place


@dataclass(frozen=True, slots=True)
class StopIntent:
    """A wish to stop. Until `commanded` it can be taken back; after that the replica is never published again."""

    cause: StopCause
    text: str
    since_s: float
    withdrawn_at: int
    """The first table revision without the replica's endpoint; -1 while one still has to be made."""
    commanded: bool = False
    commanded_s: float | None = None
    by: ReplicaId | None = None
    """The replica that takes its place, where that is why it stops: without it there is no reason any more."""
    port: int | None = None
    """Where it listened when the stop was commanded: the port rests on its node until every router has let it go."""


@dataclass(frozen=True, slots=True)
class SleepIntent:
    """A wish that an idle replica's engine sleeps where it is (`llmgw.sleeping`)."""

    since_s: float
    withdrawn_at: int = -1
    """As in `StopIntent`."""
    commanded: bool = False
    """Its node is told; from then on it is published again only when that is proven undone."""
    ends: bool = False
    """It is wanted again: its node is told to wake it."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One decided replica. Holds its devices until an agent proves it gone. Carried."""

    replica: ReplicaId
    model: ModelName
    profile: str
    fingerprint: Fingerprint
    attempt: int
    spec: SpecId
    parts: tuple[Part, ...]
    boot: str
    """Boot id of the node when it was decided: a later boot voids it."""
    created_s: float
    stop: StopIntent | None = None
    adopted: bool = False
    host_memory_mib: int = 0
    unreadable: str = ""
    """Why its carried record could not be read. Then only its id, place and devices count, and it is left as it is:
    neither moved nor stopped before an operator restarts it."""
    sleep: SleepIntent | None = None
    refused_by: tuple[NodeId, ...] = ()
    """Nodes that refused its start, before it was decided anew for this one."""

    @property
    def node(self) -> NodeId:
        return self.parts[0].node

    @property
    def claims(self) -> tuple[DeviceClaim, ...]:
        return self.parts[0].claims


@dataclass(frozen=True, slots=True)
class RestingPort:
    """A port of a replica that is gone. Its agent gives it to nobody until we name it as let go, or an hour."""

    port: int
    since_s: float
    withdrawn_at: int
    """The first table revision without an endpoint there."""
    let_go: bool = False
    """Every router has acknowledged that revision or a later one."""
    named_seq: int = -1
    """Sequence number of the first batch that named it; all later ones do too."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A carried record of an assignment as it came, kept because a later version may read it. By replica id, or by a
    name of its own where even that cannot be read."""

    raw: object
    problem: str
    since_s: float


class OutgoingKind(StrEnum):
    START = "start"
    STOP = "stop"
    FORCE_STOP = "force_stop"
    TASK = "task"
    PULL = "pull"
    SLEEP = "sleep"
    WAKE = "wake"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One command a node still has to be told: `subject` is a replica id (or an unclaimed engine's), or a task id.
    A pull's subject is the replica that waits for its weights."""

    kind: OutgoingKind
    subject: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The agent's last answer to a Start: not now."""

    code: RefusalCode
    text: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt. Kept per model for the back-off, newest last."""

    replica: ReplicaId
    node: NodeId
    fingerprint: Fingerprint
    at_s: float
    was_ready: bool
    exit_code: int | None
    text: str
    log_tail: tuple[str, ...] = ()
    attempt: int = 1
    """How many attempts in a row have failed with it; one that was ready for long begins anew."""
    replaced: bool = False
    """Another attempt was made since."""


# --- what was seen -------------------------------------------------------------------------------------------------


class SilenceLevel(StrEnum):
    HEARD = "heard"
    SUSPECT = "suspect"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Silence:
    level: SilenceLevel
    since_s: float
    """Workflow time at which it fell silent, or was heard again."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The last report of a node, cut to what decisions use. Not carried."""

    node: NodeId
    machine: str
    boot: str
    instance: str
    revision: int
    token: Token | None
    owner: Owner | None
    inventory: Inventory
    replicas: tuple[ReplicaReport, ...]
    quarantined: Mapping[DeviceId, str]
    weights: tuple[WeightsReport, ...] = ()
    disk: DiskReport | None = None
    hostname: str = ""
    version: str = ""
    says: str = ""
    """The node that its agent says it is, where that is another: it refuses every command for this one."""
    problems: tuple[str, ...] = ()
    """What its agent says is wrong with the node itself. Only shown, never decided on."""
    at_s: float | None = None
    """Workflow time at which this revision came: the ages in it have grown since. Only shown, never decided on."""
    since: Mapping[ReplicaId, float] = field(default_factory=dict)
    """Since when each replica is in its state, as far as this run has seen it. Only shown, like `at_s`."""


@dataclass(frozen=True, slots=True)
class Known:
    """What stays known of a node between reports: its identity. Carried."""

    machine: str
    boot: str
    devices: tuple[DeviceId, ...]


@dataclass(frozen=True, slots=True)
class RouterFacts:
    """What a router acknowledged, what it was last seen to hold and what it says of its use. Carried but for what is
    brought again by the first observation: `idle`, `asked`."""

    acked_revision: int = -1
    acked_seq: int = -1
    acked_digest: str = ""
    held_digest: str = ""
    """What it says it holds, from its state or its answers; differs from `acked_digest` after a restart."""
    held_seq: int = -1
    draining: frozenset[ReplicaId] = frozenset()
    """Withdrawn replicas with requests in flight there. Carried: a run decides before it has observed anything, and
    must not take for idle what it has only forgotten."""
    confirmed_s: float | None = None
    asked_s: float | None = None
    """When the table left whose answer is not known yet. Not carried: the lane ends with the run."""
    instance: str = ""
    """The process of the router that was last heard."""
    began_anew: bool = False
    """Another instance was heard since the table left: an answer may be the former one's."""
    failures: int = 0
    failed_s: float | None = None
    problem: str = ""
    idle: frozenset[ReplicaId] = frozenset()
    asked: frozenset[ModelName] = frozenset()


@dataclass(frozen=True, slots=True)
class Call:
    """How calling a node went lately; a failed call says something about that call, never about the node."""

    failures: int = 0
    failed_s: float | None = None
    problem: str = ""
    told_s: float | None = None
    """When a batch was last answered."""
    asked_s: float | None = None
    """When the batch left whose answer is not known yet."""
    more: bool = False
    """The batch that was answered last did not hold everything."""


# --- what people want ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drain:
    since_s: float
    deadline_s: float | None = None
    """Epoch seconds, like `since_s`: at this moment what could not move is stopped. None: it waits for a place."""


@dataclass(frozen=True, slots=True)
class Scale:
    replicas: int
    until_s: float | None = None
    """Epoch seconds. None: until an order takes it back."""


@dataclass(frozen=True, slots=True)
class Pause:
    """The plane watches and publishes, and starts and stops nothing."""

    since_s: float
    until_s: float | None = None
    """Epoch seconds. None: until it is told to go on."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodeTask:
    """A command for one node outside scheduling; told until the node has answered."""

    id: str
    node: NodeId
    command: RemoveWeights | Pull
    since_s: float


@dataclass(frozen=True, slots=True)
class Wishes:
    """Everything operators asked for that lives beside the catalog. Carried."""

    cordoned: Mapping[NodeId, float] = field(default_factory=dict)
    drains: Mapping[NodeId, Drain] = field(default_factory=dict)
    scales: Mapping[ModelName, Scale] = field(default_factory=dict)
    wakes: Mapping[ModelName, float] = field(default_factory=dict)
    restarts: Mapping[str, float] = field(default_factory=dict)
    """Model name or replica id -> when: replicas created before are replaced."""
    added_nodes: Mapping[NodeId, Node] = field(default_factory=dict)
    added_routers: Mapping[RouterId, Router] = field(default_factory=dict)
    leaving: Mapping[NodeId, Node] = field(default_factory=dict)
    """Removed while they hold something: observed, emptied, then forgotten."""
    confirmed_lost: Mapping[NodeId, float] = field(default_factory=dict)
    trusted: Mapping[NodeId, float] = field(default_factory=dict)
    """Since when a node's crashes count again: an operator has mended it."""
    promoted: Mapping[ModelName, str] = field(default_factory=dict)
    """The version (`llmgw.rolling`) that need not be a canary any more."""
    reverted: Mapping[ModelName, str] = field(default_factory=dict)
    """The version that is not wanted: the last good one runs instead."""
    tasks: tuple[NodeTask, ...] = ()
    takeover_s: float | None = None
    pause: Pause | None = None
    confirmed_machines: Mapping[NodeId, str] = field(default_factory=dict)
    """Node -> id of the machine that an operator says is the one."""


# --- why nothing happens -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Waiting:
    """A thing that is wanted and not done: why, since when, until when at the latest. `text` is stable over time."""

    subject: str
    """`model/NAME`, `replica/ID`, `node/ID` or `router/ID`."""
    code: str
    text: str
    since_s: float
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One line of recent history for people."""

    at_s: float
    subject: str
    text: str


# --- the whole -----------------------------------------------------------------------------------------------------


class InputKind(StrEnum):
    CATALOG = "catalog"
    ORDER = "order"


@dataclass(frozen=True, slots=True)
class Input:
    """Something a person sent, recorded as it came; judged by the next plan."""

    arrival: int
    kind: InputKind
    name: str
    raw: object
    """The list of arguments as they were sent, none looked at."""
    at_s: float


@dataclass(frozen=True, slots=True)
class HeldCatalog:
    """A catalog that would remove too much: shown, not applied until confirmed. Carried."""

    digest: str
    raw: object
    since_s: float
    text: str


@dataclass(frozen=True, slots=True)
class World:
    fleet: str
    installation: str
    epoch: int
    seq: int
    """Highest sequence number handed out."""
    catalog: Catalog | None = None
    generation: int = 0
    digest: str = ""
    held: HeldCatalog | None = None
    inbox: tuple[Input, ...] = ()
    wishes: Wishes = Wishes()
    settling_since_s: float | None = None
    fenced_by: Token | None = None
    """A higher epoch or another installation: observe only."""
    overtaken_by: Token | None = None
    """Same installation and epoch, a sequence number beyond our memory: a reset or a restored backup."""
    ending: bool = False
    """The fleet ends: withdraw, drain, stop everything."""
    assignments: Mapping[ReplicaId, Assignment] = field(default_factory=dict)
    unreadable: Mapping[str, Unreadable] = field(default_factory=dict)
    """Assignments whose records could not be read. Carried."""
    specs: Mapping[SpecId, LaunchSpec] = field(default_factory=dict)
    sent: Mapping[ReplicaId, int] = field(default_factory=dict)
    """Sequence number of the last batch that named the replica. Carried."""
    refused: Mapping[ReplicaId, Refused] = field(default_factory=dict)
    failures: Mapping[ModelName, tuple[Failure, ...]] = field(default_factory=dict)
    next_replica: int = 0
    good: Mapping[ModelName, Catalog] = field(default_factory=dict)
    """While a changed model rolls: the entry that served last, alone in a catalog with its engines. Carried."""
    published_s: Mapping[ReplicaId, float] = field(default_factory=dict)
    """When a replica was first published. Carried."""
    resting: Mapping[NodeId, tuple[RestingPort, ...]] = field(default_factory=dict)
    """Ports of gone replicas that their nodes have not been told to use again. Carried."""
    outbox: Mapping[NodeId, tuple[Outgoing, ...]] = field(default_factory=dict)
    """Not carried: the first plan of a run derives it anew."""
    calls: Mapping[NodeId, Call] = field(default_factory=dict)
    known: Mapping[NodeId, Known] = field(default_factory=dict)
    seen: Mapping[NodeId, Seen] = field(default_factory=dict)
    silence: Mapping[str, Silence] = field(default_factory=dict)
    """By `node/ID` and `router/ID`; absent = heard or never heard in this run. Not carried."""
    troubles: Mapping[str, str] = field(default_factory=dict)
    """By `node/ID` and `router/ID`: what its stream last failed with. Not carried."""
    unclaimed: Mapping[ReplicaId, float] = field(default_factory=dict)
    """Engines of ours that no assignment claims: since when. Negative: their start was beyond our memory when they
    were seen, so they are shown and never stopped. Carried."""
    table: Table = EMPTY
    table_revision: int = 0
    routers: Mapping[RouterId, RouterFacts] = field(default_factory=dict)
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
