"""Reading carried records one by one: one that cannot be understood is named and never costs the others.

An assignment among them keeps its raw form (`llmgw.salvage` tells what becomes of it); wishes are read wish by wish.
Never raises on a record, and writes them in the same form (`plain`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from llmgw import salvage
from llmgw.ids import NodeId, ReplicaId
from llmgw.misfit import misfits
from llmgw.world import Assignment, Known, Unreadable, Wishes

T = TypeVar("T")


class Reader:
    """Validates records one by one and remembers what it could not read, by name."""

    def __init__(self) -> None:
        self.unreadable: dict[str, str] = {}

    def read(self, kind: type[T], raw: object, name: str) -> T | None:
        if raw is None:
            return None
        value, problem = attempt(kind, raw)
        if value is None:
            self.unreadable[name] = problem
        return value

    def each(self, kind: type[T], raw: Iterable[object] | None, name: str) -> list[T]:
        rows = list(raw or ())
        if (whole := _all(kind, rows)) is not None:
            return whole
        found = (self.read(kind, item, f"{name} {index}") for index, item in enumerate(rows))
        return [item for item in found if item is not None]

    def values(self, kind: type[T], raw: Mapping[str, object] | None, name: str) -> list[tuple[str, T]]:
        rows = raw or {}
        if (whole := _all(kind, list(rows.values()))) is not None:
            return list(zip(rows, whole, strict=True))
        found = ((key, self.read(kind, item, f"{name} {key}")) for key, item in rows.items())
        return [(key, item) for key, item in found if item is not None]


def attempt(kind: type[T], raw: object) -> tuple[T | None, str]:
    """The value, or the first problem with it in at most 300 characters."""
    try:
        return _adapter(kind).validate_python(raw), ""
    except ValidationError as error:
        return None, misfits(error, document="it")[:300]


def plain(value: object) -> object:
    """A record as JSON types, defaults left out."""
    return _adapter(type(value)).dump_python(value, mode="json", exclude_defaults=True)


def plain_list(kind: type[T], values: Iterable[T]) -> list[Any]:
    """Many records at once, which costs a fraction of one by one."""
    dumped: list[Any] = _list_adapter(kind).dump_python(list(values), mode="json", exclude_defaults=True)
    return dumped


def _all(kind: type[T], rows: list[Any]) -> list[T] | None:
    """All records at once; None where one of them cannot be read (or is none at all): then one by one."""
    try:
        return _list_adapter(kind).validate_python(rows)
    except ValidationError:
        return None


_LISTS: dict[type, TypeAdapter[Any]] = {}


def _list_adapter(kind: type[T]) -> TypeAdapter[list[T]]:
    return _LISTS.get(kind) or _LISTS.setdefault(kind, TypeAdapter(list[kind]))  # type: ignore[valid-type]


def compact(assignments: Sequence[Assignment], known: Mapping[NodeId, Known]) -> list[Any]:
    """Assignments as JSON types that point to the devices and the boot of their node where these are known: 8,000
    identities of devices are half a part."""
    index = {id_: {device: i for i, device in enumerate(node.devices)} for id_, node in known.items()}
    dumped = plain_list(Assignment, assignments)
    for raw in dumped:
        for part in raw["parts"]:
            devices = index.get(part["node"], {})
            for claim in part.get("claims", ()):
                claim["device"] = devices.get(claim["device"], claim["device"])
        node = known.get(raw["parts"][0]["node"])
        if node is not None and node.boot == raw["boot"]:
            del raw["boot"]
    return dumped


def _expand(raw: Any, known: Mapping[str, Any]) -> None:
    """Make the record that `compact` wrote whole again, as far as that is possible."""
    try:
        for part in raw["parts"]:
            for claim in part.get("claims", ()):
                if isinstance(claim["device"], int):
                    claim["device"] = known[part["node"]]["devices"][claim["device"]]
        raw.setdefault("boot", known.get(raw["parts"][0]["node"], {}).get("boot"))
    except (TypeError, KeyError, IndexError, AttributeError):
        return  # it cannot be read: whoever reads it says why


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def read_assignments(
    reader: Reader, part: Mapping[str, Any], known: Mapping[str, Any], now_s: float
) -> tuple[dict[ReplicaId, Assignment], dict[str, Unreadable]]:
    """What was decided, and what cannot be read of it. A record that another version could not read is tried again:
    unless an operator has begun to end its replica meanwhile, it is whole again."""
    found: dict[ReplicaId, Assignment] = {}
    unreadable: dict[str, Unreadable] = {}
    rows = list(part.get("assignments") or ())
    for raw in rows:
        _expand(raw, known)
    whole = _all(Assignment, rows)
    for index, raw in enumerate(rows):
        assignment, problem = attempt(Assignment, raw) if whole is None else (whole[index], "")
        if assignment is None:
            kept = unreadable[salvage.name_of(raw, index)] = Unreadable(raw, problem, now_s)
            assignment = salvage.from_record(kept)
        if assignment is not None:
            found.setdefault(assignment.replica, assignment)
    for name, kept in reader.values(Unreadable, part.get("unreadable"), "unreadable record"):
        assignment, _ = attempt(Assignment, kept.raw)
        present = found.get(ReplicaId(name))
        began = present is not None and present.stop is not None
        if assignment is None or (began and assignment.stop is None):
            unreadable[name] = kept
        else:
            found[assignment.replica] = assignment
    return found, unreadable


def read_wishes(reader: Reader, raw: Mapping[str, Any]) -> Wishes:
    """Wish by wish where they cannot be read as a whole, so that none is dropped for another's sake."""
    whole, _ = attempt(Wishes, raw)
    if whole is not None:
        return whole

    def reads(field: str, value: object, name: object = "") -> bool:
        return reader.read(Wishes, {field: value}, f"wish {field} {name}".rstrip()) is not None

    kept: dict[str, object] = {}
    for field, value in raw.items():
        if isinstance(value, Mapping):
            kept[field] = {k: v for k, v in value.items() if reads(field, {k: v}, k)}
        elif isinstance(value, list):
            kept[field] = [v for index, v in enumerate(value) if reads(field, [v], index)]
        elif reads(field, value):
            kept[field] = value
    return reader.read(Wishes, kept, "wishes") or Wishes()
