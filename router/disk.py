"""Tables on disk: one file per fleet, replaced whole and flushed before a table is acknowledged.

Blocking: called from a thread, or before the loop serves. Never decides whether a table may be replaced.
"""

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import quote

from pydantic import ValidationError

from llmgw.misfit import misfits
from llmgw.table import Table, build
from llmgw.wire import RouterTable, Token
from router.check import table_problems, told

_NAME_BYTES = 180
_LOCK = ".lock"


class InUseError(Exception):
    """Another router holds the state directory: two would overwrite each other's tables."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """A file that could not be understood, under its new name."""

    path: Path
    reason: str


def file_name(fleet: str) -> str:
    """A file name that is safe everywhere, and different for different fleets. Long ones end in a digest."""
    safe = quote(fleet, safe="").replace("~", "%7E")
    if safe.startswith("."):
        safe = "%2E" + safe[1:]
    if len(safe) > _NAME_BYTES:
        safe = f"{safe[:_NAME_BYTES]}~{hashlib.blake2b(fleet.encode(), digest_size=8).hexdigest()}"
    return f"{safe}.json"


class Disk:
    """The state directory, held alone while this object is open."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError, and InUseError where another router holds it."""
        self._directory = directory
        self._lock = _locked(directory)

    def close(self) -> None:
        self._lock.close()

    def is_lost(self) -> bool:
        """Whether the directory was removed, or another put in its place, since it was opened."""
        try:
            there = (self._directory / _LOCK).stat()
        except OSError:
            return True
        return not os.path.samestat(there, os.fstat(self._lock.fileno()))

    def make_anew(self) -> None:
        """Make the lost directory again, empty. Raises OSError, also where another router has taken its place."""
        try:
            lock = _locked(self._directory)
        except InUseError as error:
            raise OSError(errno.EBUSY, str(error)) from error
        self._lock.close()
        self._lock = lock

    def write(self, token: Token, table: Table) -> None:
        """Replace the file of the token's fleet. When it returns the table survives a power cut. Raises OSError."""
        document = RouterTable(
            token=token,
            digest=table.digest,
            models=tuple(table.models.values()),
            endpoints=tuple(table.endpoints.values()),
        )
        path = self._directory / file_name(token.fleet)
        fresh = path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(document.model_dump_json().encode())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        self._flush_directory()

    def read(self) -> Iterator[tuple[Token, Table] | SetAside]:
        """Every table on disk, in a stable order; a file that cannot be understood is renamed and told."""
        for path in sorted(self._directory.glob("*.json")):
            try:
                yield _parse(path)
            except ValidationError as error:
                yield self.set_aside(path, misfits(error, document="it"))
            except (ValueError, OSError) as error:
                yield self.set_aside(path, str(error))

    def set_aside(self, path: Path, reason: str) -> SetAside:
        """Rename a file so that it is kept for a person to look at and never read again."""
        number = 1
        while (target := path.with_name(f"{path.name}.corrupt-{number}")).exists():
            number += 1
        path.replace(target)
        self._flush_directory()
        return SetAside(target, reason)

    def path_of(self, fleet: str) -> Path:
        return self._directory / file_name(fleet)

    def _flush_directory(self) -> None:
        handle = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _locked(directory: Path) -> IO[str]:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = (directory / _LOCK).open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise InUseError(f"{directory} is in use by another router: give each router its own --state-dir") from error
    return lock


def _parse(path: Path) -> tuple[Token, Table]:
    document = RouterTable.model_validate_json(path.read_bytes())
    if path.name != file_name(document.token.fleet):
        raise ValueError(f"it holds fleet {document.token.fleet!r}, whose file is {file_name(document.token.fleet)}")
    if problems := table_problems(document.models, document.endpoints):
        raise ValueError(told(problems))
    table = build(document.models, document.endpoints)
    if table.digest != document.digest:
        raise ValueError(f"its content has digest {table.digest}, not {document.digest} as it says")
    return document.token, table
