"""The model's name is found and exchanged; everything else stays byte for byte."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.body import BadBody, ModelField, find_model

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
FIELDS = st.dictionaries(st.text().filter(lambda key: key != "model"), JSON, max_size=6)
NAMES = st.text(min_size=1)


def found(body: bytes) -> ModelField:
    result = find_model(body)
    assert isinstance(result, ModelField), result
    return result


@given(FIELDS, NAMES, NAMES, st.randoms(use_true_random=False), st.sampled_from([None, 0, 3]), st.booleans())
def test_only_the_name_is_exchanged(
    fields: dict[str, object], name: str, other: str, random: object, indent: int | None, ascii_only: bool
) -> None:
    items = [*fields.items(), ("model", name)]
    random.shuffle(items)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    text = json.dumps(dict(items), indent=indent, ensure_ascii=ascii_only)
    body = text.encode(errors="replace")
    field = found(body)
    assert field.name == json.loads(body)["model"]
    assert json.loads(field.replaced(other)) == json.loads(body) | {"model": other}
    assert field.replaced(other).startswith(body[: len(field.text[: field.start].encode())])
    assert field.replaced(other).endswith(field.text[field.end :].encode())


def test_numbers_escapes_and_order_stay_as_they_were_sent() -> None:
    body = b' {"t":1.0e-0, "model" : "a\\u0062", "big":12345678901234567890, "s":"\\/\\u00e9", "x":{"model":"no"}} \n'
    field = found(body)
    assert field.name == "ab"
    assert field.replaced('c"') == body.replace(b'"a\\u0062"', b'"c\\""')


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "line 1 column 1"),
        (b"[1]", "Expecting an object"),
        (b'{"model":"m"', "Expecting ',' or '}'"),
        (b'{"model":"m",}', "property name"),
        (b'{"model" "m"}', "Expecting ':'"),
        (b'{"model":}', "Expecting value"),
        (b'{"model":"m"} x', "Extra data"),
        (b"{'model':'m'}", "property name"),
        (b'{"model":"\xff"}', "UTF-8"),
        (b'{"a":' + b"[" * 100_000, "nested too deeply"),
        (b'{"a":' + b"1" * 10_000 + b"}", "number too long"),
        (b'{"model":"m","model":"n"}', "more than one"),
        (b"{}", "no `model`"),
        (b'{"model":7}', "non-empty string"),
        (b'{"model":""}', "non-empty string"),
    ],
)
def test_what_cannot_be_routed_says_why(body: bytes, says: str) -> None:
    result = find_model(body)
    assert isinstance(result, BadBody)
    assert says in result.message


@given(st.binary(max_size=60))
def test_any_bytes_are_judged_without_an_error(body: bytes) -> None:
    find_model(body)


@given(st.text(alphabet='{}[]",:\\model 01truefalsn', max_size=40))
def test_json_is_accepted_exactly_where_the_standard_decoder_accepts_it(text: str) -> None:
    result = find_model(text.encode())
    try:
        value = json.loads(text)
    except ValueError:
        assert isinstance(result, BadBody)
        return
    if not isinstance(value, dict):
        assert isinstance(result, BadBody)
    elif isinstance(result, ModelField):
        assert value["model"] == result.name
    elif not result.missing:
        assert "more than one" in result.message
