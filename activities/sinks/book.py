"""What the workers told a router that keeps no token itself: one file, held by one writer at a time.

The file makes a late worker's table refusable on this host, or wherever the directory is shared; it says what the
router should hold, so that the router can be compared with it; and it remembers what was withdrawn until it is idle.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from activities.sinks.sink import RouterError
from llmgw.calls import PublishCall
from llmgw.ids import ModelName, ReplicaId
from llmgw.observation import Target
from llmgw.table import Table
from llmgw.wire import Endpoint, HeldTable, TableModel, Token

LOCK_TRY_S = 0.01


class Leaving(BaseModel):
    """A withdrawn endpoint that may still be in use, and when (epoch seconds of this host) it was withdrawn."""

    model_config = ConfigDict(frozen=True)

    endpoint: Endpoint
    address: str
    at_s: float


class Book(BaseModel):
    """The table as it was last told, where each endpoint is reached, and what is leaving."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    token: Token
    digest: str
    total: int
    """The table's set sum: its digest follows from it and from each change."""
    models: dict[ModelName, TableModel] = {}
    endpoints: dict[ReplicaId, Endpoint] = {}
    addresses: dict[ReplicaId, str] = {}
    """`IP:PORT` by endpoint, as its host's name was resolved. One without cannot be told."""
    left_out: dict[ReplicaId, str] = {}
    """Endpoints without an address, and why."""
    leaving: dict[ReplicaId, Leaving] = {}

    @property
    def table(self) -> Table:
        return Table(self.models, self.endpoints, self.total)

    @property
    def held(self) -> HeldTable:
        return HeldTable(token=self.token, digest=self.digest)

    def reachable(self) -> list[Endpoint]:
        """Endpoints that can be told, by id."""
        return [e for id_, e in sorted(self.endpoints.items()) if id_ in self.addresses]

    def without(self, idle: frozenset[ReplicaId]) -> "Book":
        """The book once these are known to be idle."""
        return self.model_copy(update={"leaving": {k: v for k, v in self.leaving.items() if k not in idle}})


def leaving_after(before: Book | None, book: Book, now_s: float) -> dict[ReplicaId, Leaving]:
    """What was told before, or was leaving already, and is not in the table now."""
    if before is None:
        return {}
    found = {id_: gone for id_, gone in before.leaving.items() if id_ not in book.endpoints}
    for id_, address in before.addresses.items():
        if id_ not in book.endpoints and id_ not in found:
            found[id_] = Leaving(endpoint=before.endpoints[id_], address=address, at_s=now_s)
    return found


@dataclass(frozen=True, slots=True)
class Place:
    """One router of the catalog: where it is told, and where its book lies."""

    router: str
    url: str
    settings: Mapping[str, str]

    @classmethod
    def of_call(cls, call: PublishCall) -> Self:
        return cls(call.router, call.url, call.settings)

    @classmethod
    def of_target(cls, target: Target) -> Self:
        return cls(target.id.partition("/")[2], target.url, target.settings)

    def own_path(self) -> Path:
        """The path that a `unix:` or `file:` address names."""
        return Path(unquote(urlsplit(self.url).path))

    def path(self, name: str) -> Path:
        """The path in a setting. KeyError when it is not given: the catalog's check demands the required ones."""
        return Path(self.settings[name])

    @property
    def book_path(self) -> Path:
        if "state" in self.settings:
            return self.path("state")
        beside = next((self.settings[n] for n in ("file", "directory") if n in self.settings), str(self.own_path()))
        return Path(beside.rstrip("/") + ".llmgw")

    def read(self) -> Book | None:
        """The book; None where none is, or none that can be understood."""
        try:
            return Book.model_validate_json(self.book_path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def write(self, book: Book) -> None:
        write_whole(self.book_path, book.model_dump_json(exclude_defaults=True).encode(), keep=True)

    @contextlib.asynccontextmanager
    async def writing(self, limit_s: float) -> AsyncIterator[bool]:
        """Be the only one who tells or looks at this router. Gives False where that was not reached in time."""
        lock = self.book_path.with_name(self.book_path.name + ".lock")
        with contextlib.ExitStack() as stack:
            number = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, number)
            yield await _locked(number, limit_s)


async def _locked(number: int, limit_s: float) -> bool:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + limit_s
    while True:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if loop.time() >= until_s:
                return False
            await asyncio.sleep(LOCK_TRY_S)


def write_whole(path: Path, content: bytes, *, keep: bool = False, mode: int = 0o644) -> None:
    """Put a file in place whole, by renaming. `keep`: it is on disk when this returns. RouterError names the path."""
    draft = path.with_name(f".{path.name}.new")
    try:
        with draft.open("wb") as file:
            file.write(content)
            if keep:
                file.flush()
                os.fsync(file.fileno())
        draft.chmod(mode)
        draft.replace(path)
    except OSError as error:
        raise RouterError(f"cannot write {path}: {error.strerror}") from error
