"""JSON into values with positions. Standard JSON only: no comments, no NaN, a key once.

The standard library's parser tells no positions of values and lets the last of two equal keys win.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from json import JSONDecodeError, JSONDecoder

from cli.source import Reading, Source, syntax_error
from llmgw.problems import Path, Position

_DECODER = JSONDecoder()
"""Used for single texts: it knows every escape."""
_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,39})(?P<real>(?:\.[0-9]{1,40})?(?:[eE][-+]?[0-9]{1,4})?)(?![0-9])")
_WORDS = {"true": True, "false": False, "null": None}
_WORD = re.compile("|".join(_WORDS))


def parse(text: str) -> Source:
    """The one value in `text`. Raises UnreadableError with positions, never another error."""
    reading = Reading()
    return reading.done(parse_document(text, reading))


def parse_document(text: str, reading: Reading) -> object:
    """The same, where problems that do not keep it from reading on stay with `reading`."""
    return _Scanner(text, reading).document()


@dataclass(slots=True)
class _Scanner:
    """Reads on from `here`; every method leaves it behind what it has read."""

    text: str
    reading: Reading
    here: int = 0
    starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.starts = [0, *(match.end() for match in re.finditer("\n", self.text))]

    def document(self) -> object:
        self._skip()
        if self.here == len(self.text):
            raise syntax_error("the file is empty", "begin with `{`", None)
        raw = self._value((), self._position())
        self._skip()
        if self.here < len(self.text):
            raise self._wrong("there is something after the end of the document", "one file holds one document")
        return raw

    def _value(self, at: Path, position: Position) -> object:
        """The value that begins here; `position` is the one to remember for it: its own, or its key's."""
        self.reading.enter(at, position)
        match self.text[self.here : self.here + 1]:
            case "{":
                return self._object(at)
            case "[":
                return self._array(at)
            case '"':
                return self._string()
            case _:
                return self._plain()

    def _object(self, at: Path) -> dict[str, object]:
        found: dict[str, object] = {}
        first: dict[str, Position] = {}
        for position in self._items("}"):
            if self.text[self.here : self.here + 1] != '"':
                raise self._wrong("a key in double quotes is missing", "no comma before the end, and no comments")
            key = self._string()
            self._skip()
            self._take(":", "a colon is missing after the key")
            self._skip()
            if key in first:
                self.reading.repeated((*at, key), first[key], position)
            first.setdefault(key, position)
            found[key] = self._value((*at, key), position)
        return found

    def _array(self, at: Path) -> list[object]:
        found: list[object] = []
        for position in self._items("]"):
            found.append(self._value((*at, len(found)), position))
        return found

    def _items(self, end: str) -> Iterator[Position]:
        """Stops at each item of a list or object, up to `end`."""
        self.here += 1
        self._skip()
        if self.text.startswith(end, self.here):
            self.here += 1
            return
        while True:
            yield self._position()
            self._skip()
            if self.text.startswith(end, self.here):
                self.here += 1
                return
            self._take(",", f"a comma or {end} is missing")
            self._skip()

    def _string(self) -> str:
        try:
            value, self.here = _DECODER.raw_decode(self.text, self.here)
        except JSONDecodeError as error:
            self.here = min(error.pos, len(self.text))
            raise self._wrong(f"not JSON: {error.msg.removesuffix(' at')}", "mend the text there") from error
        return str(value)

    def _plain(self) -> object:
        if (word := _WORD.match(self.text, self.here)) is not None:
            self.here = word.end()
            return _WORDS[word[0]]
        number = _NUMBER.match(self.text, self.here)
        if number is None:
            raise self._wrong("not JSON: no value begins here", "a text needs double quotes")
        self.here = number.end()
        return float(number[0]) if number["real"] else int(number[0])

    def _take(self, char: str, missing: str) -> None:
        if not self.text.startswith(char, self.here):
            raise self._wrong(f"not JSON: {missing}", "mend the JSON there")
        self.here += 1

    def _skip(self) -> None:
        blank = _BLANK.match(self.text, self.here)
        self.here = blank.end() if blank else self.here

    def _position(self) -> Position:
        line = bisect_right(self.starts, self.here)
        return Position(line, self.here - self.starts[line - 1] + 1)

    def _wrong(self, what: str, mend: str) -> Exception:
        return syntax_error(what, mend, self._position())
