"""State that survives continue-as-new: packed into a few compressed parts, unpacked record by record.

A record that cannot be understood is set aside with its reason and never stops the care of the others. Reports,
silence and outboxes are not carried: the first observation and the first plan bring them again.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from llmgw import table
from llmgw.catalog import Catalog
from llmgw.ids import SpecId
from llmgw.wire import Endpoint, LaunchSpec, TableModel, Token
from llmgw.world import (
    Assignment,
    Failure,
    HeldCatalog,
    Input,
    Known,
    Refused,
    RouterFacts,
    Waiting,
    Wishes,
    World,
)

T = TypeVar("T")

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


def pack(world: World, catalog_raw: object, extra: Mapping[str, Any]) -> Parts:
    """`extra`: JSON values that the workflow keeps for people (recent refusals, events)."""
    return Parts(
        catalog=_zip({"raw": catalog_raw, "held": _plain(world.held) if world.held else None}),
        assignments=_zip(
            {
                "assignments": [_plain(a) for _, a in sorted(world.assignments.items())],
                "specs": {k: _plain(v) for k, v in sorted(world.specs.items())},
                "sent": {str(k): v for k, v in world.sent.items()},
                "refused": {k: _plain(v) for k, v in world.refused.items()},
            }
        ),
        routes=_zip(
            {
                "models": [_plain(m) for m in world.table.models.values()],
                "endpoints": [_plain(e) for e in world.table.endpoints.values()],
                "routers": {
                    k: _plain(replace(v, draining=frozenset(), asked_s=None)) for k, v in world.routers.items()
                },
            }
        ),
        rest=_zip(
            {
                "wishes": _plain(world.wishes),
                "failures": {k: [_plain(f) for f in v] for k, v in world.failures.items()},
                "known": {k: _plain(v) for k, v in world.known.items()},
                "unclaimed": {str(k): v for k, v in world.unclaimed.items()},
                "waiting": {k: _plain(v) for k, v in world.waiting.items()},
                "inbox": [_plain(i) for i in world.inbox],
                "extra": dict(extra),
            }
        ),
    )


def unpack(seed: Seed, parts: Parts) -> Unpacked:
    """The world of `seed` and `parts`; never raises on a record it cannot read."""
    reader = _Reader()
    catalog, assigned = _unzip(parts.catalog), _unzip(parts.assignments)
    routes, rest = _unzip(parts.routes), _unzip(parts.rest)
    raw = catalog.get("raw")
    world = World(
        fleet=seed.fleet,
        installation=seed.installation,
        epoch=seed.epoch,
        seq=seed.seq,
        catalog=None if raw is None else reader.read(Catalog, raw, "catalog"),
        generation=seed.generation,
        digest=seed.digest,
        held=reader.read(HeldCatalog, catalog.get("held"), "held catalog"),
        inbox=tuple(reader.each(Input, rest.get("inbox"), "input")),
        wishes=reader.read(Wishes, rest.get("wishes"), "wishes") or Wishes(),
        settling_since_s=seed.settling_since_s,
        fenced_by=seed.fenced_by,
        overtaken_by=seed.overtaken_by,
        ending=seed.ending,
        assignments={a.replica: a for a in reader.each(Assignment, assigned.get("assignments"), "assignment")},
        specs={SpecId(k): v for k, v in reader.values(LaunchSpec, assigned.get("specs"), "launch spec")},
        sent=dict(assigned.get("sent") or {}),
        refused=dict(reader.values(Refused, assigned.get("refused"), "refusal")),  # type: ignore[arg-type]
        failures={
            k: tuple(reader.each(Failure, v, f"failures of {k}")) for k, v in (rest.get("failures") or {}).items()
        },
        next_replica=seed.next_replica,
        known=dict(reader.values(Known, rest.get("known"), "node")),  # type: ignore[arg-type]
        unclaimed=dict(rest.get("unclaimed") or {}),
        table=table.build(
            reader.each(TableModel, routes.get("models"), "model"),
            reader.each(Endpoint, routes.get("endpoints"), "endpoint"),
        ),
        table_revision=seed.table_revision,
        routers=dict(reader.values(RouterFacts, routes.get("routers"), "router")),  # type: ignore[arg-type]
        waiting=dict(reader.values(Waiting, rest.get("waiting"), "waiting")),
    )
    return Unpacked(world, raw, rest.get("extra") or {}, reader.unreadable)


class _Reader:
    """Validates records one by one and remembers what it could not read."""

    def __init__(self) -> None:
        self.unreadable: dict[str, str] = {}

    def read(self, kind: type[T], raw: object, name: str) -> T | None:
        if raw is None:
            return None
        try:
            return _adapter(kind).validate_python(raw)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            self.unreadable[name] = f"{where}: {first['msg']}"[:300]
            return None

    def each(self, kind: type[T], raw: Iterable[object] | None, name: str) -> list[T]:
        found = (self.read(kind, item, f"{name} {index}") for index, item in enumerate(raw or ()))
        return [item for item in found if item is not None]

    def values(self, kind: type[T], raw: Mapping[str, object] | None, name: str) -> list[tuple[str, T]]:
        found = ((key, self.read(kind, item, f"{name} {key}")) for key, item in (raw or {}).items())
        return [(key, item) for key, item in found if item is not None]


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def _plain(value: object) -> object:
    return _adapter(type(value)).dump_python(value, mode="json", exclude_defaults=True)


def _zip(value: object) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 6)


def _unzip(part: bytes) -> dict[str, Any]:
    if not part:
        return {}
    value = json.loads(zlib.decompress(part))
    return value if isinstance(value, dict) else {}
