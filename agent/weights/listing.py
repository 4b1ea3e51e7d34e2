"""What weights lie below a root: a row per revision of a repository, per pulled file, per folder or file put there.

Looks at the disk only. Blocking.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

from agent.weights.filelists import listed_sources, read_list
from agent.weights.finding import Found, find, list_key
from agent.weights.hub_cache import hub_folder, repositories, revisions
from agent.weights.presence import WEIGHT_SUFFIXES, Presence, look, total_bytes
from agent.weights.sources import OWN, Hub, hub_text, parse
from llmgw.wire import WeightsReport

MOST_ROWS = 200
_DEEPEST = 4


def list_weights(root: Path, asked: Iterable[str] = ()) -> tuple[WeightsReport, ...]:
    """The rows, those of `asked` first; at most 200."""
    rows: dict[str, WeightsReport] = {}
    for text in dict.fromkeys((*asked, *listed_sources(root))):
        found = _find(text, root)
        if found is not None and found.place is not None and found.place.exists():
            rows[text] = _row(text, found.place, found.presence, root)
    for row in (*_of_hub(root), *_put_there(root)):
        rows.setdefault(row.source, row)
    return tuple(rows.values())[:MOST_ROWS]


def _find(text: str, root: Path) -> Found | None:
    try:
        return find(parse(text), root)
    except ValueError:  # written by another version
        return None


def _of_hub(root: Path) -> Iterator[WeightsReport]:
    for name, repo in repositories(root):
        known = revisions(repo)
        for revision, commit in known.items():
            snapshot = repo / "snapshots" / commit
            listed = read_list(root, list_key(Hub(name, revision=revision), commit))
            yield _row(hub_text(name, revision), snapshot, look(snapshot, listed), root)
        if not known:
            size = total_bytes((repo / "blobs").glob("*"))
            yield _row(hub_text(name, "main"), repo, Presence(size, ("no revision is whole",)), root)


def _put_there(root: Path) -> Iterator[WeightsReport]:
    """Folders and files of weights that somebody put below the root: sources as `file://` names them."""
    hub = hub_folder(root)
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        entries = [path for path in _entries(folder) if not _is_known(path, root, hub)]
        files = [path for path in entries if path.is_file()]
        weights = [path for path in files if path.suffix in WEIGHT_SUFFIXES]
        if weights and folder != root and any(path.name == "config.json" for path in files):
            yield _row(f"file://{quote(str(folder))}", folder, look(folder), root)
            continue
        for path in weights:
            yield _row(f"file://{quote(str(path))}", path, look(path), root)
        if depth < _DEEPEST:
            waiting += [(path, depth + 1) for path in entries if path.is_dir() and not path.is_symlink()]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_known(path: Path, root: Path, hub: Path) -> bool:
    """Rows of their own, or none at all."""
    return path in (root / OWN, root / "http", root / "file") or (path.parent == hub and "--" in path.name)


def _row(source: str, place: Path, presence: Presence, root: Path) -> WeightsReport:
    return WeightsReport(
        source=source,
        path=str(place.relative_to(root)) if place.is_relative_to(root) else str(place),
        bytes=presence.bytes,
        complete=presence.complete,
        reason=presence.why[:300],
    )
