"""Everything that crosses a wire between the plane, the node agents and the routers: JSON over HTTP.

Rules (DESIGN §6): unknown fields are ignored, only optional ones are ever added, every document carries `protocol`;
durations and ages travel, never instants; the plane dials out, nothing dials in. Never put a secret's value in here.

Agent   GET  /v1/state?instance=&revision=   held NDJSON: a `NodeReport` per change, an empty line each BEAT_S
        POST /v1/commands                    `CommandBatch` -> `BatchReply`; 409/403 -> `ErrorReply`
        GET  /v1/replicas/{id}/logs          text/plain, `?lines=` and `?follow=1`
        POST /v1/release                     `Release` -> 204: forget the owner
        POST /v1/restore                     `Restore` -> 204: take a quarantined device into use again
Router  PUT  /v1/table                       `RouterTable` -> `TableReply`; 409/403 -> `ErrorReply`
        PATCH /v1/table                      `TablePatch` -> `TableReply`
        GET  /v1/state?instance=&revision=   held NDJSON of `RouterState`, an empty line each BEAT_S
Both    GET  /healthz, /metrics              without a bearer token
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from llmgw.ids import DeviceId, Fingerprint, ModelName, NodeId, ReplicaId

PROTOCOL = 1
BEAT_S = 3.0
MAX_ERROR_CHARS = 300
"""Error texts are cut where they arise: each may be carried through a history many times."""


class Wire(BaseModel):
    """A frozen document; unknown fields of a newer protocol are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    def model_post_init(self, _context: object) -> None:
        """All that name the same fields share one set of their names: of thousands, their own were half the memory.
        Nobody changes it, since no field of a frozen document can be set."""
        given = self.__pydantic_fields_set__
        if (shared := _FIELD_SETS.get(names := frozenset(given))) is not None:
            object.__setattr__(self, "__pydantic_fields_set__", shared)
        elif len(_FIELD_SETS) < MOST_FIELD_SETS:
            _FIELD_SETS[names] = given

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copied = super().model_copy(update=update, deep=deep)
        copied.model_post_init(None)
        return copied


MOST_FIELD_SETS = 4096
_FIELD_SETS: dict[frozenset[str], set[str]] = {}
"""In practice some dozens: as many as there are ways in which documents leave fields out."""


# --- fencing -------------------------------------------------------------------------------------------------------


class Token(Wire):
    """Who speaks and how recently. Ordered by (epoch, seq) within one installation and fleet, see `llmgw.fencing`."""

    installation: str = Field(min_length=1, max_length=64)
    fleet: str = Field(min_length=1, max_length=64)
    epoch: int = Field(ge=1)
    seq: int = Field(ge=0)


class Owner(Wire):
    """The installation and fleet an agent belongs to."""

    installation: str
    fleet: str


class Mark(Wire):
    """What every process and container we start carries, so that it is known again without any record."""

    installation: str
    fleet: str
    replica: ReplicaId
    epoch: int
    """Epoch and seq of the token of the batch that started it."""
    seq: int


# --- what to run ---------------------------------------------------------------------------------------------------


class DeviceNaming(StrEnum):
    """What an engine understands as a device's name."""

    UUID = "uuid"
    INDEX = "index"  # the agent maps identities to indexes, with the bus order forced


class DeviceSelection(Wire):
    """How the agent tells an engine its devices: every variable is set to the comma-joined names."""

    naming: DeviceNaming
    variables: tuple[str, ...]
    extra_env: dict[str, str] = {}


class Readiness(Wire):
    """Ready = `models_path` lists `served_name` (OpenAI list or llama.cpp's), after `health_path` answered 200.

    `lists_model` false: the health path alone decides (engines that have no model list).
    """

    health_path: str = "/health"
    models_path: str = "/v1/models"
    lists_model: bool = True
    probe_completion: bool = False
    """Also require a one-token completion to answer before the replica counts as ready."""


class MetricNames(Wire):
    """Prometheus names of the engine's own gauges; None where it has none."""

    path: str = "/metrics"
    running: str | None = None
    waiting: str | None = None
    tokens_total: str | None = None


class StopBehaviour(Wire):
    """TERM, `term_limit_s`, second TERM, `second_term_limit_s`, KILL to the group, `kill_limit_s`, then proof."""

    term_limit_s: float = 30.0
    second_term_limit_s: float = 5.0
    kill_limit_s: float = 10.0


class EnginePost(Wire):
    """One `POST` to an engine; `body` is JSON, or nothing."""

    path: str
    body: str = ""


