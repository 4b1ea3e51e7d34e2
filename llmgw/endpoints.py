"""The router table of this pass: only ready replicas that are not wished away, on nodes that are not silent.

One atomic table: an alias moves, a model leaves and its endpoints go in one step. An alias moves to its new owner
only when that is ready. A node not heard yet in this run keeps its published routes.
"""

from collections.abc import Mapping, Sequence

from llmgw import demand, table
from llmgw.catalog import Catalog, Model
from llmgw.draft import Draft, by_model
from llmgw.ids import ModelName, ReplicaId
from llmgw.table import Table
from llmgw.wire import Endpoint, EngineState, ModelState, TableModel
from llmgw.world import Assignment

RETRY_STARTING_S = 5
RETRY_LATER_S = 30


def table_of(draft: Draft) -> Table:
    """What the routers are to know after this pass."""
    catalog = draft.world.catalog
    if catalog is None:
        return draft.world.table
    groups = by_model(draft.sorted_assignments())
    models = () if draft.world.ending else catalog.models
    ready = {m.name: [a for a in groups.get(m.name, ()) if _is_published(draft, a)] for m in models}
    aliases = _aliases_in_force(draft.world.table, catalog, ready)
    rows = [_model_row(draft, m, aliases[m.name], ready[m.name], groups.get(m.name, ())) for m in models]
    endpoints = [_endpoint(draft, m, a, aliases[m.name]) for m in models for a in ready[m.name]]
    found = [e for e in endpoints if e is not None]
    new = Table({r.name: r for r in rows}, {e.id: e for e in found}, 0)
    # The digest is kept by differences: a whole table is never hashed again for one change.
    return table.apply(draft.world.table, table.difference(draft.world.table, new))


def _is_published(draft: Draft, assignment: Assignment) -> bool:
    view = draft.survey.of(assignment.node)
    if assignment.stop is not None or view is None or not view.keeps_routes:
        return False
    if view.seen is None or view.is_silent:
        return assignment.replica in draft.world.table.endpoints
    row = view.rows.get(assignment.replica)
    return row is not None and row.state is EngineState.READY and row.url is not None


def _endpoint(draft: Draft, model: Model, assignment: Assignment, aliases: Sequence[str]) -> Endpoint | None:
    """The endpoint of a published replica, with the profile's present weight and priority."""
    held = draft.world.table.endpoints.get(assignment.replica)
    view = draft.survey.of(assignment.node)
    row = view.rows.get(assignment.replica) if view is not None else None
    url = row.url if row is not None and row.url is not None else held.url if held is not None else None
    spec = draft.specs.get(assignment.spec)
    if url is None or view is None:
        return None
    profile = next((p for p in model.profiles if p.name == assignment.profile), None)
    return Endpoint(
        id=assignment.replica,
        url=url.rstrip("/"),
        models=(model.name, *aliases),
        served_name=spec.served_name if spec is not None else model.name,
        engine=spec.engine if spec is not None else "unknown",
        pool=view.node.pool,
        weight=profile.weight if profile is not None else 100,
        priority=profile.priority if profile is not None else 0,
    )


def _aliases_in_force(
    old: Table, catalog: Catalog, ready: Mapping[ModelName, Sequence[Assignment]]
) -> dict[ModelName, tuple[str, ...]]:
    """Each alias at its owner; one that moves stays with its holder while only the holder is ready."""
    holders = {alias: row.name for row in old.models.values() for alias in row.aliases}
    found: dict[ModelName, list[str]] = {m.name: [] for m in catalog.models}
    names = set(found)
    for model in catalog.models:
        for alias in model.aliases:
            if alias == model.name:
                continue
            holder = holders.get(alias, model.name)
            stays = holder != model.name and holder in names and ready.get(holder) and not ready.get(model.name)
            found[holder if stays else model.name].append(alias)
    return {name: tuple(sorted(set(aliases) - names)) for name, aliases in found.items()}


def _model_row(
    draft: Draft, model: Model, aliases: tuple[str, ...], ready: Sequence[Assignment], mine: Sequence[Assignment]
) -> TableModel:
    state, retry_s = ModelState.READY, RETRY_STARTING_S
    if not ready:
        coming = [a for a in mine if a.stop is None]
        if coming:
            state = ModelState.STARTING
        elif demand.desired(draft.world, model, draft.now_s) == 0:
            state = ModelState.ASLEEP
        else:
            state, retry_s = ModelState.UNAVAILABLE, RETRY_LATER_S
    return TableModel(name=model.name, aliases=aliases, state=state, retry_after_s=retry_s)


def published(new: Table) -> frozenset[ReplicaId]:
    return frozenset(new.endpoints)
