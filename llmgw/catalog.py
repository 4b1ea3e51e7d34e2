"""What the operator asks for: models, how each may be launched, nodes, routers and policy, as one frozen value.

A `Catalog` is the accepted form; raw input goes through `llmgw.validation.check`, which names every problem at once.
Nothing here reads files, and nothing is coerced in silence: text is text, a number is a number, unknown fields are
refused. Absent fields have the defaults shown, and writing a default out changes neither digest nor fingerprint.
"""

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import lru_cache
from itertools import combinations
from operator import itemgetter
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    StrictBool,
    StrictInt,
    StrictStr,
    model_validator,
)

from llmgw import canonical
from llmgw.ids import ModelName, NodeId, PoolName, RouterId
from llmgw.memo import Latest
from llmgw.memory import format_mib, parse_mib
from llmgw.wire import DeviceNaming

DEFAULT_POOL = PoolName("default")
"""This pool always exists and need not be declared."""

MAX_NAME_CHARS = 128
MAX_MODEL_NAMES_CHARS = 64 * 1024
"""A model's name and aliases together: each of its endpoints carries them all, to every router."""
MAX_FLEET_NAMES_CHARS = 512 * 1024
"""The names of all models together: an edit may change them all, and its plan must fit into one payload."""
MAX_PLAIN_BYTES = 256 * 1024
"""A catalog's canonical JSON by plain signal; Temporal keeps every payload in the history."""
MAX_COMPRESSED_BYTES = 2 * 1024 * 1024
"""The same when `llmgw apply` sends it compressed."""

DAY_S = 86_400.0
MAX_REPLICAS = 10_000

IDENTIFIER = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
SECRET = r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$"  # noqa: S105 - the shape of a secret's name

Text = StrictStr
Count = StrictInt
Seconds = Annotated[float, Strict(), Field(ge=0, le=30 * DAY_S, allow_inf_nan=False)]
Identifier = Annotated[StrictStr, Field(pattern=IDENTIFIER)]
Variable = Annotated[StrictStr, Field(pattern=VARIABLE)]
Memory = Annotated[int, BeforeValidator(parse_mib, json_schema_input_type=int | str)]
Argument = StrictStr
MetricName = Annotated[StrictStr, Field(pattern=r"^[A-Za-z_:][A-Za-z0-9_:]*$")]
HttpPath = Annotated[StrictStr, Field(pattern="^/")]


class Part(BaseModel):
    """A frozen piece of the catalog. Fields named `*_mib` are written without the unit: `memory: 80GB`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


@lru_cache(maxsize=8192)
def usable_url(url: str) -> str:
    """`url` without trailing slashes; ValueError when it is not a plain http(s) address of a host."""
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        raise ValueError("a URL has no blanks or control characters")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be http:// or https:// and a host, such as http://gpu-07:7070")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not carry a user or password: tokens belong in the plane's settings")
    if parts.query or parts.fragment:
        raise ValueError("must not carry a query or fragment")
    if parts.port == 0:  # reading `port` also refuses one outside 0-65535
        raise ValueError("port 0 is no port")
    return url.rstrip("/")


Url = Annotated[StrictStr, AfterValidator(usable_url)]


def router_address(url: str) -> str:
    """A router's address: an http(s) base URL, or `unix:///PATH` or `file:///PATH` for kinds that are told so."""
    parts = urlsplit(url)
    if parts.scheme not in ("unix", "file"):
        return usable_url(url)
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        raise ValueError("an address has no blanks or control characters")
    if parts.netloc or not parts.path.startswith("/") or parts.path == "/" or parts.query or parts.fragment:
        raise ValueError(f"must be an absolute path, such as {parts.scheme}:///run/router")
    return url


RouterAddress = Annotated[StrictStr, AfterValidator(router_address)]


# --- the fleet -----------------------------------------------------------------------------------------------------


class Pool(Part):
    """A named part of the fleet; profiles and nodes name it."""

    name: Annotated[PoolName, Strict(), Field(pattern=IDENTIFIER)]
    """Name of the pool. `default` always exists."""
    description: Text = ""
    """For people only."""


class NodeDevices(Part):
    """Devices a node is said to have. Only validation reads them: placement believes the agent's report."""

    count: Annotated[Count, Field(ge=1, le=1024)]
    """How many of them."""
    kind: Annotated[Text, Field(min_length=1, max_length=64)]
    """Device kind, such as `h100`; compared without regard to case."""
    memory_mib: Memory | None = Field(default=None, alias="memory")
    """Memory of each. Absent: unknown."""


