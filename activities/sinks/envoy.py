"""Envoy: told through files in a watched directory, looked at through its admin interface. Never edits its bootstrap.

A withdrawn host stays listed as DRAINING: its requests run to their end and stay counted. Once nothing is in flight
there it is taken out of the file.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from activities.sinks.book import Book, Place, write_whole
from activities.sinks.counting import Counting
from activities.sinks.envoy_text import cluster_of, files_of, hosts_of, places_of, version_of
from activities.sinks.http import client_of
from activities.sinks.kept import Control, Look
from activities.sinks.sink import RouterError
from llmgw.ids import ReplicaId
from llmgw.sentences import names_shown
from llmgw.wire import EngineUsage

APPLY_LIMIT_S = 2.0
LOOK_S = 0.03


@contextlib.asynccontextmanager
async def controlled(place: Place) -> AsyncIterator[Control]:
    async with client_of(place.url) as client:
        yield EnvoyControl(place.path("directory"), client)


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _SocketAddress(_Read):
    address: str
    port_value: int = 0


class _Address(_Read):
    socket_address: _SocketAddress | None = None


class _Stat(_Read):
    name: str
    value: int = 0


class _Health(_Read):
    eds_health_status: str = "HEALTHY"


class _Host(_Read):
    address: _Address
    stats: tuple[_Stat, ...] = ()
    health_status: _Health = _Health()
    weight: int = 1
    priority: int = 0


class _Cluster(_Read):
    name: str
    host_statuses: tuple[_Host, ...] = ()


class _Clusters(_Read):
    cluster_statuses: tuple[_Cluster, ...] = ()


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

    async def tell(self, book: Book, before: Book | None) -> None:
        """Put the files in place and wait until Envoy shows that it has taken them."""
        files = files_of(book, self._directory)
        known = {} if before is None else files_of(before, self._directory)
        for name, content in files.items():
            if known.get(name) != content or not (self._directory / name).exists():
                write_whole(self._directory / name, content)
        await self._applied(book)
        for left in self._directory.glob("eds.*.yaml"):
            if left.name not in files:
                left.unlink(missing_ok=True)

    async def _applied(self, book: Book) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + APPLY_LIMIT_S
        while differs := await self._difference(book, await self._hosts()):
            if loop.time() >= until_s:
                raise RouterError(f"Envoy does not take its files: {differs}; its log says why")
            await asyncio.sleep(LOOK_S)

    async def look(self, book: Book) -> Look:
        hosts = await self._hosts()
        differs = await self._difference(book, hosts) or self._on_disk(book)
        return Look("envoy", differs, self._use(book, hosts))

    def _on_disk(self, book: Book) -> str:
        """The files decide what it holds after a restart."""
        changed = []
        for name, content in files_of(book, self._directory).items():
            path = self._directory / name
            if not path.exists() or path.read_bytes() != content:
                changed.append(name)
        return f"files {names_shown(sorted(changed))} were changed by somebody else" if changed else ""

    async def _hosts(self) -> Mapping[tuple[str, str], Host]:
        """Hosts by cluster and address."""
        answer = await self._client.get("/clusters", params={"format": "json"})
        try:
            listed = _Clusters.model_validate_json(answer.content)
        except ValidationError:
            raise RouterError(f"{self._client.base_url} is no admin interface of Envoy") from None
        return {
            (cluster.name, _address(host)): _host(host)
            for cluster in listed.cluster_statuses
            for host in cluster.host_statuses
        }

    async def _difference(self, book: Book, hosts: Mapping[tuple[str, str], Host]) -> str:
        wanted = {(cluster_of(model), at): told for (model, at), told in hosts_of(book).items()}
        ours = {cluster for cluster, _ in places_of(book).values()} | {cluster_of(name) for name in book.models}
        wrong = [at for at, told in wanted.items() if (h := hosts.get(at)) is None or _as_told(h) != told]
        strange = [at for at, host in hosts.items() if at[0] in ours and host.picked and at not in wanted]
        if wrong or strange:
            return f"hosts {names_shown(sorted(at for _, at in (*wrong, *strange)))} are not as told"
        if await self._version("dynamic_route_configs") != version_of(files_of(book, self._directory)["rds.yaml"]):
            return "the routes are not as told"
        return ""

    async def _version(self, resource: str) -> str:
        answer = await self._client.get("/config_dump", params={"resource": resource, "mask": "version_info"})
        if answer.status_code == httpx.codes.NOT_FOUND:
            return ""
        configs = _Dump.model_validate_json(answer.content).configs
        return configs[0].version_info if configs else ""

    def _use(self, book: Book, hosts: Mapping[tuple[str, str], Host]) -> dict[ReplicaId, EngineUsage]:
        """By endpoint. A host that is not listed has nothing in flight that could be known: it was never told."""
        found = {}
        for id_, at in places_of(book).items():
            host = hosts.get(at)
            if host is None:
                found[id_] = EngineUsage(in_flight=0, idle_s=0.0)
            else:
                found[id_] = self._counting.use(id_, counter=host.requests, in_flight=host.in_flight)
        self._counting.keep(set(found))
        return found

    async def sweep(self, book: Book, idle: frozenset[ReplicaId]) -> frozenset[ReplicaId]:
        """Take idle hosts out of their files."""
        before, after = files_of(book, self._directory), files_of(book.without(idle), self._directory)
        for name, content in after.items():
            if before.get(name) != content:
                write_whole(self._directory / name, content)
        return idle


def _address(host: _Host) -> str:
    at = host.address.socket_address
    if at is None:
        return ""
    return f"[{at.address}]:{at.port_value}" if ":" in at.address else f"{at.address}:{at.port_value}"


def _host(host: _Host) -> Host:
    stats = {stat.name: stat.value for stat in host.stats}
    return Host(
        weight=host.weight,
        level=host.priority,
        picked=host.health_status.eds_health_status != "DRAINING",
        in_flight=stats.get("rq_active", 0),
        requests=stats.get("rq_total", 0),
    )


def _as_told(host: Host) -> tuple[int, int, bool]:
    return host.weight, host.level, host.picked