class SleepPaths(Wire):
    """How an engine is put to sleep and woken over HTTP: `POST` `sleep`, or `wake` and then each of `then`; `GET`
    `told` answers `{"is_sleeping": …}`, true until the last of them."""

    sleep: str
    wake: str
    told: str
    then: tuple[EnginePost, ...] = ()


class ContainerSpec(Wire):
    """Run `argv` within an image, on the host's network; with `own_entrypoint` its items after the first are handed
    to the image's own entrypoint."""

    image: str = Field(min_length=1)
    own_entrypoint: bool = False


class LaunchSpec(Wire):
    """A rendered launch, complete but for what only the node knows.

    `argv` and `env` values may hold the placeholders `${llmgw:port}`, `${llmgw:port:NAME}`, `${llmgw:host}`,
    `${llmgw:weights}` and `${llmgw:python}` (the agent's own interpreter); the agent replaces exactly these and
    nothing else. No shell anywhere.
    """

    engine: str
    argv: tuple[str, ...] = Field(min_length=1)
    env: dict[str, str] = {}
    secret_env: dict[str, str] = {}
    """Variable -> name of a secret that the agent resolves on the node."""
    served_name: str
    devices: DeviceSelection | None = None
    extra_ports: tuple[str, ...] = ()
    readiness: Readiness = Readiness()
    metrics: MetricNames = MetricNames()
    stop: StopBehaviour = StopBehaviour()
    start_limit_s: float = 600.0
    stall_limit_s: float | None = None
    """With requests in flight and no counter of the engine moving for so long it is hung; None = never judged so."""
    container: ContainerSpec | None = None
    """None: a process of the node itself."""
    weights: str | None = None
    """Source of the weights: `hf://org/repo[@revision]`, `file:///path`, `https://…`."""
    sleep: SleepPaths | None = None
    """None: it is never put to sleep."""


class DeviceClaim(Wire):
    """A device, and how much of its memory; None = the whole device, alone."""

    device: DeviceId
    memory_mib: int | None = None


class Start(Wire):
    kind: Literal["start"] = "start"
    replica: ReplicaId
    model: ModelName
    fingerprint: Fingerprint
    attempt: int = Field(ge=1)
    launch: LaunchSpec
    claims: tuple[DeviceClaim, ...] = ()
    host_memory_mib: int = 0


class Stop(Wire):
    """Stop with proof. `force` starts at KILL. A replica the agent does not know is answered `already`."""

    kind: Literal["stop"] = "stop"
    replica: ReplicaId
    reason: str = ""
    force: bool = False
    drain_s: float = Field(default=0.0, ge=0)
    """How long the engine may go on with requests that it makes progress with. No router has any in flight when a stop
    is sent: these are of clients that do not come through one."""


class Pull(Wire):
    """Fetch weights into the node's weights root, ahead of a start. Accepted at once; the report tells how it goes."""

    kind: Literal["pull"] = "pull"
    source: str
    secret: str | None = None
    """Name of the secret on the node that holds the token for the hub or server."""


class RemoveWeights(Wire):
    """Remove cached weight files below the node's weights root; the outcome is told per path."""

    kind: Literal["remove_weights"] = "remove_weights"
    paths: tuple[str, ...] = Field(min_length=1)
    dry_run: bool = False
    keep: dict[str, str] = {}
    """Sources of weights whose files must stay -> who needs them."""


Command = Annotated[Start | Stop | Pull | RemoveWeights, Field(discriminator="kind")]


class CommandBatch(Wire):
    """All commands of a node whose effect its report does not show yet; sending it twice changes nothing."""

    protocol: int = PROTOCOL
    token: Token
    node: NodeId
    commands: tuple[Command, ...] = ()
    released_ports: tuple[int, ...] = ()
    """Ports that every router has let go: the agent may use them again."""
    asleep: dict[ReplicaId, bool] = {}
    """Replicas that are to sleep, or to be awake. Told until `ReplicaReport.rests` says so; what the agent does not
    have is left out. An agent that does not know this goes on serving."""


class Outcome(StrEnum):
    ACCEPTED = "accepted"
    ALREADY = "already"
    REFUSED = "refused"


class RefusalCode(StrEnum):
    """Why an agent does not do a thing now. Each is a wait, never a failed attempt."""

    DEVICE_CLAIMED = "device_claimed"
    DEVICE_UNKNOWN = "device_unknown"
    DEVICE_QUARANTINED = "device_quarantined"
    NO_DEVICES = "no_devices"  # the engine takes devices and the list is empty: empty would mean all
    NO_PORT = "no_port"
    NO_MEMORY = "no_memory"
    NO_DISK = "no_disk"
    NO_SECRET = "no_secret"  # noqa: S105 - a code, not a secret
    NOT_ALLOWED = "not_allowed"  # executable or image outside the allow-list
    NOT_FOUND = "not_found"  # executable or weights do not exist
    NOT_OURS = "not_ours"  # carries no mark of ours
    CONFLICT = "conflict"  # same replica id, another fingerprint
    IN_USE = "in_use"
    OUTSIDE_ROOT = "outside_root"
    NOT_READY = "not_ready"  # the agent rebuilds its ledger and takes no command yet
    UNSUPPORTED = "unsupported"


