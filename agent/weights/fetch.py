"""A pull's own process: `python -m agent.weights.fetch`, told its job on standard input, never by arguments.

First line in: `{"source", "root", "token"}`. Lines out: `plan` (bytes in all, bytes to come; then it waits for the
line `go`), `have` (bytes so far), `waiting` (another process fetches the same), `end` or `failed`. It ends with its
parent: at the end of its input.
"""

import fcntl
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx

from agent.weights.pieces import Grown, Piece, PullError, drop_parts, is_full
from agent.weights.sources import OWN, Hub, Source, parse
from agent.weights.wanted import Wanted, wanted

_AT_ONCE = 4
_TELL_S = 0.5
_TIMEOUT = httpx.Timeout(30.0, read=60.0)


def main() -> None:
    job = json.loads(sys.stdin.readline())
    tell = _Telling(sys.stdout, job.get("token"))
    go = threading.Event()
    threading.Thread(target=_listen, args=(go,), daemon=True).start()
    try:
        _pull(job["source"], Path(job["root"]), job.get("token"), tell, go)
        tell(event="end")
    except PullError as error:
        tell(event="failed", kind=error.kind, text=error.text)
    except httpx.HTTPError as error:
        tell(event="failed", kind="network", text=f"{type(error).__name__}: {error}")
    except OSError as error:
        kind = "no_disk" if is_full(error) else "bad"
        tell(event="failed", kind=kind, text=f"{error.filename or 'the disk'}: {error.strerror or error}")
    except Exception as error:
        tell(event="failed", kind="network", text=f"{type(error).__name__}: {error}")
    sys.stdout.flush()
    os._exit(0)  # threads that still wait for a server are not waited for


def _pull(text: str, root: Path, token: str | None, tell: "_Telling", go: threading.Event) -> None:
    with httpx.Client(timeout=_TIMEOUT, follow_redirects=True) as client, _alone(parse(text), root, tell):
        todo = wanted(text, root, client, token)
        here = sum(piece.bytes_here() for piece in todo.pieces)
        total = todo.total_bytes
        tell(event="plan", total=total, here=here, todo=0 if total is None else max(0, total - here))
        go.wait()
        todo.announce()
        progress = _Progress(tell, here)
        try:
            bring(todo, progress.grown)
        finally:
            progress.tell()  # whether it got on is judged by it


def bring(todo: Wanted, grown: Grown) -> None:
    """Make every piece whole. A full disk gets back what is unfinished. Raises PullError, OSError, httpx.HTTPError."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        works = [pool.submit(piece.bring, grown) for piece in _once(todo.pieces)]
        try:
            for work in works:
                work.result()
        except OSError as error:
            for work in works:
                work.cancel()
            if is_full(error):
                drop_parts(todo.pieces)
            raise
        except BaseException:
            for work in works:
                work.cancel()
            raise
    for piece in todo.pieces:
        piece.bring(grown)  # files of the same content: only their links are left to make


def _once(pieces: tuple[Piece, ...]) -> list[Piece]:
    """One piece per content: two names of one blob are not fetched twice at the same time."""
    return list({piece.final: piece for piece in pieces}.values())


class _Telling:
    """Writes events, never a token."""

    def __init__(self, out: IO[str], token: str | None) -> None:
        self._out = out
        self._token = token
        self._turn = threading.Lock()

    def __call__(self, **event: Any) -> None:
        if self._token and "text" in event:
            event["text"] = str(event["text"]).replace(self._token, "***")
        with self._turn:
            self._out.write(json.dumps(event) + "\n")
            self._out.flush()


class _Progress:
    """Counts bytes and tells them twice a second, also of a download that has come to a halt."""

    def __init__(self, tell: _Telling, here: int) -> None:
        self._tell = tell
        self._bytes = self._told = here
        self._turn = threading.Lock()
        threading.Thread(target=self._keep_telling, daemon=True).start()

    def grown(self, count: int) -> None:
        with self._turn:
            self._bytes += count

    def tell(self) -> None:
        with self._turn:
            if self._bytes != self._told:
                self._told = self._bytes
                self._tell(event="have", bytes=self._told)

    def _keep_telling(self) -> None:
        while True:
            time.sleep(_TELL_S)
            self.tell()


@contextmanager
def _alone(source: Source, root: Path, tell: _Telling) -> Iterator[None]:
    """Hold the lock of the source's files against other agents on a shared folder. The kernel lets go of it when its
    holder dies, so a lock file that was left behind holds nobody up."""
    what = f"{source.folder}@{source.revision}" if isinstance(source, Hub) else source.place
    path = root / OWN / "locks" / hashlib.blake2b(what.encode(), digest_size=16).hexdigest()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(event="waiting", text=f"another process fetches {what} into this folder")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _listen(go: threading.Event) -> None:
    for line in sys.stdin:
        if line.strip() == "go":
            go.set()
    os._exit(1)


if __name__ == "__main__":
    main()
