"""What the workers told a router that keeps no token itself: one file, held by one writer at a time.

The file makes a late worker's table refusable on this host, or wherever the directory is shared; it says what the
router should hold, so that the router can be compared with it; and it remembers what was withdrawn until it is idle.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Self, TypeVar
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
    stand_ins: dict[ReplicaId, Endpoint] = {}
    """In place of models without an endpoint: the activator, which wakes them and holds their requests."""
    leaving: dict[ReplicaId, Leaving] = {}
    settings: dict[str, str] = {}
    """The router's settings when it was told."""

    @property
    def table(self) -> Table:
        return Table(self.models, self.endpoints, self.total)

    @property
    def held(self) -> HeldTable:
        return HeldTable(token=self.token, digest=self.digest)

    def reachable(self) -> list[Endpoint]:
        """Endpoints that can be told, by id, and what stands in for others."""
        told = {**self.endpoints, **self.stand_ins}
        return [told[id_] for id_ in sorted(told) if id_ in self.addresses]

    def without(self, idle: frozenset[ReplicaId]) -> "Book":
        """The book once these are known to be idle."""
        return self.model_copy(update={"leaving": {k: v for k, v in self.leaving.items() if k not in idle}})


T = TypeVar("T")


class Once(Generic[T]):
    """What follows from a book, made once for each: a watcher asks for that of the same book every second."""

    def __init__(self, make: Callable[[Book], T]) -> None:
        self._make = make
        self._last: tuple[Book, T] | None = None

    def of(self, book: Book) -> T:
        if self._last is None or self._last[0] is not book:
            self._last = (book, self._make(book))
        return self._last[1]


def leaving_after(before: Book | None, book: Book, now_s: float) -> dict[ReplicaId, Leaving]:
    """What was told before, or was leaving already, and is not in the table now."""
    if before is None:
        return {}
    there = {e.id for e in book.reachable()}
    found = {id_: gone for id_, gone in before.leaving.items() if id_ not in there}
    for endpoint in before.reachable():
        if endpoint.id not in there and endpoint.id not in found:
            found[endpoint.id] = Leaving(endpoint=endpoint, address=before.addresses[endpoint.id], at_s=now_s)
    return found


def changed_models(before: Book, book: Book) -> frozenset[str]:
    """Models of which anything is to be told, or is still leaving. Costs a look at each endpoint, where most are the
    very same as before."""
    names: set[str] = {
        name for name in before.models.keys() | book.models.keys() if before.models.get(name) != book.models.get(name)
    }
    for old, new in ((before.endpoints, book.endpoints), (before.stand_ins, book.stand_ins)):
        both = (
            e
            for id_ in old.keys() | new.keys()
            if (a := old.get(id_)) is not (b := new.get(id_)) and a != b
            for e in (a, b)
        )
        names |= {e.models[0] for e in both if e is not None}
    moved = (id_ for id_, at in book.addresses.items() if before.addresses.get(id_) != at)
    told = {**book.endpoints, **book.stand_ins}
    names |= {told[id_].models[0] for id_ in moved if id_ in told}
    return frozenset(names | {gone.endpoint.models[0] for gone in (*before.leaving.values(), *book.leaving.values())})


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

    def version(self) -> tuple[int, int, int] | None:
        """Changes with every writing of the book; None where there is none."""
        try:
            found = self.book_path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def write(self, book: Book) -> None:
        write_whole(self.book_path, book.model_dump_json(exclude_defaults=True).encode(), keep=True)

    def is_held(self, book: Book) -> bool:
        """Whether the router was seen to hold the book's table once told; else it may be anywhere in between."""
        try:
            return self._held_path.read_text() == book.digest
        except OSError:
            return False

    def note_held(self, book: Book) -> None:
        write_whole(self._held_path, book.digest.encode())

    @property
    def _held_path(self) -> Path:
        return self.book_path.with_name(self.book_path.name + ".held")

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
