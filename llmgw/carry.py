"""State that survives continue-as-new: packed into a few compressed parts, unpacked record by record.

A record that cannot be understood is set aside with its reason and never stops the care of the others. Reports,
silence and outboxes are not carried: the first observation and the first plan bring them again.
"""

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError, to_json

from llmgw import handed_on, table
from llmgw.catalog import Catalog
from llmgw.handed_on import CatalogRead, HandedOn, Records
from llmgw.ids import SpecId
from llmgw.reading import Reader, compact, plain, plain_list, read_assignments, read_wishes
from llmgw.shedding import SHED, State
from llmgw.wire import Endpoint, LaunchSpec, TableModel, Token
from llmgw.world import (
    Failure,
    HeldCatalog,
    Input,
    Known,
    Refused,
    RestingPort,
    RouterFacts,
    Waiting,
    World,
)

MAX_PART_BYTES = 256 * 1024
"""Per part; together they stay under 1.5 MB (DESIGN §7)."""


class Seed(BaseModel):
    """The header of a fleet's state, in plain sight in Temporal's UI; everything in it has a default."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    fleet: str = ""
    installation: str = ""
    epoch: int = 1
    seq: int = 0
    generation: int = 0
    digest: str = ""
    settle: bool = True
    """Hold starts and stops until the nodes were heard: set for an execution that was created or re-created."""
    ending: bool = False
    arrivals: int = 0
    next_replica: int = 0
    table_revision: int = 0
    settling_since_s: float | None = None
    fenced_by: Token | None = None
    overtaken_by: Token | None = None
    search_attributes: bool = False
    """The namespace has our search attributes registered; an unregistered one would wedge the workflow."""
    max_history: int = 1500
    """Continue as new after this many events."""
    runs: int = 0
    """How often the state has been carried over."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The carried state beside the header; each part is compressed JSON."""

    catalog: bytes = b""
    assignments: bytes = b""
    routes: bytes = b""
    rest: bytes = b""
    kept: bytes = b""
    """Earlier catalogs, as `llmgw.kept_catalogs` packs them."""


@dataclass(frozen=True, slots=True)
class Unpacked:
    world: World
    catalog_raw: object = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    shed: tuple[str, ...] = ()
    """What was too large to be carried, in words."""


def pack(world: World, catalog_raw: object, extra: Mapping[str, Any]) -> Parts:
    """`extra`: JSON values that the workflow keeps for people (recent refusals, events). What does not fit goes, the
    least needed first; `unpack` tells in `shed` what went. The care of the fleet never does: past that, a part is as
    large as it is, and `shed` says so."""
    state = State(world, catalog_raw, dict(extra))
    packed = {name: _zip(part(state)) for name, part in _PARTS.items()}
    shed: list[str] = []
    for name, what, without in SHED:
        if len(packed[name]) > MAX_PART_BYTES:
            shed.append(f"{what}: the carried {name} passed {MAX_PART_BYTES >> 10} KiB")
            state = without(state)
            packed[name] = _zip(_PARTS[name](state))
    if over := [name for name, part in packed.items() if len(part) > MAX_PART_BYTES]:
        shed.append(f"no more of {', '.join(over)}, over {MAX_PART_BYTES >> 10} KiB all the same: split the fleet")
    if shed:
        packed["rest"] = _zip({**_rest(state), "shed": shed})
    parts = Parts(**packed)
    if (records := handed_on.of_world(state.world)) is not None:
        _HANDED_ON.keep(world.fleet, _key(parts), records)
    return parts


_HANDED_ON: HandedOn[Records] = HandedOn()
_CATALOGS: HandedOn[CatalogRead] = HandedOn()


def _key(parts: Parts) -> handed_on.Key:
    return parts.assignments, parts.routes, parts.rest


def _catalog(state: State) -> dict[str, object]:
    held = state.world.held
    return {"raw": state.catalog_raw, "held": None if held is None else plain(held)}


def _assignments(state: State) -> dict[str, object]:
    world = state.world
    return {
        "assignments": compact([a for _, a in sorted(world.assignments.items())], world.known),
        "unreadable": {k: plain(v) for k, v in sorted(world.unreadable.items())},
        "specs": {k: plain(v) for k, v in sorted(world.specs.items())},
        "sent": {str(k): v for k, v in world.sent.items()},
        "refused": {k: plain(v) for k, v in world.refused.items()},
    }


def _routes(state: State) -> dict[str, object]:
    world = state.world
    return {
        "models": [plain(m) for m in world.table.models.values()],
        "endpoints": plain_list(Endpoint, world.table.endpoints.values()),
        "routers": {k: plain(handed_on.carried_router(v)) for k, v in world.routers.items()},
        "published_s": {str(k): v for k, v in world.published_s.items()},
    }


