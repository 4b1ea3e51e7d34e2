"""Reading an input that may be of any shape: what matches is given with its path, what does not is passed over.

Rules read the raw input, so that a mistake in one place hides no mistake in another.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from llmgw.problems import Path

EACH = "*"
"""In a pattern: every item of a list, or every value of a mapping."""


MAX_DEPTH = 32
"""Paths cost their length, and depth is the sender's choice."""


class Found(NamedTuple):
    at: Path
    value: object


class FoundText(NamedTuple):
    at: Path
    text: str


class FoundPart(NamedTuple):
    at: Path
    part: Mapping[str, object]


def find(raw: object, *pattern: str, at: Path = ()) -> Iterator[Found]:
    """Everything below `raw` whose path matches `pattern`: keys, or EACH. `at` is the path of `raw` itself."""
    if not pattern:
        yield Found(at, raw)
        return
    step, *rest = pattern
    if step == EACH:
        for key, value in _children(raw):
            yield from find(value, *rest, at=(*at, key))
    elif isinstance(raw, Mapping) and step in raw:
        yield from find(raw[step], *rest, at=(*at, step))


def texts(raw: object, *pattern: str, at: Path = ()) -> Iterator[FoundText]:
    """The texts among what `find` finds."""
    return (FoundText(path, value) for path, value in find(raw, *pattern, at=at) if isinstance(value, str))


def parts(raw: object, *pattern: str, at: Path = ()) -> Iterator[FoundPart]:
    """The mappings among what `find` finds, with their text keys only."""
    for path, value in find(raw, *pattern, at=at):
        if isinstance(value, Mapping):
            yield FoundPart(path, {key: item for key, item in value.items() if isinstance(key, str)})


def text(part: Mapping[str, object], key: str) -> str | None:
    """The text under `key`, or None."""
    value = part.get(key)
    return value if isinstance(value, str) else None


def text_list(value: object) -> tuple[tuple[int, str], ...]:
    """The texts of a list with their indexes; empty for anything else."""
    if not isinstance(value, list | tuple):
        return ()
    return tuple((index, item) for index, item in enumerate(value) if isinstance(item, str))


def every_text(raw: object) -> Iterator[FoundText]:
    """Every text down to MAX_DEPTH; a key has the path of its mapping.

    What is deeper stands in no field of a catalog and is refused as a whole.
    """
    waiting: list[Found] = [Found((), raw)]
    while waiting:
        at, value = waiting.pop()
        if isinstance(value, str):
            yield FoundText(at, value)
        for key, child in _children(value):
            if isinstance(key, str):
                yield FoundText(at, key)
            if len(at) < MAX_DEPTH:
                waiting.append(Found((*at, key), child))


def _children(value: object) -> Iterator[tuple[str | int, object]]:
    if isinstance(value, Mapping):
        yield from ((key, child) for key, child in value.items() if isinstance(key, str))
    elif isinstance(value, list | tuple):
        yield from enumerate(value)
