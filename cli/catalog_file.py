"""Reading a catalog file: YAML or JSON into plain values, with the position of every part. Never judges the content.

What the two readers share: JSON types only, one document, a key once, and problems instead of guesses.
"""

import sys
from pathlib import Path

from cli import json_text, yaml_text
from cli.source import Source, UnreadableError
from llmgw.problems import Problem

__all__ = ["STDIN", "Source", "UnreadableError", "parse", "read"]

MAX_BYTES = 4 * 1024 * 1024
"""Twice what a fleet can take."""
STDIN = Path("-")


def read(path: Path) -> Source:
    """The document in a file (`-`: standard input); JSON where the name ends so. Raises OSError or UnreadableError."""
    return parse(text_of_file(path), is_json=None if path == STDIN else path.suffix.casefold() == ".json")


def parse(text: str, *, is_json: bool | None = None) -> Source:
    """The one document in `text`. Raises UnreadableError. `is_json` None: JSON if it begins with a brace."""
    if is_json is None:
        is_json = text.lstrip().startswith("{") and not text.lstrip().startswith("{{")  # those open a template
    return json_text.parse(text) if is_json else yaml_text.parse(text)


def text_of_file(path: Path) -> str:
    """The text in a file (`-`: standard input). Raises OSError or UnreadableError."""
    raw = _bytes(path)
    if len(raw) > MAX_BYTES:
        raise UnreadableError(Problem("", f"the file is larger than {MAX_BYTES >> 20} MiB", "no fleet takes that much"))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        raise UnreadableError(
            Problem("", "there are bytes that are no UTF-8 text", "save the file as UTF-8", line=line, column=column)
        ) from error


def _bytes(path: Path) -> bytes:
    """At most one byte more than is allowed, so that a wrong file name does not fill the memory."""
    if path == STDIN:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)
