"""What of the node's disk a container sees: the node's cache of weights, and where its own weights really lie.

Everything is mounted where the node has it, so a path means the same inside. Reads the disk and changes nothing.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from agent.containers import Mount
from agent.weights.presence import shards_of

_MOST_LINKS = 10_000


def really_at(weights: Path) -> Path:
    """Where weights lie, from where links within them lead where they should; a file keeps its name, which counts."""
    return weights.resolve() if weights.is_dir() else weights.parent.resolve() / weights.name


def mounts_for(weights: str, root: Path | None) -> tuple[Mount, ...]:
    """`weights`: what the engine loads, as `really_at` tells; else a name or nothing. `root` is for writing.

    A folder of links (a snapshot of a hub's cache) comes with the folders that its links lead to, a file with the
    shards that its name counts, and nothing else of its folder.
    """
    seen = [root] if root is not None else []
    for place in _places(weights):
        if not any(place.is_relative_to(other) for other in seen):
            seen.append(place)
    return tuple(Mount(str(place), writable=place == root) for place in seen)


def _places(weights: str) -> Iterator[Path]:
    path = Path(weights)
    if not path.is_absolute() or not path.exists():
        return
    yield from [path.with_name(name) for name in shards_of(path.name)] or [path]
    if path.is_dir():
        links = (entry for entry in path.rglob("*") if entry.is_symlink())
        for folder in dict.fromkeys(link.resolve().parent for link in islice(links, _MOST_LINKS)):
            if folder.is_dir():
                yield folder
