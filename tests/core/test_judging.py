"""Judging the inbox: one verdict per input, in order; nothing half-applied; one bad input stops no other."""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw import judging
from llmgw.canonical import canonical_json
from llmgw.catalog import MAX_COMPRESSED_BYTES, Node, catalog_digest
from llmgw.catalog_input import ENCODING, NotACatalogError, compress_catalog, sent_catalog
from llmgw.ids import ModelName, NodeId, RouterId
from llmgw.judging import Judged, judge
from llmgw.plan import Judgement, Verdict
from llmgw.wire import MAX_ERROR_CHARS, Token
from llmgw.world import Input, InputKind, RouterFacts, Scale, Wishes, World
from tests.effort import examples

from .strategies import json_values
from .worlds import NOW, assignment, catalog, model, raw_catalog, serving, world


def sent(arrival: int, *args: object, at_s: float = NOW) -> Input:
    return Input(arrival, InputKind.CATALOG, "replace-catalog", list(args), at_s)


def ordered(arrival: int, name: str, *args: object) -> Input:
    return Input(arrival, InputKind.ORDER, name, list(args), NOW)


def judged(start: World, *inbox: Input) -> Judged:
    return judge(replace(start, inbox=inbox), NOW)


def only(found: Judged) -> Verdict:
    (verdict,) = found.verdicts
    return verdict


def in_force(start: World) -> World:
    assert start.catalog is not None
    return replace(start, digest=catalog_digest(start.catalog), generation=4)


# --- catalogs ------------------------------------------------------------------------------------------------------


def test_a_valid_catalog_is_in_force_with_its_differences_and_generation() -> None:
    found = judged(in_force(world("a")), sent(7, raw_catalog("a", "b")))
    verdict = only(found)
    assert (verdict.judgement, verdict.generation, verdict.arrival) == (Judgement.ACCEPTED, 5, 7)
    assert verdict.differences == ("model b added",)
    assert found.catalog_from == 7
    assert found.world.catalog == catalog("a", "b")
    assert found.world.digest == verdict.digest == catalog_digest(catalog("a", "b"))
    assert found.world.inbox == ()
    assert not found.more


def test_an_empty_inbox_gives_back_the_same_world() -> None:
    start = world("a")
    assert judge(start, NOW).world is start


def test_a_compressed_catalog_is_the_same_catalog() -> None:
    plain = judged(world(), sent(1, raw_catalog("a")))
    packed = judged(world(), sent(1, compress_catalog(raw_catalog("a"))))
    assert packed.world == plain.world
    assert packed.verdicts == plain.verdicts


def test_the_catalog_in_force_changes_nothing_and_drops_what_is_held() -> None:
    start = in_force(serving("a", "b", "c", "d"))
    held = judged(start, sent(1, raw_catalog("a"))).world
    assert held.held is not None
    found = judged(held, sent(2, raw_catalog("a", "b", "c", "d")))
    assert only(found).judgement is Judgement.UNCHANGED
    assert found.world == replace(start, inbox=())


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "one argument, got 0"),
        ([{}, {}], "one argument, got 2"),
        (["models: []"], "one JSON object, not a text (YAML is read by `llmgw apply` only)"),
        ([[raw_catalog("a")]], "one JSON object, not a list"),
        ([None], "one JSON object, not null"),
        ([7], "one JSON object, not a number"),
        ([{"encoding": "gzip", "catalog": "x"}], "a compressed catalog is"),
        ([{"encoding": ENCODING, "catalog": "x", "more": 1}], "a compressed catalog is"),
        ([{"encoding": ENCODING, "catalog": 7}], "a compressed catalog is"),
        ([{"encoding": ENCODING, "catalog": "not base64!"}], "damaged"),
        ([{"encoding": ENCODING, "catalog": base64.b64encode(b"nothing").decode()}], "damaged"),
    ],
)
def test_a_wrong_shape_is_refused_with_a_mend(args: Sequence[object], said: str) -> None:
    start = in_force(world("a"))
    found = judged(start, sent(1, *args))
    verdict = only(found)
    assert verdict.judgement is Judgement.REFUSED
    assert said in verdict.problems[0]
    assert "llmgw apply" in verdict.problems[0] or "send it again" in verdict.problems[0]
    assert found.world == start