class Node(Part):
    """A machine whose agent the plane dials."""

    id: Annotated[NodeId, Strict(), Field(pattern=IDENTIFIER)]
    """Name of the node; its agent must say the same."""
    url: Url
    """Base URL of its agent."""
    pool: Annotated[PoolName, Strict(), Field(pattern=IDENTIFIER)] = DEFAULT_POOL
    """The pool this node belongs to."""
    zone: Annotated[Text, Field(min_length=1, max_length=64)] | None = None
    """Failure domain (rack, room). Silence of a whole zone is told apart from a sick observer."""
    labels: dict[Text, Text] = {}
    """For people, and for profiles that ask for them."""
    devices: tuple[NodeDevices, ...] = ()
    """Declared devices, to find profiles that could never fit. Absent: no such check on this node."""


class Router(Part):
    """A router that is told which endpoints may take traffic."""

    id: Annotated[RouterId, Strict(), Field(pattern=IDENTIFIER)]
    """Name of the router."""
    url: RouterAddress
    """Where it is told: its base URL, socket or file, as its kind says (docs/routers.md)."""
    kind: Identifier = "native"
    """What it is: native, haproxy, envoy, smg, smg-file, llm-d, production-stack or prometheus."""
    settings: dict[Identifier, Text] = {}
    """What its kind needs beside the address (docs/routers.md)."""


# --- engines -------------------------------------------------------------------------------------------------------


class EngineMetrics(Part):
    """Prometheus names of an engine's gauges. Absent: as in the base row."""

    path: HttpPath | None = None
    """Path of the metrics page."""
    running: MetricName | None = None
    """Requests running now."""
    waiting: MetricName | None = None
    """Requests queued in the engine."""
    tokens_total: MetricName | None = None
    """Counter of generated tokens."""


class EngineDevices(Part):
    """How devices are named to the engine, instead of the base row's way by vendor."""

    naming: DeviceNaming
    """`uuid`, or `index` (mapped by the agent, bus order forced)."""
    variables: Annotated[tuple[Variable, ...], Field(min_length=1)]
    """Environment variables that are set to the comma-joined names."""


class EngineExtension(Part):
    """An engine of the operator's own: a row of the table with some facts replaced."""

    base: Identifier
    """Row it starts from, such as vllm, llama.cpp, container or command (not another extension)."""
    executable: Annotated[tuple[Argument, ...], Field(min_length=1)] | None = None
    """Program and its fixed first arguments, in place of the base's."""
    args: tuple[Argument, ...] = ()
    """Put before each profile's own args."""
    env: dict[Variable, Text] = {}
    """Environment; a profile's own wins."""
    health_path: HttpPath | None = None
    """Answers 200 when the engine is up."""
    models_path: HttpPath | None = None
    """Model list, OpenAI style."""
    lists_model: StrictBool | None = None
    """False: the engine has no model list and `health_path` alone decides."""
    probe_completion: StrictBool | None = None
    """Ready only after a one-token completion answered."""
    metrics: EngineMetrics | None = None
    """Names that differ from the base row."""
    devices: EngineDevices | None = None
    """Device selection that differs from the base row."""


# --- models --------------------------------------------------------------------------------------------------------


def _replica_bounds(raw: object) -> object:
    """A number n means exactly n; an absent `max` is the larger of `min` and 1.

    What is made here stays in bounds: the one number that was written is the one that is refused.
    """
    if isinstance(raw, int) and not isinstance(raw, bool):
        return {"min": raw, "max": min(max(raw, 0), MAX_REPLICAS)}
    if isinstance(raw, Mapping) and "max" not in raw:
        low = raw.get("min", 1)
        return {**raw, "max": min(max(low, 1), MAX_REPLICAS) if isinstance(low, int) else 1}
    return raw


