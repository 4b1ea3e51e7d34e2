"""What restarts an engine and what must not, and when two catalogs are the same."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.catalog import Catalog, catalog_digest, plain
from llmgw.diff import differences
from llmgw.fingerprint import fingerprint
from llmgw.validation import check

Json = dict[str, Any]


def raw() -> Json:
    return {
        "pools": [{"name": "gpu"}],
        "nodes": [{"id": "n1", "url": "http://n1:1"}, {"id": "n2", "url": "http://n2:1", "pool": "gpu"}],
        "routers": [{"id": "r1", "url": "http://r1:1"}],
        "engines": {"mine": {"base": "vllm", "args": ["--seed", "1"], "env": {"E": "1"}}},
        "models": [
            {
                "name": "a",
                "aliases": ["x", "y"],
                "weights": "hf://o/r@v1",
                "profiles": [
                    {
                        "name": "p",
                        "engine": "mine",
                        "args": ["--x", "1"],
                        "env": {"A": "1", "B": "2"},
                        "secrets": {"HF_TOKEN": "hub"},
                        "accelerators": [{"count": 2, "kind": "h100", "memory": "80GB"}],
                    }
                ],
            },
            {"name": "b", "profiles": [{"name": "p", "engine": "stub"}]},
        ],
    }


def accepted(sent: object) -> Catalog:
    checked = check(sent)
    assert checked.catalog is not None, checked.problems
    return checked.catalog


def edited(path: tuple[str | int, ...], value: object) -> Json:
    sent = copy.deepcopy(raw())
    place: Any = sent
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return sent


def print_of(catalog: Catalog) -> str:
    return fingerprint(catalog.models[0], catalog.models[0].profiles[0], catalog)


MODEL: tuple[str | int, ...] = ("models", 0)
PROFILE: tuple[str | int, ...] = (*MODEL, "profiles", 0)

RESTARTS: dict[str, tuple[tuple[str | int, ...], object]] = {
    "engine": ((*PROFILE, "engine"), "vllm"),
    "executable": ((*PROFILE, "executable"), "/opt/vllm"),
    "an argument": ((*PROFILE, "args"), ["--x", "2"]),
    "the order of arguments": ((*PROFILE, "args"), ["1", "--x"]),
    "an empty argument more": ((*PROFILE, "args"), ["--x", "1", ""]),
    "a variable": ((*PROFILE, "env", "A"), "3"),
    "a secret's name": ((*PROFILE, "secrets", "HF_TOKEN"), "other"),
    "how many devices": ((*PROFILE, "accelerators", 0, "count"), 4),
    "their kind": ((*PROFILE, "accelerators", 0, "kind"), "h200"),
    "their memory": ((*PROFILE, "accelerators", 0, "memory"), "90GB"),
    "the revision of the weights": ((*MODEL, "weights"), "hf://o/r@v2"),
    "weights of the profile": ((*PROFILE, "weights"), "hf://o/q"),
    "the extension's arguments": (("engines", "mine", "args"), []),
    "the extension's environment": (("engines", "mine", "env"), {}),
    "the extension's base": (("engines", "mine", "base"), "sglang"),
}

RESTARTS_NOTHING: dict[str, tuple[tuple[str | int, ...], object]] = {
    "the model's name": ((*MODEL, "name"), "c"),
    "aliases": ((*MODEL, "aliases"), []),
    "the profile's name": ((*PROFILE, "name"), "q"),
    "weight": ((*PROFILE, "weight"), 1),
    "the profile's priority": ((*PROFILE, "priority"), 9),
    "the model's priority": ((*MODEL, "priority"), 9),
    "replicas": ((*MODEL, "replicas"), {"min": 0, "max": 3}),
    "idle timeout": ((*MODEL, "idle_timeout_s"), 60),
    "start limit": ((*PROFILE, "start_limit_s"), 1),
    "stop limit": ((*PROFILE, "stop_limit_s"), 1),
    "drain limit": ((*PROFILE, "drain_limit_s"), 1),
    "further ports": ((*PROFILE, "ports"), ["side"]),
    "host memory": ((*PROFILE, "host_memory"), "8GiB"),
    "pool": ((*PROFILE, "pool"), "gpu"),
    "metadata": ((*MODEL, "metadata"), {"team": "t"}),
    "policy": (("policy",), {"settle_s": 1}),
    "the case of a device kind": ((*PROFILE, "accelerators", 0, "kind"), "H100"),
    "another unit for the same memory": ((*PROFILE, "accelerators", 0, "memory"), 76_294),
    "the order of variables": ((*PROFILE, "env"), {"B": "2", "A": "1"}),
    "a default written out": ((*PROFILE, "command"), []),
    "an extension's health path": (("engines", "mine", "health_path"), "/ready"),
    "the other model": (("models", 1, "profiles", 0, "args"), ["--load-s", "9"]),
    "a node": (("nodes", 0, "url"), "http://other:1"),
}


@pytest.mark.parametrize("what", RESTARTS)
def test_another_launch_has_another_fingerprint(what: str) -> None:
    assert print_of(accepted(edited(*RESTARTS[what]))) != print_of(accepted(raw()))


@pytest.mark.parametrize("what", RESTARTS_NOTHING)
def test_an_edit_that_changes_no_launch_keeps_the_fingerprint(what: str) -> None:
    assert print_of(accepted(edited(*RESTARTS_NOTHING[what]))) == print_of(accepted(raw()))


def test_fingerprints_stay_as_they_are_across_versions_of_the_plane() -> None:
    """A new value here means that an upgrade restarts every engine of every fleet."""
    catalog = accepted(raw())
    assert print_of(catalog) == "d792c432b2e9a444a7a4d11b03de0e26"
    assert fingerprint(catalog.models[1], catalog.models[1].profiles[0], catalog) == "bac17379a47f98c50ed674423025924e"


def test_weights_count_the_same_at_the_model_and_at_its_only_profile() -> None:
    sent = edited((*PROFILE, "weights"), "hf://o/r@v1")
    assert print_of(accepted(sent)) == print_of(accepted(raw()))


# --- digests -------------------------------------------------------------------------------------------------------


def shuffled(value: object, rank: st.DrawFn) -> object:
    """`value` with the keys of every mapping in another order."""
    if isinstance(value, dict):
        keys = rank(st.permutations(list(value)))
        return {key: shuffled(value[key], rank) for key in keys}
    if isinstance(value, list):
        return [shuffled(item, rank) for item in value]
    return value


@st.composite
def rearranged(draw: st.DrawFn) -> Json:
    """The catalog with everything in another order whose order means nothing."""
    sent: Any = shuffled(raw(), draw)
    for section in ("pools", "nodes", "routers", "models"):
        sent[section] = draw(st.permutations(sent[section]))
    for model in sent["models"]:
        if "aliases" in model:
            model["aliases"] = draw(st.permutations(model["aliases"]))
    return dict(sent)


@given(rearranged(), st.booleans())
def test_the_order_of_what_has_no_order_changes_neither_digest_nor_differences(sent: Json, allow: bool) -> None:
    before, after = accepted(raw()), accepted({**sent, "allow_removals": allow})
    assert catalog_digest(after) == catalog_digest(before)
    assert differences(before, accepted(sent)) == ()


def test_a_catalog_sent_as_its_plain_form_is_the_same_catalog() -> None:
    catalog = accepted(raw())
    again = accepted(plain(catalog))
    assert catalog_digest(again) == catalog_digest(catalog)
    assert plain(again) == plain(catalog)


EDITS = {**RESTARTS, **RESTARTS_NOTHING}
SAME = {"another unit for the same memory", "the order of variables", "a default written out"}


@pytest.mark.parametrize("what", EDITS)
def test_catalogs_differ_exactly_when_their_digests_do(what: str) -> None:
    before, after = accepted(raw()), accepted(edited(*EDITS[what]))
    same = catalog_digest(before) == catalog_digest(after)
    assert same == (what in SAME)
    assert (differences(before, after) == ()) == same
    assert all(str(line) for line in differences(before, after))


def test_a_first_catalog_adds_everything() -> None:
    lines = [str(line) for line in differences(None, accepted(raw()))]
    assert lines == [
        "model a added",
        "model b added",
        "node n1 added",
        "node n2 added",
        "router r1 added",
        "pool gpu added",
        "engine mine added",
    ]


def test_a_moved_alias_is_one_line_that_names_both_models() -> None:
    sent = raw()
    sent["models"][0]["aliases"], sent["models"][1]["aliases"] = ["x"], ["y"]
    assert "alias y: a → b" in [str(line) for line in differences(accepted(raw()), accepted(sent))]


def test_a_changed_field_is_told_with_both_values() -> None:
    after = accepted(edited((*PROFILE, "env", "A"), "3"))
    assert [str(line) for line in differences(accepted(raw()), after)] == ["model a: profile p env.A 1 → 3"]
