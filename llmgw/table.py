"""The router table as a value: its digest, kept incrementally, and the difference between two of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter

from llmgw.canonical import item_number, set_digest, set_sum
from llmgw.ids import ModelName, ReplicaId
from llmgw.wire import Endpoint, TableModel, TablePatch

EMPTY_DIGEST = set_digest(0)
_MODELS, _ENDPOINTS = TypeAdapter(list[TableModel]), TypeAdapter(list[Endpoint])
"""To dump many at once costs a fraction of one by one."""


def model_number(model: TableModel) -> int:
    """Defaults are left out, so an optional field added later changes no digest until it is used."""
    return item_number("model", model.model_dump(mode="json", exclude_defaults=True))


def endpoint_number(endpoint: Endpoint) -> int:
    return item_number("endpoint", endpoint.model_dump(mode="json", exclude_defaults=True))


def table_sum(models: Iterable[TableModel], endpoints: Iterable[Endpoint]) -> int:
    """The set sum of a whole table. The order of its items does not matter."""
    told = [("model", m) for m in _MODELS.dump_python(list(models), mode="json", exclude_defaults=True)]
    told += [("endpoint", e) for e in _ENDPOINTS.dump_python(list(endpoints), mode="json", exclude_defaults=True)]
    return set_sum(item_number(kind, item) for kind, item in told)


def table_digest(models: Iterable[TableModel], endpoints: Iterable[Endpoint]) -> str:
    return set_digest(table_sum(models, endpoints))


@dataclass(frozen=True, slots=True)
class Table:
    """Models by name and endpoints by id, with their set sum."""

    models: Mapping[ModelName, TableModel]
    endpoints: Mapping[ReplicaId, Endpoint]
    total: int

    @property
    def digest(self) -> str:
        return set_digest(self.total)


EMPTY = Table({}, {}, 0)


def build(models: Iterable[TableModel], endpoints: Iterable[Endpoint]) -> Table:
    by_name = {m.name: m for m in models}
    by_id = {e.id: e for e in endpoints}
    return Table(by_name, by_id, table_sum(by_name.values(), by_id.values()))


@dataclass(frozen=True, slots=True)
class TableChange:
    """What turns one table into another."""

    put_models: tuple[TableModel, ...] = ()
    drop_models: tuple[ModelName, ...] = ()
    put_endpoints: tuple[Endpoint, ...] = ()
    drop_endpoints: tuple[ReplicaId, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.put_models or self.drop_models or self.put_endpoints or self.drop_endpoints)


def difference(old: Table, new: Table) -> TableChange:
    """The change from `old` to `new`, in a stable order."""
    return TableChange(
        put_models=tuple(m for name, m in sorted(new.models.items()) if old.models.get(name) != m),
        drop_models=tuple(sorted(old.models.keys() - new.models.keys())),
        put_endpoints=tuple(e for id_, e in sorted(new.endpoints.items()) if old.endpoints.get(id_) != e),
        drop_endpoints=tuple(sorted(old.endpoints.keys() - new.endpoints.keys())),
    )


def apply(table: Table, change: TableChange | TablePatch) -> Table:
    """`table` with `change` applied; costs the change for the digest and a copy for the maps."""
    models, endpoints, total = dict(table.models), dict(table.endpoints), table.total
    for name in [*change.drop_models, *(m.name for m in change.put_models)]:
        if (old_model := models.pop(name, None)) is not None:
            total -= model_number(old_model)
    for id_ in [*change.drop_endpoints, *(e.id for e in change.put_endpoints)]:
        if (old_endpoint := endpoints.pop(id_, None)) is not None:
            total -= endpoint_number(old_endpoint)
    models.update((m.name, m) for m in change.put_models)
    endpoints.update((e.id, e) for e in change.put_endpoints)
    added = [*map(model_number, change.put_models), *map(endpoint_number, change.put_endpoints)]
    return Table(models, endpoints, set_sum(added, total))
