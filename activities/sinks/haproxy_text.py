"""What HAProxy should hold for a book, and how that is written: servers, the map of names, the configuration file.

Pure. A model is a backend; its name is looked up in a map, so that a model may come and go, and its seconds to retry
change, without a reload. Every change is written to the files too, since what was told at run time is lost at a
restart.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from activities.sinks.book import Book
from llmgw.ids import ReplicaId
from llmgw.router_kinds import check_every_s
from llmgw.wire import Endpoint

PREFIX = "llmgw."
"""All backends of ours begin so; the operator's own are never touched."""
MAX_WEIGHT = 256
CHECK = "check inter {}s fall 2 rise 1"
"""Connects only: whether an engine is ready is its agent's word, and engines differ in their health paths."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server as it should be."""

    backend: str
    name: ReplicaId
    address: str
    weight: int
    backup: bool
    check_every_s: int

    @property
    def at(self) -> str:
        return f"{self.backend}/{self.name}"

    def line(self) -> str:
        """Its words in the configuration, and in `add server`."""
        return (
            f"{self.address} weight {self.weight}{' backup' if self.backup else ''} {CHECK.format(self.check_every_s)}"
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """What HAProxy should hold: servers by name, and the map."""

    servers: Mapping[ReplicaId, Server]
    entries: Mapping[str, str]
    backends: tuple[str, ...]


def backend_of(model: str) -> str:
    """The backend's name: readable, and unique by a digest. HAProxy takes letters, digits and `-_.:` only."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", model)[:40]
    return f"{PREFIX}{slug}.{hashlib.sha256(model.encode()).hexdigest()[:8]}"


def wanted_of(book: Book) -> Wanted:
    """Servers, map entries and backends for a book."""
    by_model: dict[str, list[Endpoint]] = {name: [] for name in sorted(book.models)}
    for endpoint in book.reachable():
        by_model.setdefault(endpoint.models[0], []).append(endpoint)
    servers: dict[ReplicaId, Server] = {}
    for model, endpoints in by_model.items():
        servers |= {s.name: s for s in _servers(book, backend_of(model), endpoints)}
    entries = {quote(name, safe=""): backend_of(name) for name in book.models}
    entries |= {_retry_key(backend_of(name)): str(model.retry_after_s) for name, model in book.models.items()}
    return Wanted(servers, entries, tuple(backend_of(name) for name in by_model))


def _servers(book: Book, backend: str, endpoints: Iterable[Endpoint]) -> Iterable[Server]:
    """HAProxy tells two priorities apart: the first one, and backups."""
    endpoints = tuple(endpoints)
    first = min((e.priority for e in endpoints), default=0)
    heaviest = max((e.weight for e in endpoints), default=0)
    every_s = check_every_s(book.settings)
    for endpoint in endpoints:
        weight = _scaled(endpoint.weight, heaviest)
        yield Server(backend, endpoint.id, book.addresses[endpoint.id], weight, endpoint.priority > first, every_s)


def _scaled(weight: int, heaviest: int) -> int:
    """Weights keep their ratios as far as 0-256 allow; only 0 stays 0."""
    if heaviest <= MAX_WEIGHT or weight == 0:
        return weight
    return max(1, round(weight * MAX_WEIGHT / heaviest))


def _retry_key(backend: str) -> str:
    """Cannot be the key of a model: in those `!` is written %21."""
    return f"!{backend}"


def map_text(wanted: Wanted) -> bytes:
    return "".join(f"{key} {value}\n" for key, value in sorted(wanted.entries.items())).encode()


def config_text(wanted: Wanted, book: Book, map_path: Path) -> bytes:
    """The file with all backends. The operator's own file has the frontend (docs/routers.md)."""
    lines = [
        "# Written by llmgw: changes by hand are undone.",
        f"# fleet {book.token.fleet}, epoch {book.token.epoch}, seq {book.token.seq}, table {book.digest}",
    ]
    servers: dict[str, list[Server]] = {}
    for server in wanted.servers.values():
        servers.setdefault(server.backend, []).append(server)
    for backend in wanted.backends:
        retry = f"%[str({_retry_key(backend)}),map({map_path},10)]"
        lines += [
            f"backend {backend}",
            "  mode http",
            "  balance leastconn",
            "  option redispatch 1",
            "  option allbackups",
            "  option abortonclose",  # a client that goes away ends its request at the engine
            "  retries 2",
            "  http-request return status 503 content-type application/json "
            f"string '{_NOT_READY}' hdr retry-after \"{retry}\" if {{ nbsrv lt 1 }}",
        ]
        lines += [f"  server {s.name} {s.line()}" for s in servers.get(backend, ())]
    return "\n".join([*lines, ""]).encode()


def without_head(text: bytes) -> bytes:
    """The configuration without its comments: they name the last token, which changes nothing."""
    return b"\n".join(line for line in text.splitlines() if not line.startswith(b"#"))


_NOT_READY = '{"error":{"message":"the model is known and has no ready replica","type":"not_ready","code":503}}'
