"""Removal of cached weight files, below the weights root and nowhere else.

The place of a path is judged after every link in it was followed, except the last: a link is removed, never what it
points to. What a replica here uses is not removed, nor what holds it.
"""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agent.local import refuse
from llmgw.wire import CommandResult, Outcome, PathOutcome, RefusalCode, RemoveWeights

SUBJECT = "remove_weights"


@dataclass(frozen=True)
class Refused:
    code: RefusalCode
    why: str


def remove_weights(order: RemoveWeights, root: Path | None, in_use: Iterable[Path]) -> CommandResult:
    """Remove (or, dry, only look at) each path; one refused path does not stop the others. Blocking.

    `in_use`: the weights of replicas that are not proven gone.
    """
    if root is None:
        refusal = refuse(RefusalCode.OUTSIDE_ROOT, "this node has no weights root: start the agent with --weights-root")
        return CommandResult(subject=SUBJECT, outcome=Outcome.REFUSED, refusal=refusal)
    used = {place for path in in_use for place in (path, path.resolve())}
    outcomes: list[PathOutcome] = []
    codes: list[RefusalCode] = []
    for path in dict.fromkeys(order.paths):
        found = locate(path, root.resolve(), used)
        if isinstance(found, Refused):
            codes.append(found.code)
            outcomes.append(PathOutcome(path=path, outcome="refused", message=found.why))
        else:
            outcomes.append(_remove(path, found, dry_run=order.dry_run))
    if len(codes) == len(outcomes):
        refusal = refuse(codes[0], f"none of {len(outcomes)} paths may be removed; see each path")
        return CommandResult(subject=SUBJECT, outcome=Outcome.REFUSED, refusal=refusal, paths=tuple(outcomes))
    return CommandResult(subject=SUBJECT, outcome=Outcome.ACCEPTED, paths=tuple(outcomes))


def locate(path: str, root: Path, used: Iterable[Path]) -> Path | Refused:
    """Where `path` really lies, if it may be removed. `root` is resolved; `path` is below it or relative to it."""
    if not path or "\0" in path or ".." in Path(path).parts:
        return Refused(RefusalCode.OUTSIDE_ROOT, "an empty path, or one with '..', is never removed: name it plainly")
    given = root / path
    place = given.parent.resolve() / given.name
    if place == root or not place.is_relative_to(root):
        return Refused(RefusalCode.OUTSIDE_ROOT, f"lies at {place}, not below the weights root {root}"[:300])
    if not place.is_symlink() and place.is_mount():
        return Refused(RefusalCode.OUTSIDE_ROOT, "is a mount point: what is mounted there is not the root's")
    for other in used:
        if other.is_relative_to(place) or place.is_relative_to(other):
            return Refused(RefusalCode.IN_USE, f"a replica here uses {other}: stop it first"[:300])
    return place


def _remove(path: str, place: Path, *, dry_run: bool) -> PathOutcome:
    if not place.exists() and not place.is_symlink():
        return PathOutcome(path=path, outcome="absent")
    size = size_bytes(place)
    if dry_run:
        return PathOutcome(path=path, outcome="would_remove", freed_bytes=size)
    try:
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink()
    except OSError as error:
        left = size_bytes(place)
        return PathOutcome(
            path=path,
            outcome="refused",
            freed_bytes=max(0, size - left),
            message=f"{error.filename or place}: {error.strerror}"[:300],
        )
    return PathOutcome(path=path, outcome="removed", freed_bytes=size)


def size_bytes(place: Path) -> int:
    """Bytes that removing `place` sets free: links are not followed, a file with several names counts once, and only
    if all its names lie here."""
    names: dict[tuple[int, int], int] = {}
    freed = 0
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