class Replicas(Part):
    """How many replicas: between the bounds the count is moved by wake, idle and `scale`."""

    min: Annotated[Count, Field(ge=0, le=MAX_REPLICAS)] = 1
    """Kept running always; 0 lets the model sleep. Lowered to 0, one replica stays for `idle_timeout_s` without use."""
    max: Annotated[Count, Field(ge=0, le=MAX_REPLICAS)] = 1
    """Never more than this. Absent: the larger of `min` and 1."""

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, raw: Any) -> Any:
        return _replica_bounds(raw)

    @model_validator(mode="after")
    def _ordered(self) -> "Replicas":
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class Accelerators(Part):
    """Devices asked of one node; all items of a profile are met together on the same node."""

    count: Annotated[Count, Field(ge=1, le=1024)]
    """How many devices."""
    kind: Annotated[Text, Field(min_length=1, max_length=64)] | None = None
    """Device kind; compared without regard to case. Absent: any."""
    memory_mib: Memory | None = Field(default=None, alias="memory")
    """Least memory of each device. Absent: any."""
    claim_mib: Memory | None = Field(default=None, alias="claim")
    """So much of each device's memory, beside others that claim a part. Absent: the whole device, alone."""
    devices: tuple[Annotated[Text, Field(min_length=1, max_length=128)], ...] = ()
    """Ids of the only devices it may have. Absent: any."""
    aligned: StrictBool = False
    """They lie side by side by index, in a group of the next power of two, as islands of fast links do."""

    @model_validator(mode="after")
    def _possible(self) -> "Accelerators":
        if self.claim_mib is not None and self.memory_mib is not None and self.claim_mib > self.memory_mib:
            raise ValueError(
                f"claim {format_mib(self.claim_mib)} is above memory {format_mib(self.memory_mib)}, the least of each "
                "device: memory is what a device has, claim what is taken of it"
            )
        if self.count > 1 and self.kind is not None and "mig" in self.kind.casefold().split():
            raise ValueError(f"slices of devices (MIG) do not work together: count is {self.count} and must be 1")
        if self.devices and len(set(self.devices)) < self.count:
            raise ValueError(f"count is {self.count} and only {len(set(self.devices))} devices are listed")
        return self


class Profile(Part):
    """One way to launch a model. Profiles are tried in the order given."""

    name: Identifier
    """Name of the profile, unique in its model."""
    engine: Identifier
    """Row of the engine table, or a name from `engines`."""
    executable: Annotated[Argument, Field(min_length=1)] | None = None
    """Program in place of the engine's own: a path, or a name found on the node."""
    command: tuple[Argument, ...] = ()
    """The whole command, for engine `command`; for `container`, what to run in place of the image's own entrypoint."""
    args: tuple[Argument, ...] = ()
    """Passed item for item, byte for byte, no shell. `${llmgw:port}` and the like are the only placeholders."""
    env: dict[Variable, Text] = {}
    """Environment of the engine."""
    secrets: dict[Variable, Annotated[StrictStr, Field(pattern=SECRET)]] = {}
    """Variable: name of a secret that the node's agent resolves. Values never enter a catalog."""
    ports: tuple[Annotated[StrictStr, Field(pattern=VARIABLE)], ...] = ()
    """Further ports to reserve, each used as `${llmgw:port:NAME}`."""
    accelerators: Annotated[tuple[Accelerators, ...], Field(max_length=8)] = ()
    """Devices, met together on one node. Absent: none (CPU)."""
    host_memory_mib: Memory | None = Field(default=None, alias="host_memory")
    """Main memory to reserve. Absent: none."""
    pool: Annotated[PoolName, Strict(), Field(pattern=IDENTIFIER)] = DEFAULT_POOL
    """Runs on nodes of this pool only."""
    nodes: tuple[Annotated[NodeId, Strict(), Field(pattern=IDENTIFIER)], ...] = ()
    """Runs on these nodes only. Absent: any of the pool."""
    labels: dict[Text, Text] = {}
    """Runs only on nodes that have all of these labels."""
    prefer_labels: dict[Text, Text] = {}
    """Nodes that have these labels come first, each one counts."""
    weights: Annotated[Text, Field(min_length=1, max_length=2048)] | None = None
    """Weights of this profile in place of the model's (a quantised one has its own repository)."""
    image: Annotated[Text, Field(min_length=1, max_length=512)] | None = None
    """Container image to run the engine in, by docker or podman on the node. Absent: a program of the node itself."""
    weight: Annotated[Count, Field(ge=0, le=10_000)] = 100
    """Share of traffic against other endpoints of the same priority."""
    priority: Annotated[Count, Field(ge=0, le=10_000)] = 0
    """Lower is tried first by routers."""
    start_limit_s: Annotated[Seconds, Field(gt=0)] = 600.0
    """From start to ready; past it the start has failed, unless it still makes progress (four times this at most)."""
    stall_limit_s: Annotated[Seconds, Field(gt=0)] | None = 120.0
    """With requests in flight and no token made for so long, the engine is hung and started anew. Null: never."""
    probe_completion: StrictBool | None = None
    """Ready only after a one-token completion answered. Absent: as the engine's row says."""
    stop_limit_s: Seconds = 30.0
    """From the first TERM to the second."""
    drain_limit_s: Seconds | None = None
    """Longest wait for requests in flight. Absent: the policy's."""

    @model_validator(mode="after")
    def _enough_listed(self) -> "Profile":
        """Items that take whole devices from lists need so many different ones together."""
        listed = [item for item in self.accelerators if item.devices and item.claim_mib is None]
        for size in range(2, len(listed) + 1):
            for items in combinations(listed, size):
                asked, there = sum(item.count for item in items), {id_ for item in items for id_ in item.devices}
                if len(there) < asked:
                    lists = f"{size} items of accelerators take"
                    raise ValueError(
                        f"{lists} {asked} whole devices together, and list only {len(there)} different ones"
                    )
        return self