def packed(data: bytes) -> dict[str, str]:
    return {"encoding": ENCODING, "catalog": base64.b64encode(data).decode()}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (zlib.compress(b" " * (MAX_COMPRESSED_BYTES + 1)), "larger than 2 MiB"),
        (zlib.compress(b"0" * 40_000_000), "larger than 2 MiB"),
        (zlib.compress(canonical_json(raw_catalog("a")))[:-5], "cut off"),
        (zlib.compress(canonical_json(raw_catalog("a"))) + b"more", "something behind it"),
        (zlib.compress(b"{"), "holds no JSON"),
        (zlib.compress(b"[" * 200_000), "holds no JSON"),
        (zlib.compress(b"9" * 5_000), "holds no JSON"),
        (zlib.compress(b'{"a":"\xff"}'), "damaged"),
        (zlib.compress(b"[]"), "one JSON object, not a list"),
    ],
    ids=["blanks", "bomb", "cut", "tail", "no json", "deep", "digits", "no utf-8", "list"],
)
def test_a_bad_envelope_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(NotACatalogError, match=said):
        sent_catalog([packed(data)])


def test_every_problem_is_named_and_nothing_is_half_applied() -> None:
    start = in_force(world("a"))
    bad = raw_catalog("a", "a", colour="red", policy={"settle_s": "long"})
    found = judged(start, sent(1, bad))
    told = " ".join(only(found).problems)
    assert all(part in told for part in ("colour", "settle_s", "models[1]"))
    assert found.world == start


def test_many_problems_are_cut_and_counted() -> None:
    bad = {"models": [{"name": f"m{i}", "profiles": [], "colour": "x" * 999} for i in range(50)]}
    verdict = only(judged(world(), sent(1, bad)))
    assert len(verdict.problems) == judging.MAX_PROBLEMS + 1
    assert verdict.problems[-1].startswith("and ")
    assert all(len(text) <= MAX_ERROR_CHARS for text in verdict.problems)


def test_many_differences_are_cut_and_counted() -> None:
    verdict = only(judged(world(), sent(1, raw_catalog(*(f"m{i:02}" for i in range(60))))))
    assert len(verdict.differences) == judging.MAX_DIFFERENCES + 1
    assert verdict.differences[-1] == "and 10 more"


def test_the_last_accepted_of_several_catalogs_wins_and_each_has_its_verdict() -> None:
    found = judged(
        world(), sent(3, raw_catalog("a")), sent(2, raw_catalog("b")), sent(5, {"models": 1}), ordered(4, "wake", "b")
    )
    kinds = [(v.arrival, v.judgement) for v in found.verdicts]
    accepted, refused = Judgement.ACCEPTED, Judgement.REFUSED
    assert kinds == [(3, accepted), (2, accepted), (5, refused), (4, accepted)], "as they came, whatever their numbers"
    assert found.catalog_from == 2
    assert found.world.generation == 2
    assert found.world.wishes.wakes == {"b": NOW}


# --- the removal guard ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("running", "kept", "judgement"),
    [
        ("abcd", "a", Judgement.HELD),
        ("abcd", "ab", Judgement.ACCEPTED),
        ("abc", "", Judgement.HELD),
        ("abcdefghi", "abcdef", Judgement.ACCEPTED),
        ("abcdefgh", "abcde", Judgement.HELD),
    ],
)
def test_removing_at_least_three_and_more_than_a_third_is_held(running: str, kept: str, judgement: Judgement) -> None:
    start = in_force(serving(*running))
    found = judged(start, sent(1, raw_catalog(*kept)))
    assert only(found).judgement is judgement
    if judgement is Judgement.HELD:
        assert replace(found.world, held=None) == start
        assert "allow_removals" in only(found).text


@pytest.mark.parametrize(
    ("running", "said"),
    [
        ("a", "has no models, and 1 model is running (a)"),
        ("ab", "has no models, and 2 models are running (a, b)"),
    ],
)
def test_a_catalog_without_models_is_held_however_few_run(running: str, said: str) -> None:
    found = judged(in_force(serving(*running)), sent(1, raw_catalog()))
    assert only(found).judgement is Judgement.HELD
    assert said in only(found).text


def test_replacing_the_only_model_by_another_is_an_edit_like_any_other() -> None:
    assert only(judged(in_force(serving("a")), sent(1, raw_catalog("b")))).judgement is Judgement.ACCEPTED


