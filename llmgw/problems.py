"""What is wrong with an input, where, and how to mend it. Values only: nothing here judges, prints or raises.

A problem never quotes a value that could be a secret.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from llmgw.wire import MAX_ERROR_CHARS

Path = tuple[str | int, ...]
"""Where in a document: keys of mappings and indexes of lists, from the top."""


class Position(NamedTuple):
    """A place in a text; both count from 1."""

    line: int
    column: int


Lines = Mapping[Path, Position]


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"  # accepted, but worth a look


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem as a rule finds it, before positions are looked up."""

    at: Path
    what: str
    mend: str
    severity: Severity = Severity.ERROR
    first: Path | None = None
    """Where the same thing stands first, of which this one is too many."""


@dataclass(frozen=True, slots=True)
class Problem:
    """`path` as a person reads it (`models[2].aliases[0]`); `line` and `column` where the source has them."""

    path: str
    what: str
    mend: str
    severity: Severity = Severity.ERROR
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        where = self.path or "catalog"
        place = f" (line {self.line}, column {self.column})" if self.line is not None else ""
        mend = f"; {self.mend}" if self.mend else ""
        return f"{where}{place}: {self.what}{mend}"

    def sentence(self) -> str:
        """The same, cut to what a history may carry."""
        text = str(self)
        return text if len(text) <= MAX_ERROR_CHARS else text[: MAX_ERROR_CHARS - 1] + "…"


def sentences(problems: Iterable[Problem], limit: int = 100) -> tuple[str, ...]:
    """The first `limit` problems as sentences, and one more that counts the rest."""
    texts = [problem.sentence() for problem in problems]
    if len(texts) <= limit:
        return tuple(texts)
    return (*texts[:limit], f"… and {len(texts) - limit} more problems")


def placed(finding: Finding, lines: Lines) -> Problem:
    """`finding` with the position of its path, or of the nearest part around it that has one."""
    position = position_of(finding.at, lines)
    line, column = position if position is not None else (None, None)
    what = finding.what if finding.first is None else f"{finding.what}; first as {_place(finding.first, lines)}"
    return Problem(path_text(finding.at), what, finding.mend, finding.severity, line, column)


def _place(path: Path, lines: Lines) -> str:
    position = position_of(path, lines)
    return path_text(path) + (f", line {position.line}" if position is not None else "")


def position_of(path: Path, lines: Lines) -> Position | None:
    """Position of `path`; for a part that is missing, of what it is missing from."""
    for end in range(len(path), -1, -1):
        if (position := lines.get(path[:end])) is not None:
            return position
    return None


_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_MAX_KEY_CHARS = 60


def path_text(path: Path) -> str:
    """`models[2].env["A B"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step) and len(step) <= _MAX_KEY_CHARS:
            text += f".{step}" if text else step
        else:
            text += f"[{quoted(step)}]"
    return text


def quoted(text: str, limit: int = _MAX_KEY_CHARS) -> str:
    """`text` in double quotes on one line, invisible characters escaped, cut in the middle when long."""
    shown = "".join(c if c.isprintable() and c not in '"\\' else c.encode("unicode_escape").decode() for c in text)
    shown = shown.replace('"', '\\"')
    if len(shown) > limit:
        shown = f"{shown[: limit // 2]}…{shown[-limit // 2 + 1 :]}"
    return f'"{shown}"'


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A mend that names the closest of `known`, or all of them."""
    names = sorted(known)
    folded = {name.casefold().replace("-", "_"): name for name in names}
    close = difflib.get_close_matches(word.casefold().replace("-", "_")[:100], folded, n=1, cutoff=0.6)
    if close:
        return f"did you mean {quoted(folded[close[0]])}?"
    if not names:
        return "none is known here"
    return "known: " + ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
