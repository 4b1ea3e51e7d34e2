"""Whether a starting engine moves on: it says something new, or moves many bytes. Its start limit is then extended.

Our own probes' lines in its log, and lines it repeats, are no progress. It judges nothing; `agent.watching` does.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from agent.proc import PROC
from llmgw.wire import Readiness

WINDOW_S = 60.0
"""Progress keeps a start alive for so long, and for half of its own limit at most."""

MOST_TIMES = 4.0
"""No start goes on beyond so many times its limit, whatever it says."""

LEAST_BYTES = 16 * 1024 * 1024
"""Reads and writes below this within a window are housekeeping: a download or a load moves more."""

_MOST_NEW_BYTES = 256 * 1024
_MOST_LINES = 2000
_CLOCK = re.compile(r"\d{4}-\d\d-\d\d|\d\d-\d\d|\d\d?:\d\d:\d\d(?:[.,]\d+)?|\[?\d+\.\d{3,}\]?|0x[0-9a-f]+|pid[= ]\d+")


def window_s(limit_s: float) -> float:
    return min(WINDOW_S, limit_s / 2)


class Progress:
    """Of one start. `last_s`: when it last moved on, on the caller's clock; at first, the moment it was made."""

    def __init__(self, log: Path, rules: Readiness, now_s: float) -> None:
        self.last_s = now_s
        self._log = log
        self._ours = (rules.health_path, rules.models_path)
        self._position = 0
        self._seen: set[str] = set()
        self._moved_bytes: int | None = None
        self._io_s = 0.0

    def read_log(self, now_s: float) -> None:
        """Take up what was written since the last call."""
        fresh = _read_from(self._log, self._position)
        if fresh is None:  # halved meanwhile
            self._position = 0
            return
        self._position += len(fresh)
        if fresh and self._says_something_new(fresh.decode(errors="replace")):
            self.last_s = now_s

    def wants_io(self, window: float, now_s: float) -> bool:
        """Whether the last look at bytes moved is a quarter of a window ago."""
        return now_s - self._io_s >= window / 4

    def take_io(self, pids: Iterable[int], now_s: float) -> None:
        """Compare with the last call what these processes have read and written."""
        self._io_s = now_s
        moved = sum(moved_bytes(pid) for pid in pids)
        if self._moved_bytes is not None and moved - self._moved_bytes >= LEAST_BYTES:
            self.last_s = now_s
        if self._moved_bytes is None or moved - self._moved_bytes >= LEAST_BYTES or moved < self._moved_bytes:
            self._moved_bytes = moved

    def _says_something_new(self, text: str) -> bool:
        news = {_CLOCK.sub("", line).strip() for line in re.split(r"[\r\n]+", text)}
        news = {line for line in news if line and not (" /" in line and any(path in line for path in self._ours))}
        fresh = news - self._seen
        if len(self._seen) < _MOST_LINES:
            self._seen |= fresh
        return bool(fresh)


def moved_bytes(pid: int, proc: Path = PROC) -> int:
    """What a process has read and written, through files, sockets and page faults (proc(5), `io`)."""
    with suppress(OSError, ValueError):
        figures = dict(line.split(": ") for line in (proc / str(pid) / "io").read_text().splitlines())
        through_calls = int(figures["rchar"]) + int(figures["wchar"])
        return max(through_calls, int(figures["read_bytes"]) + int(figures["write_bytes"]))
    return 0


def _read_from(path: Path, position: int) -> bytes | None:
    """At most the newest 256 KB; None when the file has become shorter."""
    with suppress(OSError):
        size = path.stat().st_size
        if size == position:
            return b""
        if size < position:
            return None
        with path.open("rb") as file:
            file.seek(position)
            return file.read(_MOST_NEW_BYTES)
    return b""
