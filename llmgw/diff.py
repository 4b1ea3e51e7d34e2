"""What one catalog changes in another, as short lines for people. Never part of a decision.

Two catalogs differ here exactly when their digests differ.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from llmgw.canonical import canonical_json
from llmgw.catalog import LISTS, Catalog, EngineExtension, Model, Node, Part, Policy, Pool, Profile, Router, plain

_MAX_VALUE_CHARS = 80


class Change(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class Difference:
    """One change of one thing. `field`, `before` and `after` are empty where they mean nothing."""

    change: Change
    kind: str
    """model, alias, node, router, pool, engine or policy."""
    name: str
    field: str = ""
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        subject = f"{self.kind} {self.name}".rstrip()
        match self.change:
            case Change.CHANGED:
                return f"{subject}: {self.field} {self.before} → {self.after}"
            case Change.MOVED:
                return f"{subject}: {self.before} → {self.after}"
            case Change.ADDED | Change.REMOVED:
                return f"{subject} {self.change}" + (f" ({self.after or self.before})" if self.field else "")


def differences(old: Catalog | None, new: Catalog) -> tuple[Difference, ...]:
    """What `new` changes in `old`, in a stable order; everything is added when there was none."""
    before = plain(_without_same(old, new)) if old is not None else {}
    after = plain(_without_same(new, old))
    return (
        *_moved_aliases(before, after),
        *_things(Model, "model", _models(before), _models(after)),
        *_things(Node, "node", _by(before, "nodes", "id"), _by(after, "nodes", "id")),
        *_things(Router, "router", _by(before, "routers", "id"), _by(after, "routers", "id")),
        *_things(Pool, "pool", _by(before, "pools", "name"), _by(after, "pools", "name")),
        *_things(EngineExtension, "engine", before.get("engines", {}), after.get("engines", {})),
        *_fields(Policy, "policy", "", before.get("policy", {}), after.get("policy", {})),
    )


def _without_same(catalog: Catalog, other: Catalog | None) -> Catalog:
    """Without the parts that are the very same value in `other`: most, where a catalog is an edit of another."""
    if other is None:
        return catalog
    same = {section: set(map(id, getattr(other, section))) for section in LISTS}
    differ = {section: tuple(p for p in getattr(catalog, section) if id(p) not in same[section]) for section in LISTS}
    return catalog.model_copy(update=differ)


Plain = Mapping[str, Any]
"""A part of a catalog as JSON types."""


def _by(raw: Plain, section: str, key: str) -> dict[str, Plain]:
    return {item[key]: {k: v for k, v in item.items() if k != key} for item in raw.get(section, ())}


def _models(raw: Plain) -> dict[str, Plain]:
    """Models by name, their replicas as people write them: `2`, or `0 to 1`."""
    return {
        name: {**model, "replicas": _bounds(model.get("replicas", {}))}
        for name, model in _by(raw, "models", "name").items()
    }


def _bounds(replicas: Plain) -> str:
    low, high = replicas.get("min", 1), replicas.get("max", 1)
    return f"{low}" if low == high else f"{low} to {high}"


def _things(
    part: type[Part], kind: str, before: Mapping[str, Plain], after: Mapping[str, Plain]
) -> Iterator[Difference]:
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            yield Difference(Change.ADDED, kind, name)
        elif name not in after:
            yield Difference(Change.REMOVED, kind, name)
        else:
            yield from _fields(part, kind, name, before[name], after[name])


def _fields(
    part: type[Part] | None, kind: str, name: str, before: Plain, after: Plain, prefix: str = ""
) -> Iterator[Difference]:
    """Changed fields of one thing, described by `part`. Mappings are gone into, and profiles by their names."""
    for field in sorted(before.keys() | after.keys()):
        old, new = before.get(field), after.get(field)
        path = f"{prefix}{field}"
        if old == new:
            continue
        if field == "profiles":
            yield from _profiles(name, before, after)
        elif isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _fields(None, kind, name, old, new, f"{path}.")
        else:
            default = _default(part, field)
            yield Difference(Change.CHANGED, kind, name, path, _shown(old, default), _shown(new, default))


def _profiles(model: str, before: Plain, after: Plain) -> Iterator[Difference]:
    old, new = _by(before, "profiles", "name"), _by(after, "profiles", "name")
    for profile in sorted(old.keys() | new.keys()):
        if profile in old and profile in new:
            yield from _fields(Profile, "model", model, old[profile], new[profile], f"profile {profile} ")
        else:
            there, added = _engine(old.get(profile)), _engine(new.get(profile))
            yield Difference(Change.CHANGED, "model", model, f"profile {profile}", there, added)
    if old.keys() == new.keys() and list(old) != list(new):
        yield Difference(Change.CHANGED, "model", model, "order of profiles", ", ".join(old), ", ".join(new))


def _engine(profile: Plain | None) -> str:
    return "absent" if profile is None else f"engine {profile['engine']}"


def _moved_aliases(before: Plain, after: Plain) -> Iterator[Difference]:
    old, new = _alias_owners(before), _alias_owners(after)
    for alias in sorted(old.keys() & new.keys()):
        if old[alias] != new[alias]:
            yield Difference(Change.MOVED, "alias", alias, before=old[alias], after=new[alias])


def _alias_owners(raw: Plain) -> dict[str, str]:
    return {alias: model["name"] for model in raw.get("models", ()) for alias in model.get("aliases", ())}


def _default(part: type[Part] | None, field: str) -> str:
    """What holds where a field is not written, marked as that; `absent` where then nothing does."""
    known = {} if part is None else {info.alias or key: info for key, info in part.model_fields.items()}
    info = known.get(field)
    value = None if info is None or info.is_required() else info.get_default(call_default_factory=True)
    if value is None or isinstance(value, BaseModel) or not (value or isinstance(value, int | float)):
        return "absent"
    return f"{_shown(value, '')} (default)"


def _shown(value: object, default: str) -> str:
    """A value on one line; `default` for a field that is not written."""
    if value is None:
        return default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    text = value if isinstance(value, str) and value else canonical_json(value).decode()
    return text if len(text) <= _MAX_VALUE_CHARS else text[: _MAX_VALUE_CHARS - 1] + "…"
