"""What is wrong with a document that crosses a wire, in words for people: which part, and what it has to be.

Part of the wire: agents and routers use it as well. No value is quoted, since it could be a secret.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from pydantic import ValidationError
from pydantic_core import ErrorDetails

MOST_TOLD = 5


def misfits(error: ValidationError, *, document: str = "the document") -> str:
    """`token is missing; commands[0].replica: it must be text`: one clause for each of the first few, then how many
    more. `document`: what to call the whole."""
    return misfits_of(error.errors(include_url=False, include_input=False), document=document)


def misfits_of(details: Iterable[ErrorDetails], *, document: str = "the document", skip: int = 0) -> str:
    """The same of errors as pydantic lists them; the first `skip` steps of each place are not the document's."""
    said = [_told(_place(detail["loc"][skip:]) or document, detail) for detail in details]
    said = list(dict.fromkeys(said))
    more = [f"and {len(said) - MOST_TOLD} more"] if len(said) > MOST_TOLD else []
    return "; ".join([*said[:MOST_TOLD], *more])


def _place(steps: Iterable[str | int]) -> str:
    """`commands[0].replica`; tags of unions are no part of what was written."""
    found = ""
    for step in steps:
        found += f"[{step}]" if isinstance(step, int) else f".{step}" if found else step
    return found


def _told(where: str, detail: ErrorDetails) -> str:
    tell = _BY_TYPE.get(detail["type"])
    return tell(where, detail) if tell is not None else f"{where}: {plain_words(detail['msg'])}"


def _not_json(where: str, detail: ErrorDetails) -> str:
    return f"{where} is no JSON: {detail['msg'].removeprefix('Invalid JSON: ')}"


def _unknown_tag(where: str, detail: ErrorDetails) -> str:
    known = str(detail.get("ctx", {}).get("expected_tags", ""))
    return f"{where} is of no known kind" + (f": it must be one of {known}" if known else "")


_BY_TYPE: Mapping[str, Callable[[str, ErrorDetails], str]] = {
    "missing": lambda where, _: f"{where} is missing",
    "extra_forbidden": lambda where, _: f"{where} is unknown here",
    "json_invalid": _not_json,
    "union_tag_not_found": lambda where, _: f"{where} does not say its kind",
    "union_tag_invalid": _unknown_tag,
}


def plain_words(message: str) -> str:
    """What pydantic says of a value, without its own words: what is wrong, as a person would say it."""
    text = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    for pattern, words in _PLAIN:
        if pattern.match(text) is not None:
            return pattern.sub(words, text)
    return text


_PLAIN = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"Input should be a valid integer.*", "it must be a whole number, such as 2"),
        (r"Input should be a valid number.*", "it must be a number, such as 1.5"),
        (r"Input should be a finite number.*", "it must be a finite number"),
        (r"Input should be a valid boolean.*", "it must be true or false"),
        (r"Input should be a valid string.*", "it must be text"),
        (r"Input should be a valid (?:list|tuple|set|frozenset).*", "it must be a list"),
        (r"Input should be (?:a valid (?:dictionary|mapping|instance)|an object).*", "it must be a mapping"),
        (r"Input should be greater than or equal to (\S+).*", r"it must be at least \1"),
        (r"Input should be less than or equal to (\S+).*", r"it must be at most \1"),
        (r"Input should be greater than (\S+).*", r"it must be above \1"),
        (r"Input should be less than (\S+).*", r"it must be below \1"),
        (r"Input should be (.*)", r"it must be \1"),
        (r"(?:String|Value) should have at least (\d+) .*", r"it must have at least \1 characters"),
        (r"(?:String|Value) should have at most (\d+) .*", r"it must have at most \1 characters"),
        (r"(?:List|Tuple) should have at least 1 .*", "it must have at least 1 item"),
        (r"(?:List|Tuple) should have at least (\d+) .*", r"it must have at least \1 items"),
        (r"String should match pattern.*", "it has characters that are not allowed there"),
        (r"Field required", "it is missing"),
        (r"Extra inputs are not permitted", "there is no such field"),
    )
)
