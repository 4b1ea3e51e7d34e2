"""Engines' output: one file per replica and attempt, bounded, read back as last lines or followed.

The engine writes to the file itself, so its output survives the agent. A file over its limit is halved in place:
the older half goes, once, to `.1`; what is written in that instant may be lost.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

from llmgw.ids import ReplicaId

TAIL_LINES = 10
TAIL_CHARS = 200
LAST_LINES = 80
_TAIL_BYTES = 16 * 1024
_FOLLOW_S = 0.2
KEPT_REPLICAS = 200
"""Folders of replicas long gone that are kept for their logs."""


class EngineLogs:
    def __init__(self, root: Path, limit_mib: int) -> None:
        self._root = root
        self._limit = limit_mib * 1024 * 1024

    def path(self, replica: ReplicaId, attempt: int) -> Path:
        """Where this attempt's output goes; its folder is made where that can be (if not, the start tells why)."""
        folder = self._root / replica
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{attempt}.log"

    def latest(self, replica: str) -> Path | None:
        """The newest attempt's log; None for a replica never seen here."""
        if not replica or "/" in replica or replica.startswith("."):
            return None
        found = [path for path in (self._root / replica).glob("*.log") if path.stem.isdigit()]
        return max(found, key=lambda path: int(path.stem), default=None)

    def tail(self, replica: ReplicaId, attempt: int, clean: Callable[[str], str] = str) -> tuple[str, ...]:
        """The last lines for a report: each gone through `clean`, then cut in length."""
        lines = last_lines(self._root / replica / f"{attempt}.log", TAIL_LINES)
        return tuple(clean(line)[:TAIL_CHARS] for line in lines)

    def last_words(self, replica: ReplicaId, attempt: int) -> tuple[str, ...]:
        """As `tail`, of more lines and uncut: what ended an engine stands before what it says while it goes."""
        return tuple(last_lines(self._root / replica / f"{attempt}.log", LAST_LINES))

    def begin_anew(self, replica: ReplicaId, attempt: int) -> None:
        """Set the log of an attempt aside, to `.1`: what follows is a new process's."""
        path = self._root / replica / f"{attempt}.log"
        with suppress(OSError):
            path.replace(path.with_suffix(".log.1"))

    def bound(self, replica: ReplicaId, attempt: int) -> bool:
        """Halve the log if it is over its limit; whether it was. Blocking.

        Where nothing can be kept (the disk is full, maybe by this very log) it is emptied all the same.
        """
        name = f"{self._root}/{replica}/{attempt}.log"
        try:
            size = os.stat(name).st_size  # noqa: PTH116 - once a second per replica
            if size <= self._limit:
                return False
            path = Path(name)
            _keep(path, path.with_suffix(".log.1"), size, self._limit // 2)
            os.truncate(path, 0)  # the engine appends, so it goes on at the new end
        except OSError:
            return False
        return True

    def forget_old(self, live: set[str]) -> None:
        """Remove the logs of replicas long gone. Blocking."""
        if not self._root.is_dir():
            return
        gone = [folder for folder in self._root.iterdir() if folder.name not in live]
        for folder in sorted(gone, key=_age_key, reverse=True)[KEPT_REPLICAS:]:
            shutil.rmtree(folder, ignore_errors=True)


def _keep(path: Path, kept: Path, size: int, most: int) -> None:
    """The last `most` bytes of what was there: a fast writer is not followed."""
    try:
        with path.open("rb") as file, kept.open("wb") as copy:
            file.seek(max(0, size - most))
            left = min(size, most)
            while left and (chunk := file.read(min(left, 1024 * 1024))):
                copy.write(chunk)
                left -= len(chunk)
    except OSError:
        kept.unlink(missing_ok=True)


def last_lines(path: Path, count: int) -> list[str]:
    """Up to `count` last lines within the last 16 KB; none if there is no such file."""
    return read_tail(path, count, _TAIL_BYTES)[0].decode(errors="replace").splitlines()


def read_tail(path: Path, count: int, most_bytes: int) -> tuple[bytes, int]:
    """(the last `count` lines within the last `most_bytes`, where the file ended then): `follow` goes on from there."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            begin = max(0, end - most_bytes)
            file.seek(begin)
            lines = file.read(most_bytes).splitlines(keepends=True)
            if begin and len(lines) > 1:
                del lines[0]  # a part of a line: half of a secret would not be known for one
    except OSError:
        return b"", 0
    return b"".join(lines[-count:] if count > 0 else []), end


async def follow(path: Path, position: int, is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
    """What the file holds after `position`, as it grows, until `is_over`; a halved file goes on from its new start."""
    while True:
        over = is_over()  # asked before reading: what was written before the end is still told
        fresh = await asyncio.to_thread(_read_from, path, position)
        if fresh is None:
            position = 0
        elif fresh:
            position += len(fresh)
            yield fresh
        if over:
            return
        await asyncio.sleep(_FOLLOW_S)


def _read_from(path: Path, position: int) -> bytes | None:
    """Bytes from `position` on; None when the file has become shorter than that."""
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < position:
                return None
            file.seek(position)
            return file.read(256 * 1024)
    except OSError:
        return b""


def _age_key(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0
