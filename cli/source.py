"""What reading a text gives: a value with positions, or problems. Shared by the YAML and the JSON reader."""

from dataclasses import dataclass, field

from llmgw.problems import Path, Position, Problem, path_text

MAX_DEPTH = 64
MAX_PARTS = 200_000
"""Values of a document after its anchors are spread; a catalog at its size limit has about half of it."""


@dataclass(frozen=True, slots=True)
class Source:
    """`raw` of JSON types; `lines` has the position of every part of it."""

    raw: object
    lines: dict[Path, Position]


class UnreadableError(Exception):
    """The text is no single document of JSON types; `problems` say where."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def syntax_error(what: str, mend: str, position: Position | None) -> UnreadableError:
    """For a text that cannot be read on from `position`."""
    line, column = position if position is not None else (None, None)
    return UnreadableError(Problem("", what, mend, line=line, column=column))


@dataclass(slots=True)
class Reading:
    """What a reader has gathered so far: positions, and problems that did not keep it from reading on."""

    lines: dict[Path, Position] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    parts: int = 0

    def enter(self, at: Path, position: Position) -> None:
        """Note a part and its position. Raises UnreadableError where the document is too deep or too large."""
        self.parts += 1
        if len(at) > MAX_DEPTH:
            raise syntax_error(f"nested deeper than {MAX_DEPTH} levels", "an anchor inside itself?", position)
        if self.parts > MAX_PARTS:
            raise syntax_error(f"more than {MAX_PARTS} values", "anchors that multiply each other?", position)
        self.lines[at] = position

    def complain(self, at: Path, what: str, mend: str, position: Position) -> None:
        self.problems.append(Problem(path_text(at), what, mend, line=position.line, column=position.column))

    def repeated(self, at: Path, first: Position, again: Position) -> None:
        """The key at the end of `at` is there twice."""
        self.complain(at, f"the key was already given in line {first.line}", "remove one of the two", again)

    def done(self, raw: object) -> Source:
        """The source, or UnreadableError with every problem."""
        if self.problems:
            raise UnreadableError(*self.problems)
        return Source(raw, self.lines)