class Refusal(Wire):
    code: RefusalCode
    message: str = Field(max_length=MAX_ERROR_CHARS)


class PathOutcome(Wire):
    path: str
    outcome: Literal["removed", "would_remove", "absent", "refused"]
    freed_bytes: int = 0
    message: str = ""


class CommandResult(Wire):
    """`subject`: the replica id, the weights source, or `remove_weights`."""

    subject: str
    outcome: Outcome
    refusal: Refusal | None = None
    paths: tuple[PathOutcome, ...] = ()
    gone: bool = False
    """Of a Stop: proof that nothing is left of the replica, neither a process nor anything on its devices, just as its
    absence from a later report is. False says nothing: the report will tell."""


class BatchReply(Wire):
    protocol: int = PROTOCOL
    token: Token
    """The token the agent now holds."""
    results: tuple[CommandResult, ...] = ()


class ErrorCode(StrEnum):
    STALE_TOKEN = "stale_token"  # noqa: S105 - 409: a newer token is held
    BASE_DIFFERS = "base_differs"  # 409: the patch's base is not the table held
    FOREIGN_OWNER = "foreign_owner"  # 403: belongs to another installation or fleet
    UNAUTHORIZED = "unauthorized"  # 401
    INVALID = "invalid"  # 422/400
    TOO_LARGE = "too_large"  # 413: the request's body
    TOO_MANY = "too_many"  # 429: requests of one client
    WRONG_NODE = "wrong_node"  # 409: this agent is another node
    NOT_READY = "not_ready"  # 503: nothing was done, ask again later
    NAME_CONFLICT = "name_conflict"  # 409: a model here is an alias in another fleet's table


class ErrorReply(Wire):
    code: ErrorCode
    message: str
    held: Token | None = None
    owner: Owner | None = None
    digest: str | None = None


class Release(Wire):
    """Give the agent up for another installation. `owner` must name the present one: a guard against a mix-up."""

    owner: Owner


class Restore(Wire):
    """Lift a quarantine: somebody has looked and says that the device is as free as it will be."""

    device: DeviceId


# --- what a node says ----------------------------------------------------------------------------------------------


class DeviceHealth(StrEnum):
    OK = "ok"
    BAD = "bad"
    QUARANTINED = "quarantined"


class Device(Wire):
    """One schedulable device as the node sees it. Unknown memory is None: neither zero nor infinite."""

    id: DeviceId
    index: int
    kind: str
    vendor: str = "unknown"
    memory_mib: int | None = None
    foreign_mib: int = 0
    """Held by processes that are not ours, in steps."""
    baseline_mib: int = 0
    """Held by driver and firmware, never to be had; not part of `foreign_mib`."""
    foreign_processes: tuple[str, ...] = ()
    health: DeviceHealth = DeviceHealth.OK
    reason: str = ""


class Inventory(Wire):
    """Devices of one boot. `complete` false: the tools failed or are still coming up; says nothing of absence."""

    devices: tuple[Device, ...] = ()
    complete: bool = True
    problem: str = ""
    host_memory_mib: int | None = None


class EngineState(StrEnum):
    """What a node can see of a replica; *waiting*, *draining* and *gone* are the plane's words."""

    STARTING = "starting"  # a process exists, its port does not answer
    LOADING = "loading"  # it answers, and is not ready
    READY = "ready"
    STOPPING = "stopping"
    FAILED = "failed"  # the process ended or passed a limit; kept in the report until a Stop clears it


class EngineUsage(Wire):
    """The engine's own word on its use. A change of these figures alone is no new revision."""

    in_flight: int | None = None
    idle_s: float | None = None


class ReplicaReport(Wire):
    replica: ReplicaId
    model: ModelName
    mark: Mark
    fingerprint: Fingerprint
    attempt: int
    state: EngineState
    claims: tuple[DeviceClaim, ...] = ()
    served_name: str = ""
    url: str | None = None
    port: int | None = None
    pid: int | None = None
    was_ready: bool = False
    exit_code: int | None = None
    reason: str = ""
    log_tail: tuple[str, ...] = ()
    state_age_s: float = 0.0
    usage: EngineUsage | None = None
    rests: bool = False
    """It was told to sleep, whether its engine does or not."""
    asleep: bool = False
    """Its engine sleeps: `loading` with its process alive."""


