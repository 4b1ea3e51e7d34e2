"""Removal of weight files: below the weights root and nowhere else, and never what a replica uses.

Every step is taken by the handle of the folder before it, and no link is followed on the way; a link itself is
removed, never what it leads to. What goes is first moved into the agent's own folder, so nothing can be slipped in
between looking and deleting. Of a Hugging Face cache, blobs go with the last snapshot that links to them.
"""

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from agent.local import refuse
from agent.weights.finding import find
from agent.weights.freeing import Orphans, freed_bytes, orphans_of
from agent.weights.sources import OWN, parse
from llmgw.wire import CommandResult, Outcome, PathOutcome, RefusalCode, RemoveWeights

SUBJECT = "remove_weights"
LATE = "not begun, since what was named before it is still being deleted: ask again"
_TRASH = f"{OWN}/trash"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Refused(Exception):  # noqa: N818 - told to the operator as it is
    """One path is not removed."""

    def __init__(self, code: RefusalCode, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


def remove_weights(
    order: RemoveWeights,
    root: Path | None,
    used: Mapping[Path, str],
    told: Callable[[PathOutcome], None] = lambda _: None,
    is_late: Callable[[], bool] = lambda: False,
) -> CommandResult:
    """Remove (or, dry, only look at) each path; one refused path does not stop the others. Blocking.

    `used`: place -> who uses it. `told` hears each outcome as soon as it is sure but for the deleting itself.
    Once `is_late`, no further path is begun.
    """
    if root is None:
        refusal = refuse(RefusalCode.OUTSIDE_ROOT, "this node has no weights root: start the agent with --weights-root")
        return CommandResult(subject=SUBJECT, outcome=Outcome.REFUSED, refusal=refusal)
    outcomes: list[PathOutcome] = []
    codes: list[RefusalCode] = []
    for path in dict.fromkeys(order.paths):
        try:
            if is_late():
                raise Refused(RefusalCode.NOT_READY, LATE)
            outcomes.append(_remove(path, root, used, told, dry_run=order.dry_run))
        except Refused as refused:
            codes.append(refused.code)
            outcomes.append(PathOutcome(path=path, outcome="refused", message=refused.why[:300]))
            told(outcomes[-1])
    return result_of(outcomes, codes)


def result_of(outcomes: Iterable[PathOutcome], codes: list[RefusalCode]) -> CommandResult:
    """The answer to the order: refused when every path was."""
    outcomes = tuple(outcomes)
    if outcomes and all(one.outcome == "refused" for one in outcomes):
        code = codes[0] if codes else RefusalCode.IN_USE
        refusal = refuse(code, f"none of {len(outcomes)} paths may be removed; see each path")
        return CommandResult(subject=SUBJECT, outcome=Outcome.REFUSED, refusal=refusal, paths=outcomes)
    return CommandResult(subject=SUBJECT, outcome=Outcome.ACCEPTED, paths=outcomes)


def steps_below(path: str, root: Path) -> tuple[str, ...]:
    """The names to walk from the root to `path`, which is relative to it or names it in full. Raises Refused."""
    if not path or "\0" in path:
        raise Refused(RefusalCode.OUTSIDE_ROOT, "an empty path, or one that holds a NUL, is never removed")
    if ".." in Path(path).parts:
        raise Refused(RefusalCode.OUTSIDE_ROOT, "a path with '..' is never removed: name it plainly")
    steps = _below_root(Path(path), root).parts
    if not steps:
        raise Refused(RefusalCode.OUTSIDE_ROOT, "this is the weights root itself: name what lies in it")
    if steps[0] == OWN:
        raise Refused(RefusalCode.OUTSIDE_ROOT, f"{OWN} is the agent's own")
    return steps


def _below_root(given: Path, root: Path) -> Path:
    """`given` relative to the root, which may itself be named through links. Raises Refused."""
    if not given.is_absolute():
        return given
    for folder in (given, *given.parents):
        if folder == root or folder.resolve() == root:
            return given.relative_to(folder)
    raise Refused(RefusalCode.OUTSIDE_ROOT, f"does not lie below the weights root {root}")


def empty_trash(root: Path) -> None:
    """Delete what an earlier agent moved and could not delete any more. Blocking."""
    for path in (root / _TRASH).glob("*"):
        _delete(path)


def _place_named(path: str, root: Path) -> str | None:
    """The path meant: a source, as catalogs and reports write it, stands for its place. Raises Refused."""
    if "://" not in path:
        return path
    try:
        found = find(parse(path), root)
    except ValueError as error:
        raise Refused(RefusalCode.OUTSIDE_ROOT, str(error)) from None
    return None if found.place is None else str(found.place)


# --- one path ------------------------------------------------------------------------------------------------------


def _remove(
    path: str, root: Path, used: Mapping[Path, str], told: Callable[[PathOutcome], None], *, dry_run: bool
) -> PathOutcome:
    if (named := _place_named(path, root)) is None:
        return PathOutcome(path=path, outcome="absent")
    steps = steps_below(named, root)
    with _parent_of(steps, root) as parent:
        seen = None if parent is None else _stat(parent, steps[-1])
        if parent is None or seen is None:
            return PathOutcome(path=path, outcome="absent")
        place = root.joinpath(*steps)
        _check(place, seen, root, used)
        orphans = orphans_of(place, root, used)
        size = freed_bytes((place, *orphans.blobs))
        if dry_run:
            return PathOutcome(path=path, outcome="would_remove", freed_bytes=size)
        moved = _move(parent, steps[-1], seen, root)
        told(PathOutcome(path=path, outcome="removed", freed_bytes=size))
        if problem := _delete(moved):
            left = freed_bytes((moved,)) if moved.exists() else 0
            with suppress(OSError):
                os.rename(moved, steps[-1], dst_dir_fd=parent)
            return PathOutcome(path=path, outcome="refused", freed_bytes=max(0, size - left), message=problem)
    _delete_orphans(orphans, root)
    return PathOutcome(path=path, outcome="removed", freed_bytes=size)


@contextmanager
def _parent_of(steps: tuple[str, ...], root: Path) -> Iterator[int | None]:
    """A handle of the folder that holds the last step; None where there is no such folder. Raises Refused."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        device = os.fstat(handle).st_dev
        for number, step in enumerate(steps[:-1]):
            try:
                further = os.open(step, _FOLDER, dir_fd=handle)
            except FileNotFoundError:
                yield None
                return
            except OSError:
                raise Refused(RefusalCode.OUTSIDE_ROOT, _not_a_folder(steps[: number + 1], root)) from None
            os.close(handle)
            handle = further
            if os.fstat(handle).st_dev != device:
                what = f"lies on what is mounted at {root.joinpath(*steps[: number + 1])}, which is not the root's"
                raise Refused(RefusalCode.OUTSIDE_ROOT, what)
        yield handle
    finally:
        os.close(handle)


def _not_a_folder(steps: tuple[str, ...], root: Path) -> str:
    place = root.joinpath(*steps)
    if place.is_symlink():
        return f"passes through {place}, which is a link: links are never followed"
    return f"passes through {place}, which is no folder"


def _stat(parent: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refused(RefusalCode.OUTSIDE_ROOT, f"cannot be looked at: {error.strerror}") from None


def _check(place: Path, seen: os.stat_result, root: Path, used: Mapping[Path, str]) -> None:
    if not stat.S_ISLNK(seen.st_mode):
        for mount in mounts():
            inside = mount != root and mount.is_relative_to(root)
            if inside and (mount.is_relative_to(place) or place.is_relative_to(mount)):
                raise Refused(RefusalCode.OUTSIDE_ROOT, f"something is mounted at {mount}: it is not the root's")
    for other, who in used.items():
        if other.is_relative_to(place) or place.is_relative_to(other):
            raise Refused(RefusalCode.IN_USE, f"{who} uses {_shown(other, root)}: stop it first")


def mounts() -> list[Path]:
    """Every place where something is mounted (proc(5), mountinfo; blanks are written in octal)."""
    with suppress(OSError):
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
        return [Path(_plain(line.split(" ")[4])) for line in lines]
    return []


def _plain(text: str) -> str:
    for code, char in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        text = text.replace(code, char)
    return text


def _shown(place: Path, root: Path) -> str:
    return str(place.relative_to(root)) if place.is_relative_to(root) else str(place)


# --- moving and deleting -------------------------------------------------------------------------------------------


def _move(parent: int, name: str, seen: os.stat_result, root: Path) -> Path:
    """Move what was looked at out of everybody's way; what took its place meanwhile is put back. Raises Refused."""
    trash = root / _TRASH
    try:
        trash.mkdir(mode=0o700, parents=True, exist_ok=True)
        moved = trash / secrets.token_hex(8)
        os.rename(name, moved, src_dir_fd=parent)
    except OSError as error:
        raise Refused(RefusalCode.OUTSIDE_ROOT, f"cannot be moved out of its folder: {error.strerror}") from None
    now = moved.lstat()
    if (now.st_dev, now.st_ino, stat.S_IFMT(now.st_mode)) != (seen.st_dev, seen.st_ino, stat.S_IFMT(seen.st_mode)):
        os.rename(moved, name, dst_dir_fd=parent)
        raise Refused(RefusalCode.IN_USE, "was replaced while it was looked at: ask again")
    return moved


def _delete(place: Path) -> str:
    """Delete a file, a link or a whole folder; what went wrong, or nothing. No link is followed (shutil.rmtree goes by
    handles on this platform)."""
    try:
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
    except OSError as error:
        return f"cannot delete {Path(error.filename or place).name}: {error.strerror}"[:300]
    return ""


def _delete_orphans(orphans: Orphans, root: Path) -> None:
    for path in (*orphans.blobs, *orphans.names, *orphans.folders):
        with suppress(OSError, Refused, ValueError):
            steps = path.relative_to(root).parts
            with _parent_of(steps, root) as parent:
                if parent is None:
                    continue
                if path in orphans.folders:
                    os.rmdir(steps[-1], dir_fd=parent)  # only when it is empty
                else:
                    os.unlink(steps[-1], dir_fd=parent)
