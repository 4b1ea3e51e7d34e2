"""Removing cached weights: only below the weights root, never what a replica uses, outcome and bytes per path."""

import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from llmgw.wire import CommandResult, Outcome, PathOutcome, Refusal, RefusalCode, RemoveWeights


def remove(root: Path | None, command: RemoveWeights, in_use: Sequence[str]) -> CommandResult:
    """Judge and remove each path. `in_use`: weights sources of the replicas that are here. Blocking."""
    if root is None:
        refusal = Refusal(code=RefusalCode.UNSUPPORTED, message="this agent has no --weights-root: nothing is removed")
        return CommandResult(subject=command.kind, outcome=Outcome.REFUSED, refusal=refusal)
    used = tuple(Path(unquote(urlsplit(s).path)) for s in in_use if s.startswith("file://"))
    outcomes = tuple(_one(root, path, used, dry_run=command.dry_run) for path in command.paths)
    return CommandResult(subject=command.kind, outcome=Outcome.ACCEPTED, paths=outcomes)


def _one(root: Path, path: str, used: Sequence[Path], *, dry_run: bool) -> PathOutcome:
    if (reason := _why_not(root, path, used)) is not None:
        return PathOutcome(path=path, outcome="refused", message=reason)
    target = root / path
    try:
        found = target.lstat()
    except FileNotFoundError:
        return PathOutcome(path=path, outcome="absent")
    size = _size(target)
    if dry_run:
        return PathOutcome(path=path, outcome="would_remove", freed_bytes=size)
    try:
        if stat.S_ISDIR(found.st_mode):
            shutil.rmtree(target)  # by directory handles: a link put in its way is not followed
        else:
            target.unlink()
    except OSError as error:
        return PathOutcome(path=path, outcome="refused", message=f"cannot remove it: {error.strerror}")
    return PathOutcome(path=path, outcome="removed", freed_bytes=size)


def _why_not(root: Path, path: str, used: Sequence[Path]) -> str | None:
    """Why a path must not be touched. Links on the way there are never followed."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or path != path.strip() or "\0" in path:
        return "a path is relative to the weights root, without `..`, and not the root itself"
    step = root
    for part in parts[:-1]:
        step = step / part
        if step.is_symlink():
            return f"{step.relative_to(root)} is a link: what lies behind it is not ours"
    target = root / path
    if not target.is_symlink() and target.is_dir() and os.path.ismount(target):
        return "it is a mount point"
    real = target.parent.resolve() / target.name
    for source in used:
        if source == real or real in source.parents or source.resolve() == real or real in source.resolve().parents:
            return f"a replica uses {source}"
    return None


def _size(target: Path) -> int:
    """Bytes that removing frees; links count as themselves, a file with other names frees nothing."""
    if target.is_symlink() or not target.is_dir():
        info = target.lstat()
        return info.st_size if info.st_nlink == 1 else 0
    total = 0
    for folder, _, files in os.walk(target):
        for name in files:
            info = (Path(folder) / name).lstat()
            total += info.st_size if info.st_nlink == 1 else 0
    return total
