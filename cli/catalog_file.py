"""Reading a catalog file: YAML or JSON into plain values, with the position of every part. Never judges the content."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from llmgw.problems import Path as At
from llmgw.problems import Position, Problem

MAX_BYTES = 16 * 1024 * 1024
MAX_PARTS = 200_000
"""Values of a document with its anchors spread; a catalog at its size limit has fewer."""

_TEXT, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"


@dataclass(frozen=True, slots=True)
class Source:
    raw: object
    lines: dict[At, Position]


class UnreadableError(Exception):
    """The text is no single YAML or JSON document; `problems` say where."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def read(path: Path) -> Source:
    """The document in a file. Raises OSError or UnreadableError."""
    if path.stat().st_size > MAX_BYTES:
        raise UnreadableError(Problem("", f"the file is larger than {MAX_BYTES >> 20} MiB", "a catalog is smaller"))
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise UnreadableError(Problem("", f"not UTF-8 text (byte {error.start})", "save it as UTF-8")) from error
    return parse(text)


def parse(text: str) -> Source:
    """The one document in `text`. JSON is read as YAML, which it is, so both have positions."""
    loader = _loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise UnreadableError(Problem("", "the file is empty", "begin with `models:`"))
        lines: dict[At, Position] = {}
        duplicates: list[Problem] = []
        _walk(node, (), lines, duplicates, set())
        if duplicates:
            raise UnreadableError(*duplicates)
        raw = _plain(loader.construct_document(node))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(filter(None, (error.context, error.problem)))
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (None, None)
        mend = "fill the template in first" if "{{" in text else "mend the YAML there"
        raise UnreadableError(Problem("", what, mend, line=line, column=column)) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UnreadableError(Problem("", str(error).splitlines()[0][:200], "mend the YAML")) from error
    finally:
        loader.dispose()
    return Source(raw, lines)


def _loader(text: str) -> yaml.SafeLoader:
    try:
        return yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        what = f"the character U+{error.character:04X} is not allowed"
        raise UnreadableError(Problem("", what, "take it out", line=line, column=column)) from error


def _walk(node: yaml.Node, at: At, lines: dict[At, Position], duplicates: list[Problem], inside: set[int]) -> None:
    """Positions of every part; a key given twice is a problem, with both lines."""
    if len(lines) > MAX_PARTS:
        raise ValueError(f"more than {MAX_PARTS:,} parts: anchors that multiply each other?")
    lines.setdefault(at, Position(node.start_mark.line + 1, node.start_mark.column + 1))
    if id(node) in inside:
        return  # an anchor inside itself; the constructor refuses it
    inside = {*inside, id(node)}
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _walk(item, (*at, index), lines, duplicates, inside)
    elif isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                key.tag = _TEXT  # a name is what is written: `on` and `no` are no switches, `1` is no number
            name = str(key.value)
            line = key.start_mark.line + 1
            if name in first and name != "<<":
                column = key.start_mark.column + 1
                what = f"the key {name!r} was already given in line {first[name]}"
                duplicates.append(Problem("", what, "remove one of them", line=line, column=column))
            first.setdefault(name, line)
            lines[*at, name] = Position(line, key.start_mark.column + 1)
            _walk(value, (*at, name), lines, duplicates, inside)


def _plain(value: Any) -> object:
    """JSON types only: dates and other YAML inventions become text, keys become text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
