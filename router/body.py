"""The `model` field of a request body: found and exchanged in place. The rest of the body stays as the client sent it,
byte for byte: number formats, key order, escapes and unknown fields are the engine's business.

Never looks at any other field. A duplicate `model` is refused, since two parsers may
disagree on which one counts.
"""

import json
import re
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]  # public in name, missing in typeshed

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class ModelField:
    """The requested name, and the text of the body around the field's value."""

    name: str
    text: str
    start: int
    end: int

    def replaced(self, name: str) -> bytes:
        """The body with another name in place of the requested one."""
        return (self.text[: self.start] + json.dumps(name) + self.text[self.end :]).encode()


@dataclass(frozen=True, slots=True)
class BadBody:
    """Why a body names no model; `missing` when it is a sound object that only lacks the field."""

    message: str
    missing: bool = False


def find_model(body: bytes) -> ModelField | BadBody:
    """The top-level `model` of a JSON object. Parses the whole body once, at the speed of the C decoder."""
    try:
        text = body.decode()
        spans = _model_spans(text)
    except UnicodeDecodeError:
        return BadBody("the request body is not UTF-8")
    except json.JSONDecodeError as error:
        return BadBody(f"the request body is not valid JSON: {error.msg} at line {error.lineno} column {error.colno}")
    except (ValueError, RecursionError):  # a number of thousands of digits, or thousands of nested brackets
        return BadBody("the request body is not acceptable JSON: nested too deeply, or a number too long")
    if not spans:
        return BadBody("the request body has no `model`", missing=True)
    if len(spans) > 1:
        return BadBody("the request body has more than one `model`")
    start, end, value = spans[0]
    if not isinstance(value, str) or not value:
        return BadBody("`model` must be a non-empty string", missing=True)
    return ModelField(value, text, start, end)


def _model_spans(text: str) -> list[tuple[int, int, object]]:
    """(start, end, value) of each top-level `model`. Raises JSONDecodeError like the standard decoder."""
    at = _after_space(text, 0)
    if text[at : at + 1] != "{":
        raise json.JSONDecodeError("Expecting an object", text, at)
    at = _after_space(text, at + 1)
    spans: list[tuple[int, int, object]] = []
    if text[at : at + 1] == "}":
        return _nothing_follows(text, at + 1, spans)
    while True:
        if text[at : at + 1] != '"':
            raise json.JSONDecodeError("Expecting a property name in double quotes", text, at)
        key, at = scanstring(text, at + 1, True)
        at = _after_space(text, at)
        if text[at : at + 1] != ":":
            raise json.JSONDecodeError("Expecting ':'", text, at)
        start = _after_space(text, at + 1)
        value, end = _DECODER.raw_decode(text, start)
        if key == "model":
            spans.append((start, end, value))
        at = _after_space(text, end)
        match text[at : at + 1]:
            case ",":
                at = _after_space(text, at + 1)
            case "}":
                return _nothing_follows(text, at + 1, spans)
            case _:
                raise json.JSONDecodeError("Expecting ',' or '}'", text, at)


def _after_space(text: str, at: int) -> int:
    matched = _SPACE.match(text, at)
    return at if matched is None else matched.end()


def _nothing_follows(text: str, at: int, spans: list[tuple[int, int, object]]) -> list[tuple[int, int, object]]:
    at = _after_space(text, at)
    if at != len(text):
        raise json.JSONDecodeError("Extra data", text, at)
    return spans