class WeightsReport(Wire):
    """Weights on a node's disk, or on their way to it."""

    source: str
    path: str
    """Relative to the weights root; empty while it is being pulled."""
    bytes: int
    complete: bool
    idle_s: float | None = None
    total_bytes: int | None = None
    """Of a pull: what it comes to in all, where that is known."""
    pulling: bool = False
    """A pull is under way, waits or will be tried again."""
    reason: str = ""
    """What is missing, or how the pull goes; empty when complete."""


class DiskReport(Wire):
    free_bytes: int
    total_bytes: int


class NodeReport(Wire):
    """Ordered by (agent instance, revision). Another instance answers at once, in full."""

    protocol: int = PROTOCOL
    node: NodeId
    machine_id: str
    boot_id: str
    instance: str
    revision: int
    owner: Owner | None = None
    token: Token | None = None
    """The highest token persisted: absence of a replica counts only against this."""
    inventory: Inventory = Inventory()
    replicas: tuple[ReplicaReport, ...] = ()
    quarantined: dict[DeviceId, str] = {}
    weights: tuple[WeightsReport, ...] = ()
    disk: DiskReport | None = None
    hostname: str = ""
    version: str = ""
    problems: tuple[str, ...] = ()
    """What is wrong with the agent itself, for people: its folder, its sight of processes. Nothing is decided by it."""


# --- routers -------------------------------------------------------------------------------------------------------


class ModelState(StrEnum):
    READY = "ready"
    STARTING = "starting"
    ASLEEP = "asleep"
    UNAVAILABLE = "unavailable"


class TableModel(Wire):
    """A model known to clients, ready or not: unknown is 404, known and not ready 503 with `retry_after_s`."""

    name: ModelName
    aliases: tuple[str, ...] = ()
    """Aliases in force for this model, sorted."""
    state: ModelState
    retry_after_s: int = 10
    idle_after_s: float | None = None
    """Its endpoints are told as idle after so long without a request; None: nobody wants to know."""


class Endpoint(Wire):
    """One ready replica. `models`: the model's name, then the aliases it serves; `url` has no trailing slash."""

    id: ReplicaId
    url: str
    models: tuple[str, ...]
    served_name: str
    engine: str
    pool: str = "default"
    weight: int = Field(default=100, ge=0)
    priority: int = Field(default=0, ge=0)
    """Lower is tried first."""


class RouterTable(Wire):
    """The whole truth for one fleet, one atomic document."""

    protocol: int = PROTOCOL
    token: Token
    digest: str
    """`llmgw.table.table_digest` of models and endpoints; the router checks it and refuses (422) what differs."""
    models: tuple[TableModel, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()


class TablePatch(Wire):
    """The difference to the table with digest `base`; applied whole or not at all (409 `base_differs`)."""

    protocol: int = PROTOCOL
    token: Token
    base: str
    digest: str
    put_models: tuple[TableModel, ...] = ()
    drop_models: tuple[ModelName, ...] = ()
    put_endpoints: tuple[Endpoint, ...] = ()
    drop_endpoints: tuple[ReplicaId, ...] = ()


class TableReply(Wire):
    """On disk, in force in every process, in flight counted from the moment an endpoint is picked."""

    token: Token
    digest: str
    draining: tuple[ReplicaId, ...] = ()
    """Withdrawn endpoints of this fleet that still have requests in flight at the moment of the answer."""


class HeldTable(Wire):
    token: Token
    digest: str


class EndpointUse(Wire):
    """Use of one endpoint; withdrawn ones stay listed until `in_flight` is zero."""

    id: ReplicaId
    in_flight: int
    idle_s: float
    withdrawn: bool = False
    fleet: str = ""
    """Replica ids are unique within one fleet only."""
    idle: bool = False
    """Without a request for its model's `idle_after_s`."""


class Asked(Wire):
    """A model that is asked for while it has no ready endpoint: requests wait for it, or one came not long ago."""

    model: ModelName
    waiting: int
    """Requests held until it is ready."""
    asked_s: float
    """Seconds since the last such request."""


class RouterState(Wire):
    """Ordered by (instance, revision). A new revision is made when a table changes, a withdrawn endpoint reaches
    zero in flight, an endpoint becomes idle or is used again, or a model is asked for while asleep or no longer, not
    by every request; `use` is sampled when it is sent."""

    protocol: int = PROTOCOL
    router: str = ""
    instance: str
    revision: int
    tables: dict[str, HeldTable] = {}
    """By fleet."""
    use: tuple[EndpointUse, ...] = ()
    asked: tuple[Asked, ...] = ()
    version: str = ""
