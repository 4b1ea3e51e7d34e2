"""Which endpoint a request goes to: one immutable snapshot of every fleet's table, and the pick.

Pure but for the counts a pick takes (`router.uses`). Never waits, never does I/O, never reads a clock.

Order of preference for a name: lower priority numbers first; within one priority, endpoints with a weight before those
of weight 0 (they are stand-bys of their own tier, as zero weights in DNS SRV, RFC 2782); within such a rank the least
requests in flight per weight; ties take turns in proportion to their weights.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from llmgw.ids import ModelName
from llmgw.table import Table
from llmgw.wire import Endpoint, ModelState, TableModel
from router.uses import Key, MakeUse, Use

SCAN_LIMIT = 64
"""Endpoints compared per pick. Larger ranks are scanned through a window that moves on by its size each pick."""

_STATES = (ModelState.READY, ModelState.STARTING, ModelState.ASLEEP, ModelState.UNAVAILABLE)
"""Best first: fleets that share a model show the best of their states."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One endpoint in force, with its counts. `share` is its weight, 1 for weight 0."""

    endpoint: Endpoint
    use: Use
    share: int


@dataclass(slots=True, eq=False)
class Rank:
    """Endpoints that are equally preferred. `clock` and `window` only rotate ties; they decide nothing else."""

    members: tuple[Candidate, ...]
    clock: float = 0.0
    window: int = 0

    def __post_init__(self) -> None:
        """The latest start tag among the members, so that a newcomer waits its turn like everybody else."""
        self.clock = max((m.use.turn - 1 / m.share for m in self.members if m.use.turn), default=0.0)

    def best(self, now: float, avoid: Collection[Use]) -> Candidate | None:
        """The least loaded member that is neither ejected nor to be avoided; None when there is none."""
        if len(self.members) <= SCAN_LIMIT:
            return _least_loaded(self.members, now, avoid)
        start = self.window % len(self.members)
        self.window = start + SCAN_LIMIT
        some = self.members[start : start + SCAN_LIMIT]
        return _least_loaded(some, now, avoid) or _least_loaded(self.members, now, avoid)

    def take(self, candidate: Candidate, now: float) -> None:
        """Count a pick. Ties are start-time fair queueing (Goyal, Vin and Cheng 1996): tags grow by 1 / share."""
        use = candidate.use
        use.take(now)
        self.clock = max(use.turn, self.clock)
        use.turn = self.clock + 1 / candidate.share


def _least_loaded(members: Iterable[Candidate], now: float, avoid: Collection[Use]) -> Candidate | None:
    best: Candidate | None = None
    best_load = best_turn = float("inf")
    for member in members:
        use = member.use
        if use.ejected_until > now or use in avoid:
            continue
        load = use.in_flight / member.share
        if load < best_load or (load == best_load and use.turn < best_turn):
            best, best_load, best_turn = member, load, use.turn
    return best


