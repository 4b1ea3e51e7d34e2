"""The files that a pull has to bring: what is there already, what is still to come, and each of them fetched.

Runs in a pull's own process. A piece grows in its `part` and gets its name only when it is whole; a part that an
ended process left is gone on with where the server can do so.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import httpx

from agent.foreign import foreign_json

_CHUNK = 256 * 1024
MOST_AT_ONCE = 16 * 1024**3
"""Bytes asked for in one request: the hub's servers give no more than 50 GB in one answer."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class PullError(Exception):
    """Why a pull fails. `kind`: no_disk, denied, absent, network or bad."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


Grown = Callable[[int], None]
"""Told bytes that have been added, or taken back."""


class Fetch(Protocol):
    def __call__(self, piece: "Piece", grown: Grown) -> None: ...


@dataclass(frozen=True)
class Piece:
    """One file. `link`: where a link to `final` belongs, for caches that keep files under their hash."""

    name: str
    size: int | None
    final: Path
    fetch: Fetch
    sha256: str | None = None
    link: Path | None = None

    @property
    def part(self) -> Path:
        return self.final.with_name(f"{self.final.name}.incomplete")

    @property
    def whole(self) -> bool:
        return self.final.is_file() and (self.size is None or self.final.stat().st_size == self.size)

    def bytes_here(self) -> int:
        """Bytes on the disk that need not be fetched again."""
        for path in (self.final,) if self.whole else (self.part,):
            with suppress(OSError):
                size = path.stat().st_size
                return size if self.size is None else min(size, self.size)
        return 0

    def bring(self, grown: Grown) -> None:
        """Make the piece whole, under its name. Raises PullError, OSError."""
        if not self.whole:
            self.final.parent.mkdir(parents=True, exist_ok=True)
            self.fetch(self, grown)
            self._check()
            self.part.replace(self.final)
            _state(self.part).unlink(missing_ok=True)
        if self.link is not None:
            _link(self.link, self.final)

    def _check(self) -> None:
        size = self.part.stat().st_size
        wrong = "" if self.size in (None, size) else f"{size} of {self.size} bytes came"
        if not wrong and self.sha256 is not None and _sha256(self.part) != self.sha256:
            wrong = "its hash is not what the hub tells"
        if wrong:
            self.part.unlink()
            raise PullError("bad", f"{self.name}: {wrong}")


def is_full(error: OSError) -> bool:
    return error.errno in _FULL


def drop_parts(pieces: tuple[Piece, ...]) -> None:
    """Give back the space of what is not whole."""
    for piece in pieces:
        for path in (piece.part, _state(piece.part)):
            with suppress(OSError):
                path.unlink()


@dataclass(frozen=True)
class FromWeb:
    """Fetches by HTTP; goes on with a part by range as long as the file there is the same (RFC 9110, If-Range)."""

    client: httpx.Client
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    validated: bool = False
    """The part belongs to the file by its name (a hash): no need to ask."""

    def __call__(self, piece: Piece, grown: Grown) -> None:
        while (have := _length(piece.part)) != piece.size:
            self._ask(piece, have, grown)
            if piece.size is None or _length(piece.part) <= have:
                return  # all there was, or less than was promised, which the check will tell

    def _ask(self, piece: Piece, have: int, grown: Grown) -> None:
        """One request: for what is to come, or for as much of it as one answer may hold."""
        headers = {**self.headers, "Accept-Encoding": "identity", **self._range(piece, have)}
        with self.client.stream("GET", self.url, headers=headers) as answer:
            if answer.status_code == 416:  # the part is longer than the file has become
                _forget(piece.part, have, grown)
                raise PullError("network", f"{piece.name}: the part does not fit; it begins anew")
            check_answer(answer, piece.name)
            goes_on = answer.status_code == 206 and _first_byte(answer) == have
            if not goes_on:
                _forget(piece.part, have, grown)
            _keep_validator(piece.part, answer)
            with piece.part.open("ab" if goes_on else "wb") as file:
                for chunk in answer.iter_raw(_CHUNK):
                    file.write(chunk)
                    grown(len(chunk))
                file.flush()
                os.fsync(file.fileno())

    def _range(self, piece: Piece, have: int) -> dict[str, str]:
        validator = "" if self.validated else _validator(piece.part)
        much = piece.size is not None and piece.size - have > MOST_AT_ONCE
        if (have and not (self.validated or validator)) or not (have or much):
            return {}
        last = have + MOST_AT_ONCE - 1 if much else ""
        return {"Range": f"bytes={have}-{last}"} | ({"If-Range": validator} if validator and have else {})


@dataclass(frozen=True)
class FromDisk:
    """Copies a file that lies elsewhere on the node."""

    path: Path

    def __call__(self, piece: Piece, grown: Grown) -> None:
        _forget(piece.part, piece.bytes_here(), grown)
        with self.path.open("rb") as source, piece.part.open("wb") as target:
            while chunk := source.read(_CHUNK):
                target.write(chunk)
                grown(len(chunk))
            target.flush()
            os.fsync(target.fileno())
        shutil.copymode(self.path, piece.part)


def check_answer(answer: httpx.Response, name: str) -> None:
    """Raises PullError for an answer without the content."""
    if answer.status_code in (401, 403):
        raise PullError(
            "denied", f"{name}: the server answers {answer.status_code}: name a secret with a token it knows"
        )
    if answer.status_code in (404, 410):
        raise PullError("absent", f"{name}: the server answers {answer.status_code}")
    if not answer.is_success:
        raise PullError("network", f"{name}: the server answers {answer.status_code}")


def _length(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def _first_byte(answer: httpx.Response) -> int | None:
    told = answer.headers.get("content-range", "").removeprefix("bytes ").partition("-")[0]
    return int(told) if told.isdigit() else None


def _forget(part: Path, have: int, grown: Grown) -> None:
    if have:
        grown(-have)
    part.unlink(missing_ok=True)


def _state(part: Path) -> Path:
    return part.with_name(f"{part.name}.from")


def _keep_validator(part: Path, answer: httpx.Response) -> None:
    """What tells that the file there is still the same: its strong entity tag, else its date."""
    tag = answer.headers.get("etag", "")
    validator = tag if tag and not tag.startswith("W/") else answer.headers.get("last-modified", "")
    _state(part).write_text(json.dumps(validator))


def _validator(part: Path) -> str:
    try:
        return str(foreign_json(_state(part).read_bytes()))
    except (OSError, ValueError):
        return ""


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _link(link: Path, final: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    target = os.path.relpath(final, link.parent)
    if link.is_symlink() and str(link.readlink()) == target:
        return
    draft = link.with_name(f".{link.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    draft.replace(link)
