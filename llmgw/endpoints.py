"""The router table of this pass: only ready replicas that are not wished away, on nodes that are not silent.

One atomic table: an alias moves, a model leaves and its endpoints go in one step. An alias moves to its new owner
only when that is ready. A node not heard yet in this run, or in doubt, keeps its published routes. The table is worked
out as a difference: what stays as it is costs a comparison.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import eq
from typing import NamedTuple

from llmgw import salvage, waking, yielding
from llmgw.catalog import Catalog, Model, Profile
from llmgw.draft import Draft
from llmgw.ids import ModelName, ReplicaId
from llmgw.memo import Latest
from llmgw.nodes import NodeState, NodeView
from llmgw.table import Table, TableChange
from llmgw.wire import Endpoint, EngineState, LaunchSpec, ModelState, ReplicaReport, TableModel
from llmgw.world import Assignment, World

RETRY_STARTING_S = 5
RETRY_LATER_S = 30
MAX_PUTS = 150
"""Endpoints that one plan publishes or changes, and new models; the rest follow in the next. What goes, goes now."""
MAX_PUT_CHARS = 128 * 1024
"""Names that they carry together: an endpoint repeats all names of its model, and a plan must fit into one payload."""


@dataclass(frozen=True, slots=True)
class Routes:
    """What changes in the table, and the replicas that are published after it."""

    change: TableChange
    published: frozenset[ReplicaId]


def routes(draft: Draft) -> Routes:
    """What the routers are to know after this pass."""
    held = draft.world.table
    if draft.world.ending:
        return Routes(TableChange((), tuple(sorted(held.models)), (), tuple(sorted(held.endpoints))), frozenset())
    if draft.world.catalog is None:
        return Routes(TableChange(), frozenset(held.endpoints))
    models = draft.world.catalog.models
    mine = {m.name: draft.of_model(m.name) for m in models}
    ready = {name: replicas if draft.is_steady(name) else _ready(draft, replicas) for name, replicas in mine.items()}
    lost = {r: ModelName(e.models[0]) for r in salvage.unclaimed_routes(draft) if (e := held.endpoints[r]).models}
    serving = {*lost.values(), *(name for name, replicas in ready.items() if replicas)}
    aliases = _aliases_in_force(held, draft.world.catalog, serving)
    rows = {m.name: _model_row(draft, m, aliases[m.name], m.name in serving, mine[m.name]) for m in models}
    kept: set[ReplicaId] = {replica for replica, model in lost.items() if model in rows}
    found: dict[ReplicaId, Endpoint] = {}
    for model in models:
        replicas, names = ready[model.name], (model.name, *aliases[model.name])
        if draft.is_steady(model.name) and _is_as_held(draft, model, replicas, names):
            kept.update([a.replica for a in replicas])
        else:
            found |= _endpoints(draft, model, replicas, names)
    return _difference(draft, held, rows, _Found(kept, found))


class _Found(NamedTuple):
    """The endpoints of a pass."""

    kept: Collection[ReplicaId]
    """Those that stay as they are held."""
    others: Mapping[ReplicaId, Endpoint]


def _difference(draft: Draft, held: Table, rows: Mapping[ModelName, TableModel], found: _Found) -> Routes:
    endpoints = found.others
    put_models = [name for name, row in sorted(rows.items()) if held.models.get(name) is not row]
    new = [name for name in put_models if name not in held.models]
    late = set(new[_fitting([rows[name].aliases for name in new]) :])
    puts = sorted(id_ for id_, e in endpoints.items() if held.endpoints.get(id_) is not e and e.models[0] not in late)
    fitting = _fitting([endpoints[id_].models for id_ in puts])
    draft.more = draft.more or bool(late) or len(puts) > fitting
    puts = puts[:fitting]
    for id_ in puts:
        if id_ not in held.endpoints:
            draft.event(f"replica/{id_}", f"is ready on {draft.assignments[id_].node}")
    drops = sorted(held.endpoints.keys() - found.kept - endpoints.keys())
    change = TableChange(
        put_models=tuple(rows[name] for name in put_models if name not in late),
        drop_models=tuple(sorted(name for name in held.models if name not in rows)),
        put_endpoints=tuple(endpoints[id_] for id_ in puts),
        drop_endpoints=tuple(drops),
    )
    return Routes(change, frozenset({*held.endpoints, *puts} - set(drops)))


def _fitting(carried: Sequence[Sequence[str]]) -> int:
    """How many of the rows, each with the names that it carries, go into one plan: at least the first."""
    sizes = accumulate(sum(map(len, names)) for names in carried[:MAX_PUTS])
    return max(1, sum(size <= MAX_PUT_CHARS for size in sizes))


def _ready(draft: Draft, replicas: Sequence[Assignment]) -> list[Assignment]:
    return [a for a in replicas if a.replica not in draft.questions or _published(draft, a) is not None]


_SAME_MAPS: Latest[tuple[str, ModelName], bool] = Latest(20_000)
_AS_HELD: Latest[tuple[str, ModelName], bool] = Latest(20_000)


def _is_as_held(draft: Draft, model: Model, steady: Sequence[Assignment], names: tuple[str, ...]) -> bool:
    """Whether the endpoints of steady replicas are held just as they would be made."""
    world, first = draft.world, draft.world.table.endpoints[steady[0].replica] if steady else None
    if first is not None and first.models != names:
        return False
    # The whole maps, where they are as they were, spare a look at each endpoint.
    made_of = (model, steady, world.table.endpoints, world.specs, first)
    return _SAME_MAPS.get((world.fleet, model.name), made_of, lambda: _are_as_held(world, model, steady, names))


def _are_as_held(world: World, model: Model, steady: Sequence[Assignment], names: tuple[str, ...]) -> bool:
    held = [world.table.endpoints[a.replica] for a in steady]
    specs = [world.specs.get(a.spec) for a in steady]
    profiles = {p.name: p for p in model.profiles}

    def same() -> bool:
        made = (
            _made(a, e.url, names, e.pool, s, profiles.get(a.profile))
            for a, e, s in zip(steady, held, specs, strict=True)
        )
        return all(map(eq, made, map(_content, held)))

    return _AS_HELD.get((world.fleet, model.name), (model, steady, *held, *specs), same)


def _endpoints(
    draft: Draft, model: Model, ready: Sequence[Assignment], names: tuple[str, ...]
) -> dict[ReplicaId, Endpoint]:
    profiles = {p.name: p for p in model.profiles}
    replicas = (p for a in ready if (p := _published(draft, a)) is not None)
    made = (_endpoint(draft, p, names, profiles.get(p.assignment.profile)) for p in replicas)
    return {endpoint.id: endpoint for endpoint in made if endpoint is not None}


class _Published(NamedTuple):
    """A replica that routers may send to. `row`: its node's word, where that counts."""

    assignment: Assignment
    view: NodeView
    row: ReplicaReport | None
    held: Endpoint | None


