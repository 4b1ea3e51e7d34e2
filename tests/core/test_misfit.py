"""What is wrong with a document of the wire is told in one house's words, whatever it holds."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from llmgw.misfit import MOST_TOLD, misfits
from llmgw.wire import CommandBatch, NodeReport, RouterState, RouterTable, TablePatch
from tests.core.test_any_catalog import NOT_OURS
from tests.effort import examples

DOCUMENTS: tuple[type[BaseModel], ...] = (CommandBatch, NodeReport, RouterState, RouterTable, TablePatch)
TOKEN = {"installation": "i", "fleet": "f", "epoch": 1, "seq": 1}
THEIRS = r"Input|Field required|Unable to extract|Extra inputs|discriminator|Invalid JSON"


def told(kind: type[BaseModel], raw: object) -> str:
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(raw)
    return misfits(caught.value)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({}, "token is missing"),
        ([], "the document: it must be a mapping"),
        ({"token": {**TOKEN, "epoch": 0}}, "token.epoch: it must be at least 1"),
        ({"token": {**TOKEN, "seq": "x"}}, "token.seq: it must be a whole number, such as 2"),
        ({"token": TOKEN, "commands": [{}]}, "commands[0] does not say its kind"),
        ({"token": TOKEN, "commands": [{"kind": "dance"}]}, "commands[0] is of no known kind: it must be one of"),
        ({"token": TOKEN, "commands": 3}, "commands: it must be a list"),
    ],
)
def test_each_part_that_is_wrong_is_named_with_what_it_has_to_be(raw: object, said: str) -> None:
    assert said in told(CommandBatch, raw)


def test_what_is_no_json_says_where_it_breaks() -> None:
    with pytest.raises(ValidationError) as caught:
        CommandBatch.model_validate_json(b'{"token":')
    assert misfits(caught.value).startswith("the document is no JSON: EOF")


def test_of_many_the_first_are_told_and_the_rest_counted() -> None:
    found = told(CommandBatch, {"token": TOKEN, "commands": [{} for _ in range(9)]})
    assert len(found.split("; ")) == MOST_TOLD + 1
    assert found.endswith("and 5 more")


ANYTHING = st.recursive(
    st.sampled_from([None, True, -1, 0, 1.5, "", "x", "\0", 10**15, TOKEN]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["token", "commands", "kind", "models", "endpoints", "node", "id", "replica", "spec"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(DOCUMENTS), ANYTHING)
def test_no_word_of_the_checker_reaches_people(kind: type[BaseModel], raw: Any) -> None:
    try:
        kind.model_validate_json(json.dumps(raw))
    except ValidationError as error:
        said = misfits(error)
        assert said
        assert NOT_OURS.search(said) is None, said
        assert not any(word in said for word in THEIRS.split("|")), said
