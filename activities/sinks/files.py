"""Routers that read one file: the endpoint picker of llm-d, the router of vLLM's production stack, Prometheus.

A row of `LAYOUTS` is a format. The file is replaced whole, by renaming; what it should hold follows from the book, so
an edit by hand shows. These routers say nothing of requests in flight: a withdrawn endpoint is idle when its engine
says so itself, and the file has had time to be read.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import httpx

from activities.sinks.addresses import host_of, split
from activities.sinks.book import Book, Once, Place, write_whole
from activities.sinks.http import client_of
from activities.sinks.kept import Control, Look, Scope
from activities.sinks.sink import RouterError
from llmgw.ids import ReplicaId
from llmgw.wire import Endpoint, EngineUsage

MAX_PICKER_BYTES = 1024 * 1024
"""The endpoint picker refuses a larger file."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One format of file."""

    render: Callable[[Book, Mapping[str, str]], bytes]
    """The file for a book, given the router's settings; the same bytes for the same content."""
    read_within_s: float
    """How long the reader may take until it acts on a new file."""
    max_bytes: int | None = None
    echo: str | None = None
    """Path under the setting `health` where the reader shows the document it acts on, and the key it is under."""
    carries_traffic: bool = True


def _name(endpoint: Endpoint) -> str:
    return endpoint.models[0]


def picker(book: Book, _: Mapping[str, str]) -> bytes:
    """llm-d's discovery file: literal addresses, ports as text, labels.
    Source: llm-d-router, pkg/epp/framework/plugins/datalayer/discovery/file."""
    entries = []
    for endpoint in book.reachable():
        address, port = split(book.addresses[endpoint.id])
        labels = {"llmgw-model": _name(endpoint), "llmgw-engine": endpoint.engine, "llmgw-pool": endpoint.pool}
        entries.append({"name": endpoint.id, "address": address, "port": str(port), "labels": labels})
    return _json({"endpoints": entries})


def production_stack(book: Book, settings: Mapping[str, str]) -> bytes:
    """vLLM production-stack's dynamic configuration: comma lists of equal length, in one order.
    Source: production-stack, docs/source/use_cases (json config); unknown keys are refused there."""
    endpoints = book.reachable()
    return _json(
        {
            "service_discovery": "static",
            "routing_logic": settings.get("routing_logic", "roundrobin"),
            "static_backends": ",".join(e.url for e in endpoints),
            "static_models": ",".join(map(_name, endpoints)),
        }
    )


def prometheus(book: Book, _: Mapping[str, str]) -> bytes:
    """Prometheus `file_sd`: a group per endpoint, so that each has labels of its own."""
    return _json(
        [
            {
                "targets": [book.addresses[e.id]],
                "labels": {
                    "model": _name(e),
                    "replica": e.id,
                    "node": host_of(e.url),
                    "engine": e.engine,
                    "pool": e.pool,
                },
            }
            for e in book.reachable()
        ]
    )


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode() + b"\n"


LAYOUTS: Mapping[str, Layout] = {
    "llm-d": Layout(picker, read_within_s=2.0, max_bytes=MAX_PICKER_BYTES),
    "production-stack": Layout(production_stack, read_within_s=12.0, echo="/health"),
    "prometheus": Layout(prometheus, read_within_s=0.0, carries_traffic=False),
}
"""By kind of router."""


def controlling(layout: Layout) -> Callable[[Place], AbstractAsyncContextManager[Control]]:
    """How routers with this layout are told."""

    @contextlib.asynccontextmanager
    async def controlled(place: Place) -> AsyncIterator[Control]:
        base = place.settings.get("health")
        if base is None or layout.echo is None:
            yield FileControl(place, layout, None)
            return
        async with client_of(base) as client:
            yield FileControl(place, layout, client)

    return controlled


class FileControl:
    def __init__(self, place: Place, layout: Layout, reader: httpx.AsyncClient | None) -> None:
        self._place = place
        self._layout = layout
        self._reader = reader
        self._content = Once(lambda book: layout.render(book, place.settings))

    @property
    def _path(self) -> Path:
        return self._place.own_path()

    async def tell(self, book: Book, before: Book | None) -> None:  # noqa: ARG002 - the file is always whole
        content = self._content.of(book)
        if self._layout.max_bytes is not None and len(content) > self._layout.max_bytes:
            raise RouterError(f"{len(content)} bytes are more than its reader takes ({self._layout.max_bytes})")
        write_whole(self._path, content)

    async def look(self, book: Book, changed: Scope = None) -> Look:  # noqa: ARG002 - it is told of all at once
        expected = self._content.of(book)
        use: dict[ReplicaId, EngineUsage] | None = {} if self._layout.carries_traffic else None
        try:
            there = self._path.read_bytes()
        except FileNotFoundError:
            return Look("file", f"{self._path} is missing", use, self._layout.read_within_s)
        except OSError as error:
            raise RouterError(f"cannot read {self._path}: {error.strerror}") from error
        differs = "" if there == expected else f"{self._path} was changed by somebody else"
        acted = await self._acts_on(expected)
        return Look("file", differs, use, 0.0 if acted else self._layout.read_within_s)

    async def _acts_on(self, expected: bytes) -> bool:
        """Whether the reader itself shows this very document. Its silence is no trouble of the file's."""
        if self._reader is None or self._layout.echo is None:
            return False
        try:
            answer = await self._reader.get(self._layout.echo)
            shown = answer.json().get("dynamic_config") or {}
        except (httpx.HTTPError, ValueError, AttributeError):
            return False
        wanted: dict[str, object] = json.loads(expected)
        return isinstance(shown, dict) and all(shown.get(key) == value for key, value in wanted.items())

    async def sweep(self, book: Book, idle: frozenset[ReplicaId]) -> frozenset[ReplicaId]:  # noqa: ARG002
        return idle