def _rest(state: State) -> dict[str, object]:
    world = state.world
    return {
        "wishes": plain(world.wishes),
        "failures": {k: [plain(f) for f in v] for k, v in world.failures.items()},
        "known": {k: plain(v) for k, v in world.known.items()},
        "unclaimed": {str(k): v for k, v in world.unclaimed.items()},
        "good": {k: good.model_dump(mode="json", exclude_defaults=True) for k, good in world.good.items()},
        "resting": {k: [plain(p) for p in v] for k, v in world.resting.items()},
        "waiting": {k: plain(v) for k, v in world.waiting.items()},
        "inbox": [plain(i) for i in world.inbox],
        "extra": dict(state.extra),
    }


_PARTS: Mapping[str, Callable[[State], Mapping[str, object]]] = {
    "catalog": _catalog,
    "assignments": _assignments,
    "routes": _routes,
    "rest": _rest,
}


def unpack(seed: Seed, parts: Parts, now_s: float = 0.0) -> Unpacked:
    """The world of `seed` and `parts` at `now_s`; never raises on a record it cannot read."""
    reader = Reader()
    rest, (part, catalog) = _unzip(parts.rest), _read_catalog(reader, seed.fleet, parts.catalog)
    records = _HANDED_ON.find(seed.fleet, _key(parts)) or _read(reader, parts, rest.get("known") or {}, now_s)
    world = World(
        fleet=seed.fleet,
        installation=seed.installation,
        epoch=seed.epoch,
        seq=seed.seq,
        catalog=catalog,
        generation=seed.generation,
        digest=seed.digest,
        held=reader.read(HeldCatalog, part.get("held"), "held catalog"),
        inbox=tuple(reader.each(Input, rest.get("inbox"), "input")),
        wishes=read_wishes(reader, rest.get("wishes") or {}),
        settling_since_s=seed.settling_since_s,
        fenced_by=seed.fenced_by,
        overtaken_by=seed.overtaken_by,
        ending=seed.ending,
        assignments=records.assignments,
        unreadable=records.unreadable,
        specs=records.specs,
        sent=records.sent,
        refused=records.refused,
        failures={
            k: tuple(reader.each(Failure, v, f"failures of {k}")) for k, v in (rest.get("failures") or {}).items()
        },
        next_replica=seed.next_replica,
        good=dict(reader.values(Catalog, rest.get("good"), "last good version of")),  # type: ignore[arg-type]
        published_s=records.published_s,
        resting={
            k: tuple(reader.each(RestingPort, v, f"resting ports of {k}"))
            for k, v in (rest.get("resting") or {}).items()
        },
        known=records.known,
        unclaimed=dict(rest.get("unclaimed") or {}),
        table=records.table,
        table_revision=seed.table_revision,
        routers=records.routers,
        waiting=dict(reader.values(Waiting, rest.get("waiting"), "waiting")),
    )
    return Unpacked(world, part.get("raw"), rest.get("extra") or {}, reader.unreadable, tuple(rest.get("shed") or ()))


def _read_catalog(reader: Reader, fleet: str, packed: bytes) -> tuple[Mapping[str, Any], Catalog | None]:
    """The part, and the catalog in it. Each run begins with the very one of the run before: much is kept by identity
    that was made of a catalog, and would be made again."""
    if (known := _CATALOGS.find(fleet, (packed,))) is not None:
        return known
    part = _unzip(packed)
    catalog = reader.read(Catalog, part.get("raw"), "catalog")
    if catalog is not None:
        _CATALOGS.keep(fleet, (packed,), CatalogRead(part, catalog))
    return part, catalog


def _read(reader: Reader, parts: Parts, known: Mapping[str, Any], now_s: float) -> Records:
    """The records made again from their bytes."""
    assigned, routes = _unzip(parts.assignments), _unzip(parts.routes)
    assignments, unreadable = read_assignments(reader, assigned, known, now_s)
    return Records(
        assignments=assignments,
        unreadable=unreadable,
        specs={SpecId(k): v for k, v in reader.values(LaunchSpec, assigned.get("specs"), "launch spec")},
        sent=dict(assigned.get("sent") or {}),
        refused=dict(reader.values(Refused, assigned.get("refused"), "refusal")),  # type: ignore[arg-type]
        table=table.build(
            reader.each(TableModel, routes.get("models"), "model"),
            reader.each(Endpoint, routes.get("endpoints"), "endpoint"),
        ),
        routers=dict(reader.values(RouterFacts, routes.get("routers"), "router")),  # type: ignore[arg-type]
        published_s=dict(routes.get("published_s") or {}),
        known=dict(reader.values(Known, known, "node")),  # type: ignore[arg-type]
    )


def _zip(value: object) -> bytes:
    return zlib.compress(_json(value), 6)


def _json(value: object) -> bytes:
    try:
        return to_json(value)
    except PydanticSerializationError:  # text that is no Unicode: slower, but it is written
        return json.dumps(value, separators=(",", ":")).encode()


def _unzip(part: bytes) -> dict[str, Any]:
    if not part:
        return {}
    value = json.loads(zlib.decompress(part))
    return value if isinstance(value, dict) else {}