@dataclass(frozen=True, slots=True)
class Route:
    """Everything a request by one name needs. An alias that two fleets give to different models has both."""

    name: str
    models: tuple[ModelName, ...]
    state: ModelState
    retry_after_s: int
    ranks: tuple[Rank, ...] = ()

    def take(self, now: float, avoid: Collection[Use] = ()) -> Candidate | None:
        """Pick an endpoint and count it as in flight, in one step that nothing can come between.

        Ejected endpoints are passed over, unless there are no others: then the one back soonest. None when every
        endpoint is to be avoided, or there is none.
        """
        for rank in self.ranks:
            if (found := rank.best(now, avoid)) is not None:
                rank.take(found, now)
                return found
        resting = [
            (m.use.ejected_until, i, m) for i, r in enumerate(self.ranks) for m in r.members if m.use not in avoid
        ]
        if not resting:
            return None
        _, index, found = min(resting, key=lambda entry: entry[:2])
        self.ranks[index].take(found, now)
        return found


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model as clients see it, united over the fleets that have it."""

    name: ModelName
    aliases: tuple[str, ...]
    state: ModelState
    retry_after_s: int
    idle_after_s: Mapping[str, float]
    """By fleet: how long its endpoints are without a request before they count as idle."""


@dataclass(frozen=True, slots=True)
class Routing:
    """All tables in force, ready to be asked. `fleets` empty: no table at all, nothing is known about any name."""

    fleets: frozenset[str] = frozenset()
    models: Mapping[ModelName, KnownModel] = field(default_factory=dict)
    routes: Mapping[str, Route] = field(default_factory=dict)
    candidates: Mapping[Key, Candidate] = field(default_factory=dict)
    watched: tuple[tuple[Use, float], ...] = ()
    """Endpoints that somebody wants to know idle, each with the seconds after which it is."""
    listing: bytes = b""
    """The answer to `GET /v1/models`."""


NOTHING = Routing()


def build(
    tables: Mapping[str, Table],
    now: float,
    old: Routing = NOTHING,
    withdrawn: Mapping[Key, Use] | None = None,
    make: MakeUse = Use,
) -> Routing:
    """The snapshot of `tables` (by fleet, each checked) that follows `old`; `make`: counts of new endpoints.

    Counts of endpoints that stay, or come back from `withdrawn`, are kept; new ones begin with new counts. Whatever no
    change concerns is taken over as it is, so one death among thousands of endpoints costs little.
    """
    candidates = {
        (fleet, endpoint.id): _candidate(fleet, endpoint, old, withdrawn or {})
        or Candidate(endpoint, make(fleet, endpoint.id, ModelName(endpoint.models[0]), now), endpoint.weight or 1)
        for fleet, table in tables.items()
        for endpoint in table.endpoints.values()
    }
    models = _unite(tables)
    routes = _routes(models, candidates, old)
    watched = tuple(_watched(models, candidates.values()))
    return Routing(frozenset(tables), models, routes, candidates, watched, _listing(models, routes.values()))


def _watched(models: Mapping[ModelName, KnownModel], candidates: Iterable[Candidate]) -> Iterator[tuple[Use, float]]:
    limits = {(fleet, name): s for name, known in models.items() for fleet, s in known.idle_after_s.items()}
    if not limits:
        return
    for candidate in candidates:
        if (limit_s := limits.get((candidate.use.fleet, candidate.use.model))) is not None:
            yield candidate.use, limit_s


def _candidate(fleet: str, endpoint: Endpoint, old: Routing, withdrawn: Mapping[Key, Use]) -> Candidate | None:
    """The endpoint with the counts it has; None when it is new."""
    key = (fleet, endpoint.id)
    before = old.candidates.get(key)
    if before is not None and before.endpoint is endpoint:
        return before
    use = before.use if before is not None else withdrawn.get(key)
    return None if use is None else Candidate(endpoint, use, endpoint.weight or 1)


def _unite(tables: Mapping[str, Table]) -> dict[ModelName, KnownModel]:
    by_name: dict[ModelName, list[tuple[str, TableModel]]] = {}
    for fleet, table in tables.items():
        for model in table.models.values():
            by_name.setdefault(model.name, []).append((fleet, model))
    return {
        name: KnownModel(
            name=name,
            aliases=tuple(sorted({alias for _, model in same for alias in model.aliases if alias != name})),
            state=min((model.state for _, model in same), key=_STATES.index),
            retry_after_s=min(model.retry_after_s for _, model in same),
            idle_after_s={fleet: m.idle_after_s for fleet, m in same if m.idle_after_s is not None},
        )
        for name, same in sorted(by_name.items())
    }


def _routes(
    models: Mapping[ModelName, KnownModel], candidates: Mapping[Key, Candidate], old: Routing
) -> dict[str, Route]:
    known: dict[str, list[KnownModel]] = {}
    for model in models.values():
        for name in (model.name, *model.aliases):
            known.setdefault(name, []).append(model)
    changed = _changed_names(models, candidates, old)
    serving: dict[str, list[Candidate]] = {name: [] for name in changed}
    for candidate in candidates.values():
        if not changed.isdisjoint(candidate.endpoint.models):
            for name in changed.intersection(candidate.endpoint.models):
                serving[name].append(candidate)
    ranks: dict[tuple[Key, ...], tuple[Rank, ...]] = {}
    return {
        name: _route(name, targets, serving[name], ranks) if name in changed else old.routes[name]
        for name, targets in known.items()
    }


def _changed_names(
    models: Mapping[ModelName, KnownModel], candidates: Mapping[Key, Candidate], old: Routing
) -> set[str]:
    """Names whose route may differ from the old one: those of every model and endpoint that differs."""
    before, after = old.models, models
    differing = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    names: set[str] = set(differing)
    for name in differing:
        for known in (before.get(name), after.get(name)):
            names.update(known.aliases if known is not None else ())
    names.update(n for key, c in candidates.items() if old.candidates.get(key) is not c for n in c.endpoint.models)
    names.update(n for key, c in old.candidates.items() if candidates.get(key) is not c for n in c.endpoint.models)
    return names


def _route(
    name: str,
    targets: Sequence[KnownModel],
    members: Sequence[Candidate],
    ranks: dict[tuple[Key, ...], tuple[Rank, ...]],
) -> Route:
    """`ranks`: those made so far, by members: a model and its aliases share their turns."""
    same = tuple(member.use.key for member in members)
    if same not in ranks:
        ranks[same] = _ranks(members)
    return Route(
        name=name,
        models=tuple(model.name for model in targets),
        state=min((model.state for model in targets), key=_STATES.index),
        retry_after_s=min(model.retry_after_s for model in targets),
        ranks=ranks[same],
    )


def _ranks(members: Iterable[Candidate]) -> tuple[Rank, ...]:
    ordered = sorted(members, key=_preference)
    return tuple(Rank(tuple(same)) for _, same in groupby(ordered, key=_preference))


def _preference(candidate: Candidate) -> tuple[int, bool]:
    return candidate.endpoint.priority, candidate.endpoint.weight == 0


def _listing(models: Mapping[ModelName, KnownModel], routes: Iterable[Route]) -> bytes:
    """OpenAI's model list; `state`, `aliases` and `alias_of` are additions that its clients ignore."""
    data = [listed(models, route) for route in routes]
    return json.dumps({"object": "list", "data": data}, ensure_ascii=False).encode()


def listed(models: Mapping[ModelName, KnownModel], route: Route) -> dict[str, object]:
    """One name as it stands in the list, and as `GET /v1/models/NAME` answers it."""
    entry = {"id": route.name, "object": "model", "created": 0, "owned_by": "llmgw", "state": route.state.value}
    known = models.get(ModelName(route.name))
    return {**entry, **({"alias_of": route.models} if known is None else {"aliases": known.aliases})}
