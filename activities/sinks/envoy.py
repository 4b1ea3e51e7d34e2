"""Envoy: told through files in a watched directory, looked at through its admin interface. Never edits its bootstrap.

A withdrawn host stays listed as DRAINING: its requests run to their end and stay counted. Once nothing is in flight
there it is taken out of the file.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from pydantic import BaseModel, ConfigDict

from activities.sinks.book import Book, Once, Place, changed_models, write_whole
from activities.sinks.counting import Counting
from activities.sinks.envoy_text import (
    cluster_of,
    endpoints_file,
    files_of,
    hosts_of,
    leaving_places,
    places_of,
    version_of,
)
from activities.sinks.http import client_of
from activities.sinks.kept import Control, Look, Scope
from activities.sinks.sink import RouterError
from llmgw.ids import ReplicaId
from llmgw.sentences import names_shown
from llmgw.wire import EngineUsage

APPLY_LIMIT_S = 8.0
LOOK_S = 0.03
MAX_FILTERED = 20
"""Of more clusters it is cheaper to ask for all."""
DRAINING = "eds_status_draining"
WATCHES = Path("/proc/sys/fs/inotify/max_user_instances")
OWN_WATCHES = 4
"""Beside those of models: clusters, routes, and what Envoy and its user watch themselves."""


@contextlib.asynccontextmanager
async def controlled(place: Place) -> AsyncIterator[Control]:
    async with client_of(place.url) as client:
        yield EnvoyControl(place.path("directory"), client)


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Version(_Read):
    version_info: str = ""


class _Dump(_Read):
    configs: tuple[_Version, ...] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """One host of a cluster as Envoy lists it."""

    weight: int
    level: int
    picked: bool
    in_flight: int
    requests: int


class EnvoyControl:
    def __init__(self, directory: Path, client: httpx.AsyncClient) -> None:
        self._directory = directory
        self._client = client
        self._counting = Counting()
        self._files = Once(lambda book: files_of(book, directory))
        self._part: tuple[Book, Scope, Mapping[str, bytes]] | None = None

    async def tell(self, book: Book, before: Book | None) -> None:
        """Put the files in place and wait until Envoy shows that it has taken them."""
        changed = None if before is None else changed_models(before, book)
        files = self._files_of(book, changed)
        _check_watches(len(book.models))
        for name, content in files.items():
            if not _is_there(self._directory / name, content):
                write_whole(self._directory / name, content)
        await self._applied(book, changed)
        for left in self._left(files, changed):
            left.unlink(missing_ok=True)

    def _files_of(self, book: Book, changed: Scope) -> Mapping[str, bytes]:
        """Made once for what is told and looked at after."""
        if changed is None:
            return self._files.of(book)
        if self._part is None or self._part[0] is not book or self._part[1] != changed:
            self._part = book, changed, files_of(book, self._directory, changed)
        return self._part[2]

    def _left(self, files: Mapping[str, bytes], changed: Scope) -> list[Path]:
        """Files of models that left."""
        if changed is None:
            return [path for path in self._directory.glob("eds.*.json") if path.name not in files]
        return [self._directory / name for name in map(endpoints_file, changed) if name not in files]

    async def _applied(self, book: Book, changed: Scope) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + APPLY_LIMIT_S
        while differs := await self._still_differs(book, changed):
            if loop.time() >= until_s:
                raise RouterError(f"Envoy does not take its files: {differs}; its log says why")
            await asyncio.sleep(LOOK_S)

    async def _still_differs(self, book: Book, changed: Scope) -> str:
        """Routes first: they are told last, and asking for them costs Envoy next to nothing. While it reads a large
        table, its admin interface does not answer."""
        try:
            routes = await self._other_routes(book, changed)
            return routes or self._other_hosts(book, await self._hosts(changed), changed)
        except httpx.TimeoutException:
            return "it does not answer"

    async def look(self, book: Book, changed: Scope = None) -> Look:
        hosts = await self._hosts(changed)
        differs = self._other_hosts(book, hosts, changed) or await self._other_routes(book, changed)
        differs = differs or self._on_disk(book, changed)
        return Look("envoy", differs, self._use(book, hosts, changed))

    def _on_disk(self, book: Book, changed: Scope) -> str:
        """The files decide what it holds after a restart."""
        wrong = []
        for name, content in self._files_of(book, changed).items():
            if not _is_there(self._directory / name, content):
                wrong.append(name)
        return f"files {names_shown(sorted(wrong))} were changed by somebody else" if wrong else ""

    async def _hosts(self, changed: Scope) -> Mapping[tuple[str, str], Host]:
        """Hosts by cluster and address, of a few clusters or of all. As text: as JSON Envoy takes seven times as long
        for it, and serves its own configuration no sooner (measured with 8,000 hosts)."""
        few = changed is not None and len(changed) <= MAX_FILTERED
        asked = {"filter": f"^({'|'.join(map(re.escape, map(cluster_of, changed)))})$"} if few and changed else {}
        if changed is not None and not changed:
            return {}
        answer = await self._client.get("/clusters", params=asked)
        if not answer.is_success or "application/json" in answer.headers.get("content-type", ""):
            raise RouterError(f"{self._client.base_url} is no admin interface of Envoy")
        return hosts_in(answer.text)

    def _other_hosts(self, book: Book, hosts: Mapping[tuple[str, str], Host], changed: Scope) -> str:
        wanted = {(cluster_of(model), at): told for (model, at), told in hosts_of(book, changed).items()}
        gone = {gone.endpoint.models[0] for gone in book.leaving.values()}
        ours = set(map(cluster_of, changed if changed is not None else {*book.models, *gone}))
        wrong = [at for at, told in wanted.items() if (h := hosts.get(at)) is None or _as_told(h) != told]
        strange = [at for at, host in hosts.items() if at[0] in ours and host.picked and at not in wanted]
        if not wrong and not strange:
            return ""
        return f"hosts {names_shown(sorted(at for _, at in (*wrong, *strange)))} are not as told"

    async def _other_routes(self, book: Book, changed: Scope) -> str:
        wanted = version_of(self._files_of(book, changed)["rds.json"])
        return "" if await self._version("dynamic_route_configs") == wanted else "the routes are not as told"

    async def _version(self, resource: str) -> str:
        answer = await self._client.get("/config_dump", params={"resource": resource, "mask": "version_info"})
        if answer.status_code == httpx.codes.NOT_FOUND:
            return ""
        configs = _Dump.model_validate_json(answer.content).configs
        return configs[0].version_info if configs else ""

    def _use(self, book: Book, hosts: Mapping[tuple[str, str], Host], changed: Scope) -> dict[ReplicaId, EngineUsage]:
        """By endpoint; only leaving ones where not all were asked for. A host that is not listed has nothing in flight
        that could be known: it was never told."""
        found = {}
        places = places_of(book) if changed is None else leaving_places(book)
        for id_, at in places.items():
            host = hosts.get(at)
            if host is None:
                found[id_] = EngineUsage(in_flight=0, idle_s=0.0)
            else:
                found[id_] = self._counting.use(id_, counter=host.requests, in_flight=host.in_flight)
        self._counting.keep(set(found))
        return found

    async def sweep(self, book: Book, idle: frozenset[ReplicaId]) -> frozenset[ReplicaId]:
        """Take idle hosts out of their files."""
        changed = frozenset(book.leaving[id_].endpoint.models[0] for id_ in idle if id_ in book.leaving)
        before, after = (files_of(b, self._directory, changed) for b in (book, book.without(idle)))
        for name, content in after.items():
            if before.get(name) != content:
                write_whole(self._directory / name, content)
        return idle


def _is_there(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except FileNotFoundError:
        return False


def hosts_in(text: str) -> dict[tuple[str, str], Host]:
    """What `/clusters` lists as text: `CLUSTER::ADDRESS::WHAT::VALUE`, a line each, and an address may hold `::`."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for line in text.splitlines():
        where, _, told = line.partition("::")
        at, *pair = told.rsplit("::", 2)
        if len(pair) == 2 and pair[0] in _TOLD:
            found.setdefault((where, at), {})[pair[0]] = pair[1]
    return {at: _host(told) for at, told in found.items() if "weight" in told}


_TOLD = frozenset({"weight", "priority", "rq_active", "rq_total", "health_flags"})


def _host(told: Mapping[str, str]) -> Host:
    return Host(
        weight=int(told["weight"]),
        level=int(told.get("priority", 0)),
        picked=DRAINING not in told.get("health_flags", "").split("/"),
        in_flight=int(told.get("rq_active", 0)),
        requests=int(told.get("rq_total", 0)),
    )


def _check_watches(models: int) -> None:
    """`RouterError` where Envoy could not watch a file per model: it would end itself."""
    try:
        most = int(WATCHES.read_text())
    except (OSError, ValueError):
        return
    if models + OWN_WATCHES > most:
        raise RouterError(
            f"Envoy watches a file for each of {models} models, and ends itself where this host gives it no more than "
            f"{most} watches: `sysctl fs.inotify.max_user_instances={2 * (models + OWN_WATCHES)}`"
        )


def _as_told(host: Host) -> tuple[int, int, bool]:
    return host.weight, host.level, host.picked