def _published(draft: Draft, assignment: Assignment) -> _Published | None:
    if assignment.stop is not None or assignment.sleep is not None:
        return None
    view = draft.survey.nodes.get(assignment.parts[0].node)
    if view is None:
        return None
    held = draft.world.table.endpoints.get(assignment.replica)
    if view.state is not NodeState.HEALTHY:
        return _Published(assignment, view, None, held) if held is not None and view.keeps_routes else None
    row = view.rows.get(assignment.replica)
    if row is None or row.state is not EngineState.READY or row.url is None:
        return None
    if assignment.unreadable and held is None:
        return None
    return _Published(assignment, view, row, held)


def _endpoint(draft: Draft, replica: _Published, names: tuple[str, ...], profile: Profile | None) -> Endpoint | None:
    """The endpoint of a published replica, with the profile's present weight and priority; the held one if equal."""
    assignment, view, row, held = replica
    url = row.url if row is not None else held.url if held is not None else None
    if url is None:
        return None
    if assignment.unreadable and held is not None:  # how it was launched is not known any more
        return held if names == held.models else held.model_copy(update={"models": names})
    made = _made(assignment, url.rstrip("/"), names, view.node.pool, draft.specs.get(assignment.spec), profile)
    if held is not None and made == _content(held):
        return held
    url, models, served, engine, pool, weight, priority = made
    return Endpoint(
        id=assignment.replica,
        url=url,
        models=models,
        served_name=served,
        engine=engine,
        pool=pool,
        weight=weight,
        priority=priority,
    )


_Content = tuple[str, tuple[str, ...], str, str, str, int, int]


def _made(
    assignment: Assignment,
    url: str,
    names: tuple[str, ...],
    pool: str,
    spec: LaunchSpec | None,
    profile: Profile | None,
) -> _Content:
    return (
        url,
        names,
        assignment.model if spec is None else spec.served_name,
        "unknown" if spec is None else spec.engine,
        pool,
        100 if profile is None else profile.weight,
        0 if profile is None else profile.priority,
    )


def _content(e: Endpoint) -> _Content:
    return e.url, e.models, e.served_name, e.engine, e.pool, e.weight, e.priority


def _aliases_in_force(old: Table, catalog: Catalog, ready: Collection[ModelName]) -> dict[ModelName, tuple[str, ...]]:
    """Each alias at its owner; one that moves stays with its holder while only the holder is ready."""
    holders = {alias: row.name for row in old.models.values() for alias in row.aliases}
    found: dict[ModelName, list[str]] = {m.name: [] for m in catalog.models}
    names = set(found)
    for model in catalog.models:
        for alias in model.aliases:
            if alias == model.name:
                continue
            holder = holders.get(alias, model.name)
            stays = holder != model.name and holder in names and holder in ready and model.name not in ready
            found[holder if stays else model.name].append(alias)
    return {name: tuple(sorted(set(aliases) - names)) for name, aliases in found.items()}


def _model_row(
    draft: Draft, model: Model, aliases: tuple[str, ...], ready: bool, mine: Sequence[Assignment]
) -> TableModel:
    state, retry_s = ModelState.READY, RETRY_STARTING_S
    if not ready:
        up = (a for a in mine if a.sleep is None or a.sleep.ends)
        coming = [a for a in up if a.stop is None and not a.unreadable]
        if coming:
            state = ModelState.STARTING
        elif waking.may_wake(draft.world, model, draft.now_s):
            state = ModelState.ASLEEP
        else:
            state, retry_s = ModelState.UNAVAILABLE, RETRY_LATER_S
            draft.wake(waking.rests_until_s(draft.world, model) or 0.0)
    idle_s = yielding.watch_s(draft, model)
    held = draft.world.table.models.get(model.name)
    made = (state, aliases, retry_s, idle_s)
    if held is not None and (held.state, held.aliases, held.retry_after_s, held.idle_after_s) == made:
        return held
    return TableModel(name=model.name, aliases=aliases, state=state, retry_after_s=retry_s, idle_after_s=idle_s)