@pytest.mark.parametrize(("section", "said"), [("nodes", "all nodes"), ("routers", "all routers")])
def test_a_catalog_that_names_no_node_or_no_router_any_more_is_held_where_something_runs(
    section: str, said: str
) -> None:
    there = {"nodes": [{"id": "n1", "url": "http://n:1"}], "routers": [{"id": "r1", "url": "http://r:1"}]}
    start = judged(serving("a", "b"), sent(1, raw_catalog("a", "b", **there, allow_removals=True))).world
    assert start.generation == 1
    found = judged(start, sent(2, raw_catalog("a", "b", **{**there, section: []})))
    assert only(found).judgement is Judgement.HELD
    assert said in only(found).text
    assert only(judged(start, sent(2, raw_catalog("a", **there)))).judgement is Judgement.ACCEPTED
    nothing_runs = judged(world("a"), sent(1, raw_catalog("a", **there))).world
    found = judged(nothing_runs, sent(2, raw_catalog("a", **{**there, section: []})))
    assert only(found).judgement is Judgement.ACCEPTED


def test_a_router_that_leaves_the_catalog_with_a_table_is_warned_about() -> None:
    routers = [{"id": "r1", "url": "http://r:1"}, {"id": "r2", "url": "http://s:1"}]
    start = judged(serving("a", "b"), sent(1, raw_catalog("a", "b", routers=routers, allow_removals=True))).world
    held = replace(start, routers={RouterId(r): RouterFacts(acked_revision=3) for r in ("r1", "r2")})
    warnings = only(judged(held, sent(2, raw_catalog("a", "b", routers=routers[:1])))).warnings
    assert any("router r2 is told nothing more" in warning for warning in warnings)
    assert not any("router r1" in warning for warning in warnings)


def test_models_that_do_not_run_may_be_removed_freely() -> None:
    assert only(judged(in_force(world(*"abcdef")), sent(1, raw_catalog()))).judgement is Judgement.ACCEPTED


def test_a_removal_that_is_meant_is_accepted_at_once() -> None:
    meant = raw_catalog("a", allow_removals=True)
    assert only(judged(in_force(serving(*"abcd")), sent(1, meant))).judgement is Judgement.ACCEPTED


@pytest.mark.parametrize(("later_s", "judgement"), [(29.0, Judgement.HELD), (30.0, Judgement.ACCEPTED)])
def test_the_same_catalog_again_after_half_a_minute_confirms_it(later_s: float, judgement: Judgement) -> None:
    first = judged(in_force(serving(*"abcd")), sent(1, raw_catalog("a"))).world
    found = judged(first, sent(2, raw_catalog("a"), at_s=NOW + later_s))
    assert only(found).judgement is judgement
    if judgement is Judgement.ACCEPTED:
        assert found.world.held is None
    else:
        assert found.world.held is not None
        assert found.world.held.since_s == NOW, "asking again does not begin the wait anew"


def test_another_catalog_confirms_nothing_and_takes_the_place_of_the_held_one() -> None:
    first = judged(in_force(serving(*"abcd")), sent(1, raw_catalog("a"))).world
    found = judged(first, sent(2, raw_catalog("b"), at_s=NOW + 99))
    assert only(found).judgement is Judgement.HELD
    assert found.world.held is not None
    assert found.world.held.digest == only(found).digest == catalog_digest(catalog("b"))


def test_a_refused_catalog_leaves_the_held_one() -> None:
    first = judged(in_force(serving(*"abcd")), sent(1, raw_catalog("a"))).world
    assert judged(first, sent(2, "nonsense")).world == first


# --- what a catalog does to wishes ---------------------------------------------------------------------------------


def test_a_declared_node_dropped_while_it_holds_something_leaves() -> None:
    start = in_force(world("a", assignments={"a-1": assignment("a-1", "a", "node-b")}))
    dropped = raw_catalog("a", nodes=[{"id": "node-c", "url": "http://c:1"}])
    wishes = judged(start, sent(1, dropped)).world.wishes
    assert list(wishes.leaving) == ["node-b"], "node-a holds nothing and is forgotten"
    back = judged(judged(start, sent(1, dropped)).world, sent(2, raw_catalog("a"))).world
    assert back.wishes.leaving == {}


def test_added_nodes_survive_a_new_catalog_and_a_clash_is_told() -> None:
    added = {NodeId(i): Node(id=NodeId(i), url=f"http://{i}:99") for i in ("extra", "node-a")}
    start = in_force(world("a", wishes=Wishes(added_nodes=added)))
    found = judged(start, sent(1, raw_catalog("a", "b")))
    assert found.world.wishes.added_nodes == added
    assert only(found).warnings == ("node node-a was also added by an order, with other values: the catalog's count",)


