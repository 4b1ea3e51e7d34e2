"""The files that are imported in tests, what comes of them, and short ways to look at it."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cli.foreign_text import Foreign, read
from cli.importing import spread
from llmgw.importing.account import Fate
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


PORT = "${llmgw:port}"


def of(kind: str, text: str) -> Imported:
    documents = [document for document in yaml.safe_load_all(text) if document is not None]
    found = imported(kind, documents[0] if len(documents) == 1 else documents)
    assert isinstance(found, Imported), found
    return found


def models(found: Imported) -> dict[str, Any]:
    listed: Any = found.catalog["models"]
    return {model["name"]: model for model in listed}


def profile(found: Imported, name: str) -> Any:
    return models(found)[name]["profiles"][0]


def told(found: Imported | Refused, fate: Fate = Fate.LOST) -> list[str]:
    return [
        f"{'.'.join(map(str, remark.at))}: {remark.what}: {remark.why}"
        for remark in found.remarks
        if remark.fate is fate
    ]


def lost(found: Imported | Refused, *words: str) -> bool:
    return any(all(word in line for word in words) for line in told(found))


def changed(found: Imported | Refused, *words: str) -> bool:
    return any(all(word in line for word in words) for line in told(found, Fate.CHANGED))
