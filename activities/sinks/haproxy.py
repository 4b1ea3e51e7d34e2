"""HAProxy: replicas of known models at run time, new models by file and reload. Never touches what is not ours.

A withdrawn server goes to maintenance: HAProxy ends its streams and picks it no more. It is idle when nothing is in
flight there, in the process in charge and in former ones that still end their streams, and is then deleted, which
HAProxy refuses for a server in use.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from activities.sinks.book import Book, Place, write_whole
from activities.sinks.counting import Counting
from activities.sinks.haproxy_cli import MasterSocket, ServerRow
from activities.sinks.haproxy_text import PREFIX, Server, Wanted, config_text, map_text, wanted_of, without_head
from activities.sinks.kept import Control, Look
from activities.sinks.sink import RouterError
from llmgw.ids import ReplicaId
from llmgw.sentences import names_shown
from llmgw.wire import EngineUsage

MAX_COMMANDS = 100
"""A larger change is told by file and reload."""
RELOAD_LIMIT_S = 2.0
LOOK_S = 0.03


@contextlib.asynccontextmanager
async def controlled(place: Place) -> AsyncIterator[Control]:
    yield HAProxyControl(place)


class HAProxyControl:
    def __init__(self, place: Place) -> None:
        self._socket = MasterSocket(place.own_path())
        self._file = place.path("file")
        self._map = Path(place.settings.get("map", f"{self._file}.map"))
        self._counting = Counting()

    async def tell(self, book: Book, before: Book | None) -> None:  # noqa: ARG002 - what it holds is read from it
        wanted = wanted_of(book)
        write_whole(self._map, map_text(wanted))
        write_whole(self._file, config_text(wanted, book, self._map))
        await self._worker()
        there = await self._ours()
        for row in there.values():
            if row.server not in wanted.servers and not row.maintenance:
                await self._socket.tell(f"set server {row.backend}/{row.server} state maint")
        backends = await self._socket.backends()
        if self._takes_reload(wanted, there, backends):
            await self._reload()
        else:
            await self._at_run_time(wanted, there)
            await self._map_entries(wanted)

    def _takes_reload(self, wanted: Wanted, there: Mapping[ReplicaId, ServerRow], backends: frozenset[str]) -> bool:
        """A backend, an address or a backup cannot be changed at run time."""
        rows = [(server, there.get(id_)) for id_, server in wanted.servers.items()]
        moved = any(
            row is not None and (row.backend, row.address, row.backup) != (s.backend, s.address, s.backup)
            for s, row in rows
        )
        changes = sum(1 for s, row in rows if row is None or row.maintenance or row.weight != s.weight)
        return moved or not backends.issuperset(wanted.backends) or changes > MAX_COMMANDS

    async def _at_run_time(self, wanted: Wanted, there: Mapping[ReplicaId, ServerRow]) -> None:
        for id_, server in wanted.servers.items():
            row = there.get(id_)
            if row is None:
                await self._socket.tell(f"add server {server.at} {server.line()}", "New server registered")
                await self._socket.tell(f"enable health {server.at}")
            elif row.weight != server.weight:
                await self._socket.tell(f"set server {server.at} weight {server.weight}")
            if row is None or row.maintenance:
                await self._socket.tell(f"set server {server.at} state ready")

    async def _map_entries(self, wanted: Wanted) -> None:
        held = await self._socket.map_entries(self._map)
        for key in held.keys() - wanted.entries.keys():
            await self._socket.tell(f"del map {self._map} {key}")
        for key, value in wanted.entries.items():
            if held.get(key) != value:
                await self._socket.tell(f"{'set' if key in held else 'add'} map {self._map} {key} {value}")

    async def _reload(self) -> None:
        """A new worker process with the new files. `RouterError` when none comes up: the former goes on."""
        before = await self._socket.processes()
        await self._socket.ask("reload")
        loop = asyncio.get_running_loop()
        until_s = loop.time() + RELOAD_LIMIT_S
        while loop.time() < until_s:
            with contextlib.suppress(RouterError):  # the master restarts itself, and its socket is away for a moment
                if (await self._socket.processes()).worker not in (None, before.worker):
                    return
            await asyncio.sleep(LOOK_S)
        raise RouterError(f"HAProxy did not come up with {self._file}: `haproxy -c` says why; the former goes on")

    async def _worker(self) -> None:
        if (await self._socket.processes()).worker is None:
            raise RouterError("HAProxy has no worker process: its configuration may be at fault")

    async def _ours(self) -> dict[ReplicaId, ServerRow]:
        rows = await self._socket.servers()
        return {ReplicaId(row.server): row for row in rows if row.backend.startswith(PREFIX)}

    async def look(self, book: Book) -> Look:
        processes = await self._socket.processes()
        there = await self._ours()
        former: list[ServerRow] = []
        for pid in processes.former:
            with contextlib.suppress(RouterError):  # it has ended since
                former += await self._socket.servers(f"@!{pid}")
        wanted = wanted_of(book)
        differs = await self._difference(wanted, book, there)
        return Look(f"master {processes.master}", differs, self._use(book, there, former))

    async def _difference(self, wanted: Wanted, book: Book, there: Mapping[ReplicaId, ServerRow]) -> str:
        held = {id_: row for id_, row in there.items() if not row.maintenance}
        wrong = [id_ for id_, server in wanted.servers.items() if not _is(server, held.get(id_))]
        strange = [id_ for id_ in held if id_ not in wanted.servers]
        entries = await self._socket.map_entries(self._map)
        said = [
            f"servers {names_shown(sorted(wrong))} are not as told" if wrong else "",
            f"servers {names_shown(sorted(strange))} are not ours to serve" if strange else "",
            "the map of models is not as told" if entries != wanted.entries else "",
            "" if self._is_on_disk(wanted, book) else f"{self._file} or its map was changed by somebody else",
        ]
        return "; ".join(filter(None, said))

    def _is_on_disk(self, wanted: Wanted, book: Book) -> bool:
        try:
            same = without_head(self._file.read_bytes()) == without_head(config_text(wanted, book, self._map))
            return same and self._map.read_bytes() == map_text(wanted)
        except OSError:
            return False

    def _use(
        self, book: Book, there: Mapping[ReplicaId, ServerRow], former: Sequence[ServerRow]
    ) -> dict[ReplicaId, EngineUsage]:
        """By endpoint, over all processes. One that no process knows has nothing in flight."""
        found = {}
        for id_ in (*book.addresses, *book.leaving):
            rows = [row for row in (there.get(id_), *former) if row is not None and row.server == id_]
            in_flight = sum(row.in_flight for row in rows)
            counted = self._counting.use(id_, counter=sum(row.sessions for row in rows), in_flight=in_flight)
            last = min((row.idle_s for row in rows if row.idle_s is not None), default=None)
            found[id_] = counted if last is None or in_flight else EngineUsage(in_flight=0, idle_s=last)
        self._counting.keep(set(found))
        return found

    async def sweep(self, book: Book, idle: frozenset[ReplicaId]) -> frozenset[ReplicaId]:
        """Delete idle servers. HAProxy refuses one that is in use, or that was made ready again: it stays."""
        del book
        there = await self._ours()
        gone = set()
        for id_ in idle:
            row = there.get(id_)
            answer = await self._socket.ask(f"@1 del server {row.backend}/{id_}") if row is not None else ""
            if row is None or answer.startswith(("Server deleted", "No such server")):
                gone.add(id_)
        return frozenset(gone)


def _is(server: Server, row: ServerRow | None) -> bool:
    return row is not None and (row.backend, row.address, row.weight, row.backup) == (
        server.backend,
        server.address,
        server.weight,
        server.backup,
    )
