"""What `observe` hands to the workflow: facts and differences, never documents, nothing a decision cannot use."""

from pydantic import BaseModel, ConfigDict

from llmgw.ids import DeviceId, ModelName, NodeId, ReplicaId, RouterId
from llmgw.packing import Packable
from llmgw.wire import DiskReport, HeldTable, Inventory, Owner, ReplicaReport, Token, WeightsReport
from llmgw.world import SilenceLevel


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class NodeSeen(_Value):
    """A node's report, cut. `inventory` None: the same as in the last report of the same boot."""

    node: NodeId
    machine: str
    boot: str
    instance: str
    revision: int
    token: Token | None = None
    owner: Owner | None = None
    inventory: Inventory | None = None
    replicas: tuple[ReplicaReport, ...] = ()
    quarantined: dict[DeviceId, str] = {}
    weights: tuple[WeightsReport, ...] = ()
    disk: DiskReport | None = None
    hostname: str = ""
    version: str = ""
    says: str = ""
    """The node that its agent says it is, where that is another."""
    problems: tuple[str, ...] = ()
    """What the agent says is wrong with its own node, told seldom (`activities.complaints`). Only shown."""
    ages_s: tuple[int, ...] = ()
    """Whole seconds that each of `replicas` has been in its state: in the first that is told of a node, else empty."""


class RouterSeen(_Value):
    """A router's state for this fleet. `held` None: it has no table of ours."""

    router: RouterId
    instance: str
    revision: int
    held: HeldTable | None = None
    draining: tuple[ReplicaId, ...] = ()
    """Withdrawn endpoints that still have requests in flight."""
    idle: tuple[ReplicaId, ...] = ()
    """Endpoints that had no request for as long as their model's idle time."""
    asked: tuple[ModelName, ...] = ()
    """Models that clients ask for and that have no ready endpoint."""


class SilenceSeen(_Value):
    """A target crossed a limit of silence, or was heard again. The witness rule has been applied."""

    target: str
    level: SilenceLevel
    silent_s: float


class TroubleSeen(_Value):
    """Why a target's stream fails, in words; empty when it works again."""

    target: str
    text: str


class Observation(Packable, _Value):
    """A part of what changed since `cursor`; `more`: ask again at once for the rest."""

    pool: str
    cursor: int
    more: bool = False
    nodes: tuple[NodeSeen, ...] = ()
    routers: tuple[RouterSeen, ...] = ()
    silence: tuple[SilenceSeen, ...] = ()
    troubles: tuple[TroubleSeen, ...] = ()
    acting: str = ""
    """Identity of the worker process that observes: the acting one."""


class Target(_Value):
    """One stream to hold."""

    id: str
    """`node/ID` or `router/ID`."""
    url: str
    kind: str = "native"
    """Of a router: which sink reads it back."""
    settings: dict[str, str] = {}


class Targets(_Value):
    """Whom to observe and when silence counts; a page of it."""

    revision: int
    targets: tuple[Target, ...] = ()
    suspect_after_s: float = 10.0
    lost_after_s: float = 60.0
    next_page: int | None = None