def test_wishes_about_models_that_are_gone_go_too() -> None:
    scales = {ModelName(m): Scale(1) for m in ("kept", "runs", "gone")}
    start = in_force(world("kept", "runs", "gone", assignments={"runs-1": assignment("runs-1", "runs")}))
    start = replace(start, wishes=Wishes(scales=scales))
    found = judged(start, sent(1, raw_catalog("kept")))
    assert sorted(found.world.wishes.scales) == ["kept", "runs"]


# --- orders --------------------------------------------------------------------------------------------------------


def test_orders_are_taken_refused_or_already_so() -> None:
    found = judged(
        world("a"),
        ordered(1, "cordon", "node-a"),
        ordered(2, "cordon", {"node": "node-a"}),
        ordered(3, "cordon", "node-z"),
        ordered(4, "cordn", "node-a"),
    )
    assert [v.judgement for v in found.verdicts] == [
        Judgement.ACCEPTED,
        Judgement.UNCHANGED,
        Judgement.REFUSED,
        Judgement.REFUSED,
    ]
    assert found.verdicts[0].text == "cordon node-a; `llmgw uncordon node-a` takes it back"
    assert found.world.wishes == Wishes(cordoned={NodeId("node-a"): NOW})


def test_an_ending_fleet_takes_nothing() -> None:
    start = world("a", ending=True)
    found = judged(start, sent(1, raw_catalog("b")), ordered(2, "cordon", "node-a"))
    assert {v.judgement for v in found.verdicts} == {Judgement.REFUSED}
    assert found.world == start


def test_a_fenced_fleet_says_that_orders_have_no_effect_yet() -> None:
    start = world("a", fenced_by=Token(installation="x", fleet="main", epoch=2, seq=1))
    assert "takeover" in only(judged(start, ordered(1, "cordon", "node-a"))).warnings[0]
    assert only(judged(start, ordered(1, "takeover"))).warnings == ()


# --- robustness ----------------------------------------------------------------------------------------------------


def test_an_internal_error_refuses_one_input_and_spares_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object, **__: object) -> None:
        raise RuntimeError("x" * 999)

    monkeypatch.setattr(judging, "check", explode)
    start = in_force(world("a"))
    found = judged(start, sent(1, raw_catalog("b")), ordered(2, "cordon", "node-a"))
    broken, fine = found.verdicts
    assert broken.judgement is Judgement.REFUSED
    assert broken.problems[0].startswith("internal error")
    assert len(broken.problems[0]) <= MAX_ERROR_CHARS
    assert fine.judgement is Judgement.ACCEPTED


def test_too_many_verdicts_for_one_plan_wait_for_the_next() -> None:
    bad = {"models": [{"colour": "x" * 300} for _ in range(50)]}
    inbox = [sent(i, bad) for i in range(30)]
    first = judged(world(), *inbox)
    assert first.more
    assert 0 < len(first.verdicts) < 30
    assert sum(len(v.model_dump_json()) for v in first.verdicts) < 40_000
    seen, rest = len(first.verdicts), first
    while rest.more:
        rest = judge(rest.world, NOW)
        assert rest.verdicts
        seen += len(rest.verdicts)
    assert seen == 30


INPUTS = st.builds(
    Input,
    arrival=st.integers(0, 9),
    kind=st.sampled_from(InputKind),
    name=st.sampled_from(["cordon", "scale", "nodes-add", "replace-catalog"]) | st.text(st.characters(codec=None)),
    raw=st.lists(json_values(), max_size=2) | json_values(),
    at_s=st.just(NOW),
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(INPUTS, max_size=3))
def test_judging_never_raises_and_every_verdict_can_be_stored(inbox: list[Input]) -> None:
    found = judged(in_force(serving("a")), *inbox)
    assert len(found.verdicts) == len(inbox)
    for verdict in found.verdicts:
        assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict
        assert verdict.judgement is not Judgement.REFUSED or verdict.problems
        assert all(len(text) <= MAX_ERROR_CHARS for text in (*verdict.problems, *verdict.warnings, verdict.text))


@settings(max_examples=examples(20), deadline=None)
@given(names=st.lists(st.sampled_from("abcdef"), unique=True), priority=st.integers(-9, 9))
def test_the_same_catalog_twice_is_accepted_once(names: list[str], priority: int) -> None:
    raw: Mapping[str, object] = json.loads(json.dumps({"models": [model(n, priority=priority) for n in names]}))
    once = judged(world(), sent(1, raw)).world
    again = judged(once, sent(2, raw))
    assert only(again).judgement is Judgement.UNCHANGED
    assert again.world == once