ASLEEP_TIMEOUT_S = 86_400.0


class Idle(StrEnum):
    """What becomes of a model's last replica when nobody uses it."""

    STOP = "stop"
    SLEEP = "sleep"  # its engine gives up its memory, and keeps process and place


class Canary(Part):
    """A changed version is tried on few replicas first; the others keep the version that serves."""

    replicas: Annotated[Count, Field(ge=1, le=MAX_REPLICAS)] = 1
    """How many replicas the new version gets before it goes on."""
    hold_s: Annotated[Seconds, Field(gt=0)] | None = None
    """So long they have to serve before it goes on by itself. Absent: it waits for `llmgw promote`."""


class Model(Part):
    """A model as clients know it."""

    name: ModelName = Field(strict=True)
    """Public name, byte for byte; `/ : .`, capitals and letters beyond ASCII are fine."""
    aliases: tuple[StrictStr, ...] = ()
    """Further public names. Changing them restarts nothing."""
    replicas: Annotated[Replicas, BeforeValidator(_replica_bounds, json_schema_input_type=int | Replicas)] = Replicas()
    """A number, or bounds `{min, max}`."""
    priority: Annotated[Count, Field(ge=-1_000_000, le=1_000_000)] = 0
    """Higher wins when devices are short: what runs at a strictly lower one gives way where that makes room."""
    max_per_node: Annotated[Count, Field(ge=1, le=MAX_REPLICAS)] | None = None
    """Never more of its replicas on one node. Absent: no limit; they keep apart where that costs little."""
    spread_zones: StrictBool = False
    """Zones with the fewest of its replicas come first."""
    exclusive_group: Identifier | None = None
    """Models of one group never run on the same node at the same time."""
    idle_timeout_s: Annotated[Seconds, Field(ge=1)] | None = None
    """After this long without use, replicas above `min` stop. Absent: never."""
    idle: Idle = Idle.STOP
    """`sleep`: then the engine sleeps where it is, and wakes within seconds (vLLM; docs/engines.md)."""
    sleep_level: Annotated[Count, Field(ge=1, le=2)] = 1
    """With `idle: sleep`. 1: the weights stay in main memory. 2: they are dropped, and read again at the wake."""
    asleep_timeout_s: Annotated[Seconds, Field(ge=1)] = ASLEEP_TIMEOUT_S
    """With `idle: sleep`: what has slept so long without being asked for is stopped, as without it."""
    canary: Canary | None = None
    """Try a changed version on few replicas first. Absent: it rolls through at once."""
    weights: Annotated[Text, Field(min_length=1, max_length=2048)] | None = None
    """Where the weights come from: `hf://org/repo[@revision]`, `file:///path`, `https://…`."""
    profiles: Annotated[tuple[Profile, ...], Field(min_length=1)]
    """Ways to launch it, in order of preference."""
    metadata: dict[Text, Text] = {}
    """Carried through untouched; for people and clients."""

    @model_validator(mode="after")
    def _may_fall_asleep(self) -> "Model":
        if self.idle is Idle.SLEEP and (self.replicas.min or not self.replicas.max or self.idle_timeout_s is None):
            raise ValueError("idle: sleep is for models with an idle_timeout_s and replicas {min: 0, max: 1} or more")
        if self.idle is not Idle.SLEEP and (self.sleep_level != 1 or self.asleep_timeout_s != ASLEEP_TIMEOUT_S):
            raise ValueError("sleep_level and asleep_timeout_s are for models with idle: sleep")
        return self


# --- the whole -----------------------------------------------------------------------------------------------------


