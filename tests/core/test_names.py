"""Public names: each works all the way or is refused with the rule, and none has two owners (cases B48 and B49)."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.problems import Path, Position
from llmgw.validation import check

from .catalogs import accepted, model, refused

USABLE = [
    "Qwen/Qwen3-30B-A3B-FP8",
    "qwen3:4b",
    "Llama-3.1",
    "pair01.gemma-26b",
    "模型-7b",
    "γ-model",
    "x" * 128,
    "a--b",
    "a b",
    ".hidden",
    "con",
    "caf\u00e9",
    "no",
    "a?b#c%20",
]
UNUSABLE = {
    "": "empty",
    " a": "blank",
    "a\u00a0": "blank",
    "a\nb": "control",
    "a\x7f": "control",
    "a\u200bb": "invisible",
    "\u202egpj": "invisible",
    "../x": "..",
    "a/../b": "..",
    "a\\..\\b": "..",
    "..": "..",
    "a//b": "empty, ",
    "/a": "empty, ",
    "a/": "empty, ",
    "./a": "`.`",
    "-m": "option",
    "${llmgw:port}": "placeholder",
    "x" * 129: "128",
}


@pytest.mark.parametrize("name", USABLE)
def test_usable_names_are_kept_byte_for_byte(name: str) -> None:
    assert accepted({"models": [model(name)]}).models[0].name == name
    assert accepted({"models": [model("m", aliases=[name])]}).models[0].aliases == (name,)


@pytest.mark.parametrize(("name", "rule"), UNUSABLE.items())
def test_unusable_names_are_refused_with_the_rule(name: str, rule: str) -> None:
    (problem,) = refused({"models": [model(name)]})
    assert problem.path == "models[0].name"
    assert rule in problem.what
    (problem,) = refused({"models": [model("m", aliases=["ok", name])]})
    assert problem.path == "models[0].aliases[1]"


def test_all_collisions_are_told_at_once_with_both_owners_and_positions() -> None:
    shared = [
        "hermes-agent",
        "agent-primary",
        "qwen36-agent",
        "qwen36-code",
        "qwen36-chat",
        "qwen36-plan",
        "paseo",
        "p",
    ]
    raw = {"models": [model("a", aliases=shared), model("b", aliases=["own", *shared])]}
    lines: dict[Path, Position] = {
        ("models", i, "aliases", j): Position(10 * i + j, 7) for i in (0, 1) for j in range(9)
    }
    problems = check(raw, lines).problems
    assert [(problem.path, problem.line) for problem in problems] == [
        (f"models[1].aliases[{j}]", 10 + j) for j in range(1, 9)
    ]
    said = 'the alias "hermes-agent" of model "b" is also an alias of model "a" (models[0].aliases[0], line 0)'
    assert problems[0].what == said


def test_an_alias_that_is_another_models_name_has_two_owners() -> None:
    (problem,) = refused({"models": [model("a", aliases=["b"]), model("b")]})
    assert problem.what == 'the name "b" of model "b" is also an alias of model "a" (models[0].aliases[0])'


def test_two_models_of_one_name_are_refused() -> None:
    (problem,) = refused({"models": [model("a"), model("a")]})
    assert problem.path == "models[1].name"


@pytest.mark.parametrize("aliases", [["a"], ["b", "b"]])
def test_an_alias_that_says_nothing_new_is_accepted_once_with_a_warning(aliases: list[str]) -> None:
    checked = check({"models": [model("a", aliases=aliases)]})
    assert checked.catalog is not None
    assert ["already" in warning.what for warning in checked.warnings] == [True]


def test_names_that_differ_only_in_case_work_with_a_warning() -> None:
    checked = check({"models": [model("Llama-3.1"), model("llama-3.1")]})
    assert checked.catalog is not None
    assert ["differs only in case" in warning.what for warning in checked.warnings] == [True]


def test_names_that_look_the_same_are_refused() -> None:
    composed, combining = unicodedata.normalize("NFC", "café"), unicodedata.normalize("NFD", "café")
    (problem,) = refused({"models": [model(composed), model("m", aliases=[combining])]})
    assert "looks the same" in problem.what


@given(st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from("vwxyz")), max_size=8))
def test_a_catalog_is_refused_exactly_when_a_name_has_two_owners(pairs: list[tuple[str, str]]) -> None:
    owners = sorted({owner for owner, _ in pairs})
    models = [model(f"model {owner}", aliases=[name for who, name in pairs if who == owner]) for owner in owners]
    claimed = [{name for who, name in pairs if who == owner} for owner in owners]
    has_two_owners = sum(map(len, claimed)) > len(set().union(*claimed))
    assert bool(check({"models": models}).problems) == has_two_owners


def test_names_that_are_too_long_together_are_refused() -> None:
    fine = [f"{i:04}" + "x" * 60 for i in range(1000)]
    accepted({"models": [{**model("m"), "aliases": fine}]})
    much = [f"{i:04}" + "x" * 124 for i in range(600)]
    (problem,) = refused({"models": [{**model("m"), "aliases": much}]})
    assert problem.sentence().startswith(
        'models[0].aliases: the names of model "m" have 76,801 characters together, and 65,536 are allowed'
    )
    many = [{**model(f"m{k}"), "aliases": [f"{k}-{alias[:60]}" for alias in fine]} for k in range(9)]
    checked = check({"models": many}, limit_bytes=2 << 20)
    assert [p.sentence().partition(":")[0] for p in checked.problems] == ["models"]
