"""What is remembered of a catalog's parts never shows: each verdict is the one that a first look gives."""

import copy
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw import canonical
from llmgw.catalog import Catalog, Model, catalog_bytes, catalog_digest, plain
from llmgw.checking import by_part
from llmgw.diff import differences
from llmgw.validation import Checked, check

PROFILE = {"name": "p", "engine": "vllm", "weights": "hf://org/m", "accelerators": [{"count": 1, "kind": "a"}]}
WHOLE: dict[str, object] = {
    "nodes": [{"id": "n1", "url": "http://n1:1"}, {"id": "n2", "url": "http://n2:1", "labels": {"a": "b"}}],
    "models": [{"name": "one", "aliases": ["b", "a"], "profiles": [PROFILE]}, {"name": "two", "profiles": [PROFILE]}],
}


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    _forget()
    yield
    _forget()


def _forget() -> None:
    by_part._MEANINGS.clear()
    by_part._in_known_item.cache_clear()
    by_part._in_rest.cache_clear()


def _edited(*path: str | int, to: object) -> dict[str, object]:
    edited: dict[str, object] = copy.deepcopy(WHOLE)
    at: object = edited
    for step in path[:-1]:
        at = at[step]  # type: ignore[index]
    at[path[-1]] = to  # type: ignore[index]
    return edited


EDITS = (
    _edited("models", 0, "replicas", to=3),
    _edited("models", 0, "replicas", to=True),
    _edited("models", 1, "priority", to="1"),
    _edited("models", 0, "profiles", 0, "env", to={"HF_TOKEN": "hf_0123456789abcdef0123"}),
    _edited("models", 1, "profiles", to=[PROFILE, PROFILE]),
    _edited("models", 1, "profiles", 0, "ports", to=["a", "a"]),
    _edited("models", 1, "aliases", to=["a"]),
    _edited("models", 1, to=7),
    _edited("models", to={"one": 1}),
    _edited("models", to=list(reversed(WHOLE["models"]))),  # type: ignore[call-overload]
    _edited("nodes", 1, "labels", to={"a": 1}),
    _edited("nodes", 1, "id", to="n1"),
    _edited("nodes", 0, "url", to="http://n\x00:1"),
    _edited("engines", to={"mine": {"base": "vllm", "args": ["--api-key=abc"]}}),
    _edited("engines", to={"vllm": {"base": "nothing"}}),
    _edited("pools", to=[{"name": "x"}]),
    _edited("nonsense", to=1),
)


@given(st.lists(st.sampled_from([WHOLE, *EDITS]), max_size=6))
def test_a_catalog_is_judged_the_same_whatever_was_judged_before(sent: list[dict[str, object]]) -> None:
    remembering = [check(copy.deepcopy(raw)) for raw in sent]
    assert remembering == [_first_look(raw) for raw in sent]


def _first_look(raw: object) -> Checked:
    _forget()
    return check(copy.deepcopy(raw))


def test_a_model_that_was_not_edited_is_the_very_same_value() -> None:
    before, after = check(WHOLE).catalog, check(_edited("models", 1, "priority", to=9)).catalog
    assert before is not None
    assert after is not None
    assert after.models[0] is before.models[0]
    assert after.nodes[1] is before.nodes[1]
    assert after.models[1] is not before.models[1]
    assert after.models[1].priority == 9


def test_true_is_never_taken_for_the_one_that_was_sent_before() -> None:
    assert check(_edited("models", 0, "replicas", to=1)).catalog is not None
    assert check(_edited("models", 0, "replicas", to=True)).catalog is None


def test_what_stands_twice_in_a_model_is_told_with_the_place_of_the_first() -> None:
    (problem,) = check(_edited("models", 1, "profiles", to=[PROFILE, PROFILE])).problems
    assert (problem.path, problem.what) == (
        "models[1].profiles[1].name",
        'the profile "p" is there twice; first as models[1].profiles[0].name',
    )


def test_no_more_is_remembered_than_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_part, "_MOST", 3)
    for priority in range(10):
        assert check(_edited("models", 1, "priority", to=priority)).catalog is not None
        assert len(by_part._MEANINGS) <= 3


def test_a_catalog_nested_too_deep_is_refused_and_not_remembered() -> None:
    deep: object = "x"
    for _ in range(5000):
        deep = [deep]
    raw = _edited("models", 1, to={"name": "deep", "profiles": deep})
    assert check(raw).problems
    assert check(raw).catalog is None


# --- the canonical text -----------------------------------------------------------------------------------------------


def test_the_text_written_part_by_part_is_the_canonical_text_of_the_whole() -> None:
    checked = check(_edited("models", to=list(reversed(WHOLE["models"])))).catalog  # type: ignore[call-overload]
    assert checked is not None
    whole = plain(checked)
    assert catalog_bytes(checked) == len(canonical.canonical_json(whole))
    assert catalog_digest(checked) == canonical.digest(whole) == catalog_digest(Catalog.model_validate(WHOLE))
    assert catalog_digest(checked.model_copy(update={"allow_removals": True})) == catalog_digest(checked)
    assert [m["name"] for m in whole["models"]] == ["one", "two"]
    assert whole["models"][0]["aliases"] == ["a", "b"]


def test_a_copied_model_is_written_as_it_is_and_not_as_what_it_was_copied_from() -> None:
    catalog = Catalog.model_validate(WHOLE)
    before = catalog_digest(catalog)
    copied: Model = catalog.models[0].model_copy(update={"aliases": ()})
    assert catalog_digest(catalog.model_copy(update={"models": (copied, catalog.models[1])})) != before
    assert catalog_digest(catalog) == before


@pytest.mark.parametrize("edit", [edit for edit in EDITS if check(copy.deepcopy(edit)).catalog is not None])
def test_the_differences_are_those_between_catalogs_that_share_nothing(edit: dict[str, object]) -> None:
    old, new = Catalog.model_validate(WHOLE), Catalog.model_validate(edit)
    shared = by_part.sharing(new, old)
    assert shared.models[0] is old.models[0] or edit["models"] != WHOLE["models"]
    assert differences(old, shared) == differences(old, new)
