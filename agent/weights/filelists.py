"""The lists that pulls leave behind: which files a source has and how many bytes each, to be held against the disk."""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from agent.foreign import foreign_json
from agent.weights.sources import OWN


def write_list(root: Path, key: str, source: str, files: Mapping[str, int]) -> None:
    """Keep `files` (name -> bytes) of `source` for `key`, on the disk when this returns. Raises OSError."""
    path = _path(root, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    with draft.open("w") as file:
        json.dump({"source": source, "files": dict(files)}, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def read_list(root: Path, key: str) -> dict[str, int]:
    """What was kept for `key`; empty when nothing was, or it cannot be understood."""
    try:
        kept = foreign_json(_path(root, key).read_bytes())
        return {str(name): int(size) for name, size in kept["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def listed_sources(root: Path) -> dict[str, float]:
    """What was ever pulled into the root, as it was asked for -> when it was last, in seconds since the epoch."""
    found: dict[str, float] = {}
    for path in sorted((root / OWN / "lists").glob("*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            source = str(foreign_json(path.read_bytes())["source"])
            found[source] = max(found.get(source, 0.0), path.stat().st_mtime)
    return found


def _path(root: Path, key: str) -> Path:
    name = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    return root / OWN / "lists" / f"{name}.json"
