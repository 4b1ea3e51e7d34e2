"""The files that are imported in tests, and what comes of them."""

from functools import cache
from pathlib import Path

from cli.foreign_text import Foreign, read
from cli.importing import spread
from llmgw.importing.importer import Imported, Refused, imported
from llmgw.importing.kinds import SOURCES

CASES = Path(__file__).parent / "cases"

FILES = tuple(
    (kind, file) for kind in SOURCES for file in sorted((CASES / kind).iterdir()) if file.suffix in (".yaml", ".json")
)


def name_of(value: object) -> str:
    return value.name if isinstance(value, Path) else str(value)


@cache
def foreign(file: Path) -> Foreign:
    found = read(file)
    return Foreign(spread(found.raw), found.lines, found.unread)


def outcome(kind: str, file: Path) -> Imported | Refused:
    found = foreign(file)
    return imported(kind, found.raw, found.unread)


def accepted(kind: str, file: str) -> Imported:
    found = outcome(kind, CASES / kind / file)
    assert isinstance(found, Imported)
    return found
