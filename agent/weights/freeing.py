"""How much a removal sets free, and what goes along with it: counts, changes nothing.

In a Hugging Face cache a snapshot is links: its bytes lie in blobs, which other snapshots may share. A blob goes with
the last link that leads to it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.weights.hub_cache import repositories


@dataclass(frozen=True)
class Orphans:
    """What nothing leads to once a place is removed. `names`: refs to its commit; `folders`: perhaps empty then."""

    blobs: tuple[Path, ...] = ()
    names: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()


def orphans_of(place: Path, root: Path, used: Mapping[Path, str]) -> Orphans:
    """What goes along when `place` is removed: nothing, unless it is a snapshot or lies in one."""
    for _, repo in repositories(root):
        snapshots = repo / "snapshots"
        if place.is_relative_to(snapshots):
            return _orphans_in(repo, place, used)
    return Orphans()


def _orphans_in(repo: Path, place: Path, used: Mapping[Path, str]) -> Orphans:
    snapshots = repo / "snapshots"
    blobs = repo / "blobs"
    going, staying = set[Path](), set[Path]()
    for snapshot in snapshots.iterdir():
        for link in _entries(snapshot):
            target = link.resolve()
            if target.is_relative_to(blobs.resolve()):
                (going if link.is_relative_to(place) else staying).add(target)
    names = [
        ref
        for ref in ((repo / "refs").rglob("*") if (repo / "refs").is_dir() else ())
        if ref.is_file() and ref not in used and place in (snapshots, snapshots / ref.read_text().strip())
    ]
    folders = (snapshots, repo / "refs", blobs, repo)
    return Orphans(tuple(sorted(going - staying - used.keys())), tuple(sorted(names)), folders)


def _entries(snapshot: Path) -> Iterable[Path]:
    return [path for path in snapshot.rglob("*") if path.is_symlink()]


def freed_bytes(places: Iterable[Path]) -> int:
    """Bytes that deleting `places` sets free: links are not followed; a file with several names counts once, and only
    if all its names lie in them."""
    names: dict[tuple[int, int], int] = {}
    freed = 0
    for place in places:
        for file in [place, *place.rglob("*")] if place.is_dir() and not place.is_symlink() else [place]:
            try:
                stat = file.lstat()
            except OSError:
                continue
            if file.is_symlink() or file.is_dir():
                continue
            key = (stat.st_dev, stat.st_ino)
            names[key] = names.get(key, 0) + 1
            if names[key] == stat.st_nlink:
                freed += stat.st_size
    return freed
