"""Any catalog and any input: what holds for all of them."""

import json
import re

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from llmgw.catalog import catalog_digest, plain
from llmgw.diff import differences
from llmgw.fingerprint import fingerprint
from llmgw.problems import Problem, sentences
from llmgw.rendering import render
from llmgw.validation import catalog_schema, check
from llmgw.wire import MAX_ERROR_CHARS

from .catalogs import Raw, accepted, raw_catalogs, refused, shuffled, with_profile
from .strategies import json_values

SCHEMA = jsonschema.Draft202012Validator(catalog_schema())
P = "models[0].profiles[0]"


@given(raw_catalogs())
def test_every_accepted_catalog_reads_back_as_itself(raw: dict[str, object]) -> None:
    catalog = accepted(raw)
    again = accepted(json.loads(json.dumps(plain(catalog))))
    assert catalog_digest(again) == catalog_digest(catalog)
    assert plain(again) == plain(catalog)
    assert differences(catalog, again) == ()


@given(st.data())
def test_order_and_allow_removals_change_no_digest(data: st.DataObject) -> None:
    raw = data.draw(raw_catalogs())
    other = {**data.draw(shuffled(raw)), "allow_removals": not raw.get("allow_removals", False)}
    assert catalog_digest(accepted(other)) == catalog_digest(accepted(raw))


@given(raw_catalogs(), raw_catalogs())
def test_catalogs_differ_exactly_when_their_digests_do(one: dict[str, object], two: dict[str, object]) -> None:
    old, new = accepted(one), accepted(two)
    assert (differences(old, new) == ()) == (catalog_digest(old) == catalog_digest(new))


@given(raw_catalogs())
def test_the_schema_takes_what_validation_takes(raw: dict[str, object]) -> None:
    SCHEMA.validate(raw)
    SCHEMA.validate(plain(accepted(raw)))


@given(st.data())
def test_a_catalog_in_another_order_restarts_nothing(data: st.DataObject) -> None:
    raw = data.draw(raw_catalogs())
    assert _prints(data.draw(shuffled(raw))) == _prints(raw)


def _prints(raw: Raw) -> dict[tuple[str, str], str]:
    catalog = accepted(raw)
    return {(m.name, p.name): fingerprint(m, p, catalog) for m in catalog.models for p in m.profiles}


@given(raw_catalogs())
def test_every_profile_of_an_accepted_catalog_can_be_rendered(raw: dict[str, object]) -> None:
    catalog = accepted(raw)
    for entry in catalog.models:
        for candidate in entry.profiles:
            spec = render(entry, candidate, catalog, "nvidia" if candidate.accelerators else None)
            assert spec.served_name == entry.name


# --- whatever anybody sends ----------------------------------------------------------------------------------------


def _tellable(problem: Problem) -> bool:
    text = problem.sentence()
    text.encode()
    is_plain = NOT_OURS.search(f"{problem.what}; {problem.mend}") is None
    return len(text) <= MAX_ERROR_CHARS and "\n" not in text and bool(problem.what) and is_plain


NOT_OURS = re.compile(
    r"Value error|Input should|Assertion|pydantic|"
    r"\b(NoneType|dict|dictionary|tuple|frozenset|bool|str|int|float|list_type)\b"
)
"""A checker's words and Python's names of types: nothing for people who write YAML."""


@given(json_values())
def test_any_text_where_text_is_free_gets_a_verdict(value: object) -> None:
    checked = check(with_profile(args=[value], env={"A": value}, weights=value, host_memory=value))
    assert (checked.catalog is None) == bool(checked.problems)
    assert all(_tellable(problem) for problem in (*checked.problems, *checked.warnings))


@given(st.data())
def test_one_broken_part_of_a_catalog_gets_a_verdict_that_can_be_told(data: st.DataObject) -> None:
    raw = data.draw(raw_catalogs())
    _break(data, raw)
    checked = check(raw)
    assert (checked.catalog is None) == bool(checked.problems)
    assert all(_tellable(problem) for problem in (*checked.problems, *checked.warnings))


def _break(data: st.DataObject, raw: object) -> None:
    """Somewhere in `raw`, replace a part with anything."""
    while True:
        keys = list(raw) if isinstance(raw, dict) else list(range(len(raw))) if isinstance(raw, list) else []
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        below = raw[key]  # type: ignore[index]
        if not isinstance(below, dict | list) or not below or data.draw(st.booleans()):
            raw[key] = data.draw(json_values())  # type: ignore[index]
            return
        raw = below


def test_any_depth_gets_a_verdict() -> None:
    deep: object = "x"
    for _ in range(50_000):
        deep = [deep]
    assert [problem.path for problem in refused(with_profile(env={"A": deep}, nope=deep))] == [
        f"{P}.env.A",
        f"{P}.nope",
    ]


def test_the_largest_numbers_can_be_talked_about() -> None:
    huge = 10**5000
    raw = with_profile(host_memory=huge, start_limit_s=huge, weight=huge, args=[huge])
    raw["models"][0] |= {"priority": huge, "replicas": huge}
    assert all(len(problem.sentence()) <= MAX_ERROR_CHARS for problem in refused(raw))


def test_many_problems_are_cut_to_what_can_be_carried_and_counted() -> None:
    problems = refused({f"x{i}": 1 for i in range(120)})
    told = sentences(problems)
    assert len(told) == 101
    assert told[-1] == "… and 20 more problems"