class Policy(Part):
    """Times and limits of the control loop."""

    removal_grace_s: Seconds = 30.0
    """Engines of a model that left run on this long (without traffic), so that taking it back restarts nothing."""
    suspect_after_s: Annotated[Seconds, Field(ge=1)] = 10.0
    """Silence of a node after which its endpoints are withdrawn."""
    lost_after_s: Annotated[Seconds, Field(ge=1)] = 60.0
    """Silence of a node after which its replicas are placed elsewhere."""
    settle_s: Seconds = 60.0
    """Longest wait for all nodes' first report before anything is started or stopped."""
    drain_limit_s: Seconds = 120.0
    """Longest wait for requests in flight before a stop goes on."""
    min_residence_s: Seconds = 60.0
    """What was just placed or woken is not asked to yield its place to its equal for so long."""
    max_loading_per_node: Annotated[Count, Field(ge=1, le=1000)] = 2
    """Replicas that may load on one node at the same time."""
    max_shared_percent: Annotated[Count, Field(ge=1, le=100)] = 95
    """Share of a device's memory that claims may take together; the rest is for what every process needs besides."""
    max_attempts: Annotated[Count, Field(ge=1, le=1000)] = 5
    """Failed attempts in a row with one profile before the next is tried."""

    @model_validator(mode="after")
    def _ordered(self) -> "Policy":
        if self.suspect_after_s > self.lost_after_s:
            raise ValueError(f"suspect_after_s {self.suspect_after_s:g} is above lost_after_s {self.lost_after_s:g}")
        return self


class Catalog(Part):
    """The whole wish of the operator. Accepted whole or not at all."""

    pools: tuple[Pool, ...] = ()
    """Named parts of the fleet, besides `default`."""
    nodes: tuple[Node, ...] = ()
    """Machines; more may be added by `llmgw nodes add`."""
    routers: tuple[Router, ...] = ()
    """Routers; more may be added by `llmgw routers add`."""
    engines: dict[Identifier, EngineExtension] = {}
    """Engines of your own, by name."""
    models: tuple[Model, ...] = ()
    """What to serve. The order means nothing."""
    policy: Policy = Policy()
    """Times and limits of the control loop."""
    allow_removals: StrictBool = False
    """Says that a large removal is meant. Not part of the digest."""

    def model(self, name: str) -> Model | None:
        """The model called `name` (not an alias), or None."""
        return next((m for m in self.models if m.name == name), None)


LISTS = {"pools": "name", "nodes": "id", "routers": "id", "models": "name"}
"""Lists of a catalog whose order means nothing, by what names an item."""


def plain(catalog: Catalog) -> Mapping[str, Any]:
    """`catalog` as JSON types, defaults left out; the same content in any order gives the same value.

    The order of pools, nodes, routers, models and aliases means nothing, so they are sorted here.
    """
    raw: dict[str, Any] = _rest(catalog)
    for section, name in LISTS.items():
        if parts := getattr(catalog, section):
            raw[section] = sorted(map(_plain_part, parts), key=itemgetter(name))
    return raw


def _rest(catalog: Catalog) -> dict[str, Any]:
    """What is in no list, as JSON types."""
    return catalog.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=set(LISTS))


def catalog_digest(catalog: Catalog) -> str:
    """32 hex digits naming the content. `allow_removals`, key order and written-out defaults do not matter."""
    return canonical.digest_of(_canonical(catalog, {"allow_removals"}))


def catalog_bytes(catalog: Catalog) -> int:
    """Size of the catalog's canonical JSON, as the limits count it."""
    return len(_canonical(catalog))


_WRITTEN: Latest[tuple[str, str], tuple[str, bytes]] = Latest(20_000)
"""Per section and name: the name again, and the canonical JSON of `plain` for this part alone."""


def _canonical(catalog: Catalog, without: Collection[str] = ()) -> bytes:
    """`canonical.canonical_json(plain(catalog))`; parts that another catalog had too are not written again."""
    rest = {key: value for key, value in _rest(catalog).items() if key not in without}
    sections = {key: canonical.canonical_json(value) for key, value in rest.items()}
    for section, name in LISTS.items():
        if parts := getattr(catalog, section):
            written = sorted((_written(section, getattr(part, name), part) for part in parts), key=itemgetter(0))
            sections[section] = b"[%b]" % b",".join(text for _, text in written)
    return b"{%b}" % b",".join(b"%b:%b" % (canonical.canonical_json(key), sections[key]) for key in sorted(sections))


def _written(section: str, name: str, part: Part) -> tuple[str, bytes]:
    return _WRITTEN.get((section, name), (part,), lambda: (name, canonical.canonical_json(_plain_part(part))))


def _plain_part(part: Part) -> Mapping[str, Any]:
    raw: dict[str, Any] = part.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if "aliases" in raw:
        raw["aliases"].sort()
    return raw
