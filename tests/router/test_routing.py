"""Which endpoint a request goes to."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.table import EMPTY, Table
from llmgw.table import build as build_table
from llmgw.wire import Endpoint, ModelState
from router.routing import NOTHING, SCAN_LIMIT, Candidate, Route, Routing, build
from router.uses import EJECT_LIMIT_S, EJECT_S, Use

from .rig import both, endpoint, model

ENDPOINTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200)), min_size=1, max_size=8)


def routing(*endpoints: Endpoint, keep: Routing | None = None) -> Routing:
    return build({"f": build_table((model("m", "chat"),), endpoints)}, 0.0, keep or NOTHING)


def several(shapes: Sequence[tuple[int, int]]) -> Routing:
    made = [endpoint(f"m-{i}", priority=priority, weight=weight) for i, (priority, weight) in enumerate(shapes)]
    return routing(*made)


def take(route: Route, now: float = 0.0, avoid: Sequence[Use] = ()) -> Candidate:
    taken = route.take(now, avoid)
    assert taken is not None
    return taken


@given(ENDPOINTS, st.integers(1, 40))
def test_a_lower_priority_number_always_comes_first(shapes: list[tuple[int, int]], picks: int) -> None:
    route = several(shapes).routes["m"]
    best = min(priority for priority, _ in shapes)
    assert {take(route).endpoint.priority for _ in range(picks)} == {best}


@given(ENDPOINTS, st.integers(1, 40))
def test_weight_zero_stands_by_within_its_priority(shapes: list[tuple[int, int]], picks: int) -> None:
    route = several(shapes).routes["m"]
    best = min(priority for priority, _ in shapes)
    weighted = any(weight for priority, weight in shapes if priority == best)
    for _ in range(picks):
        assert bool(take(route).endpoint.weight) == weighted


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(1, 200))
def test_a_pick_is_never_busier_for_its_weight_than_another(weights: list[int], picks: int) -> None:
    made = several([(0, weight) for weight in weights])
    for _ in range(picks):
        before = {c.use.id: c.use.in_flight / c.share for c in made.candidates.values()}
        taken = take(made.routes["m"])
        assert before[taken.use.id] == min(before.values())


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(1, 10))
def test_one_request_after_the_other_is_shared_by_weight(weights: list[int], rounds: int) -> None:
    made = several([(0, weight) for weight in weights])
    counts: Counter[str] = Counter()
    for _ in range(rounds * sum(weights)):
        taken = take(made.routes["m"])
        counts[taken.use.id] += 1
        taken.use.mine -= 1
    for i, weight in enumerate(weights):
        assert abs(counts[f"m-{i}"] - rounds * weight) <= 1 + len(weights)


@given(ENDPOINTS, st.data())
def test_ejected_and_tried_endpoints_are_passed_over_while_there_are_others(
    shapes: list[tuple[int, int]], data: st.DataObject
) -> None:
    made = several(shapes)
    uses = [candidate.use for candidate in made.candidates.values()]
    ejected = data.draw(st.sets(st.sampled_from(uses)))
    tried = data.draw(st.sets(st.sampled_from(uses)))
    for use in ejected:
        use.eject(picked_at=10.0, now=10.0)
    taken = made.routes["m"].take(10.5, tried)
    if len(tried) == len(uses):
        assert taken is None
        return
    assert taken is not None
    assert taken.use not in tried
    if set(uses) - tried - ejected:
        assert taken.use not in ejected


@given(st.integers(SCAN_LIMIT + 1, 3 * SCAN_LIMIT), st.integers(0, 3 * SCAN_LIMIT))
def test_large_ranks_find_a_free_endpoint_wherever_it_is(size: int, free: int) -> None:
    made = several([(0, 1)] * size)
    uses = [candidate.use for candidate in made.candidates.values()]
    free_use = uses[free % size]
    for use in uses:
        if use is not free_use:
            use.eject(picked_at=0.0, now=0.0)
    for _ in range(4):
        assert take(made.routes["m"], now=1.0).use is free_use


def test_large_ranks_are_used_evenly() -> None:
    size = 2 * SCAN_LIMIT + 7
    made = several([(0, 100)] * size)
    for _ in range(3 * size):
        take(made.routes["m"])
    counts = [candidate.use.in_flight for candidate in made.candidates.values()]
    assert min(counts) >= 1
    assert max(counts) <= 5


def test_a_newcomer_waits_its_turn_instead_of_catching_up() -> None:
    old = routing(endpoint("m-1"))
    for _ in range(1000):
        take(old.routes["m"]).use.mine -= 1
    both = routing(endpoint("m-1"), endpoint("m-2"), keep=old)
    turns = []
    for _ in range(10):
        taken = take(both.routes["m"])
        turns.append(taken.use.id)
        taken.use.mine -= 1
    assert Counter(turns) == {"m-1": 5, "m-2": 5}


def test_counts_are_kept_when_a_table_changes_and_the_alias_shares_them() -> None:
    old = routing(*both(endpoint("m-1"), endpoint("m-2")))
    first = take(old.routes["m"])
    new = routing(*both(endpoint("m-1", "http://127.0.0.9:1"), endpoint("m-2")), keep=old)
    second = take(new.routes["chat"])
    assert first.use.id != second.use.id
    assert new.candidates[first.use.key].use is first.use


def test_rest_after_failed_connects_doubles_is_bounded_and_counts_a_burst_once() -> None:
    use = several([(0, 1)]).candidates["f", endpoint("m-0").id].use
    for _ in range(50):
        use.eject(picked_at=0.0, now=1.0)
    assert use.ejected_until == 1.0 + EJECT_S
    now = 1.0
    for _ in range(20):
        now = use.ejected_until
        use.eject(picked_at=now, now=now)
    assert use.ejected_until - now == EJECT_LIMIT_S
    use.connected()
    assert use.ejected_until == 0.0


def test_after_its_rest_an_endpoint_is_probed_by_one_request() -> None:
    made = several([(0, 1), (0, 1)])
    doubtful, sound = (candidate.use for candidate in made.candidates.values())
    doubtful.eject(picked_at=0.0, now=0.0)
    later = EJECT_S + 0.1
    picks = [take(made.routes["m"], now=later).use for _ in range(5)]
    assert picks.count(doubtful) == 1
    doubtful.connected()
    assert take(made.routes["m"], now=later).use is doubtful
    assert sound.in_flight == 4


def fleet(*endpoints: Endpoint, state: ModelState = ModelState.READY, aliases: tuple[str, ...] = ()) -> Table:
    return build_table((model("m", *aliases, state=state, retry_after_s=7 if endpoints else 3),), endpoints)


def test_fleets_that_share_a_model_share_its_traffic() -> None:
    made = build({"a": fleet(endpoint("m-1")), "b": fleet(endpoint("m-1"), aliases=("chat",))}, 0.0)
    route = made.routes["m"]
    assert Counter(take(route).use.fleet for _ in range(4)) == {"a": 2, "b": 2}
    assert made.routes["chat"].models == ("m",)


def test_the_best_state_of_several_fleets_is_shown() -> None:
    made = build({"a": fleet(state=ModelState.ASLEEP), "b": fleet(state=ModelState.STARTING)}, 0.0)
    assert made.routes["m"].state is ModelState.STARTING
    assert made.routes["m"].retry_after_s == 3
    assert made.routes["m"].take(0.0) is None


def test_an_alias_of_two_models_in_two_fleets_reaches_both() -> None:
    a = build_table((model("big", "chat"),), (endpoint("big-1", "http://127.0.0.1:1", "big", "chat"),))
    b = build_table((model("small", "chat"),), (endpoint("small-1", "http://127.0.0.1:2", "small", "chat"),))
    made = build({"a": a, "b": b}, 0.0)
    assert {take(made.routes["chat"]).use.id for _ in range(2)} == {"big-1", "small-1"}
    assert {take(made.routes["big"]).use.id for _ in range(2)} == {"big-1"}


def test_an_endpoint_answers_only_to_the_names_it_lists() -> None:
    made = routing(endpoint("m-1", "http://127.0.0.1:1", "m"), endpoint("m-2", "http://127.0.0.1:2", "m", "chat"))
    assert {take(made.routes["chat"]).use.id for _ in range(3)} == {"m-2"}


@pytest.mark.parametrize("state", list(ModelState))
def test_the_listing_has_every_known_name_with_its_state(state: ModelState) -> None:
    made = build({"f": build_table((model("a/b:Q4", "chat", state=state), model("z", state=state)), ())}, 0.0)
    listing = made.listing.decode()
    for name in ("a/b:Q4", "chat", "z"):
        assert f'"id": "{name}"' in listing
    assert listing.count(f'"state": "{state.value}"') == 3


MODELS = st.sampled_from([(), ("one",), ("two",), ("one", "two")])
SHAPE = st.fixed_dictionaries({name: st.none() | MODELS for name in ("m", "n", "o")})
HOSTED = st.dictionaries(
    st.integers(0, 6), st.tuples(st.sampled_from(["m", "n", "o"]), st.integers(0, 1), st.integers(0, 2)), max_size=6
)
FLEET = st.tuples(SHAPE, HOSTED)


def drawn(fleet_: tuple[dict[str, tuple[str, ...] | None], dict[int, tuple[str, int, int]]], before: Table) -> Table:
    """A sound table; what equals the table before is the same object, as after a patch."""
    shape, hosted = fleet_
    claimed: set[str] = set()
    models = {}
    for name, aliases in shape.items():
        if aliases is not None:
            models[name] = model(name, *(alias for alias in aliases if alias not in claimed))
            claimed.update(aliases)
    made = [
        endpoint(f"e-{i}", "http://127.0.0.1:1", on, *models[on].aliases, priority=priority, weight=weight)
        for i, (on, priority, weight) in hosted.items()
        if on in models
    ]
    return build_table(models.values(), [old if (old := before.endpoints.get(e.id)) == e else e for e in made])


def shown(made: Routing) -> dict[str, object]:
    return {
        name: (
            r.models,
            r.state,
            [sorted((m.use.key, m.share, m.endpoint.priority) for m in rank.members) for rank in r.ranks],
        )
        for name, r in made.routes.items()
    }


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b"]), FLEET), min_size=1, max_size=5))
def test_a_snapshot_made_from_the_last_one_equals_one_made_anew(history: list[dict[str, object]]) -> None:
    tables: dict[str, Table] = {}
    now = NOTHING
    for fleets in history:
        tables = {name: drawn(shape, tables.get(name, EMPTY)) for name, shape in fleets.items()}  # type: ignore[arg-type]
        now = build(tables, 0.0, now)
        fresh = build(tables, 0.0)
        assert shown(now) == shown(fresh)
        assert now.listing == fresh.listing
        for route in now.routes.values():
            for rank in route.ranks:
                assert all(now.candidates[member.use.key] is member for member in rank.members)
