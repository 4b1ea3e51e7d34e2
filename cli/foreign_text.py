"""Reading files that other tools made: YAML of any number of documents, or JSON, as JSON types with positions.

More patient than the reader of catalogs: what only makes a piece unreadable (a key given twice, an unknown tag) is
handed on, and told with everything else that is lost. What is no YAML at all is refused with the best guess of why.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from cli import json_text, yaml_text
from cli.catalog_file import STDIN, text_of_file
from cli.source import Reading, UnreadableError
from llmgw.problems import Path, Position, Problem

NOT_DATA: tuple[tuple[str, str, str], ...] = (
    # a pattern, what the text then looks like, what to hand over instead
    (
        r"^(from\s+[\w.]+\s+import|import\s+\w)",
        "a program in Python",
        "import the data it builds: `serve build` writes it",
    ),
    (
        r'^(job|variable|locals|resource)\s*("[^"\n]*"\s*)?\{',
        "HCL, as Nomad writes it",
        "llmgw imports no jobs of Nomad",
    ),
    (r"\{\{-?|\{%", "a template that was not filled in", "fill it in first: `helm template`, or values of the chart"),
    (r"(?m)^\s*[\w-]+:\s*\{\w+\}\s*$|^\{\w+\}\s*$", "a template that was not filled in", "fill it in first"),
    (r"^\s*(#!/|FROM\s|\[Unit\])", "a script, Dockerfile or unit of systemd", "llmgw imports YAML and JSON"),
)


@dataclass(slots=True)
class PatientReading(Reading):
    """Keeps what it could not read by its path, in place of problems."""

    unread: list[tuple[Path, str]] = field(default_factory=list)

    def complain(self, at: Path, what: str, mend: str, position: Position) -> None:  # noqa: ARG002 - its path has it
        self.unread.append((at, f"{what}; {mend}"))

    def repeated(self, at: Path, first: Position, again: Position) -> None:  # noqa: ARG002 - its path has it
        self.unread.append((at, f"the key is given twice, first in line {first.line}: the last counts"))


@dataclass(frozen=True, slots=True)
class Foreign:
    """`raw`: the document, or a list of several. `unread`: pieces that were passed over, with the reason."""

    raw: object
    lines: dict[Path, Position]
    unread: tuple[tuple[Path, str], ...]


def read(path: FilePath) -> Foreign:
    """The documents of a file (`-`: standard input). Raises OSError or UnreadableError."""
    text = text_of_file(path)
    try:
        return _parsed(text, is_json=path != STDIN and path.suffix.casefold() == ".json")
    except UnreadableError as error:
        raise UnreadableError(*(_explained(problem, text) for problem in error.problems)) from error


def _parsed(text: str, *, is_json: bool) -> Foreign:
    reading = PatientReading()
    raw = (json_text.parse_document if is_json else yaml_text.parse_documents)(text, reading)
    return Foreign(raw, reading.lines, tuple(reading.unread))


def _explained(problem: Problem, text: str) -> Problem:
    """`problem` with what the text looks like, where it looks like something known."""
    for pattern, what, mend in NOT_DATA:
        if re.search(pattern, text, re.MULTILINE):
            return Problem(
                "", f"this looks like {what} ({problem.what})", mend, line=problem.line, column=problem.column
            )
    return problem


def embedded(text: str) -> object | None:
    """The YAML inside a text, without positions; None when there is none."""
    try:
        return yaml_text.parse_documents(text, PatientReading())
    except UnreadableError:
        return None
