"""HAProxy: replicas of known models at run time, new models by file and reload. Never touches what is not ours.

A withdrawn server goes to maintenance: HAProxy ends its streams and picks it no more. It is idle when nothing is in
flight there, in the process in charge and in former ones that still end their streams, and is then deleted, which
HAProxy refuses for a server in use.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path

from activities.sinks.book import Book, Once, Place, changed_models, write_whole
from activities.sinks.counting import Counting
from activities.sinks.haproxy_cli import MasterSocket, ServerRow
from activities.sinks.haproxy_text import (
    PREFIX,
    Server,
    Wanted,
    backend_of,
    config_text,
    map_text,
    wanted_of,
    without_head,
)
from activities.sinks.kept import Control, Look, Scope
from activities.sinks.sink import RouterError
from llmgw.ids import ReplicaId
from llmgw.sentences import names_shown
from llmgw.wire import EngineUsage

MAX_COMMANDS = 100
"""A larger change is told by file and reload."""
RELOAD_LIMIT_S = 20.0
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
        self._wanted = Once(wanted_of)
        self._config = Once(lambda book: config_text(self._wanted.of(book), book, self._map))

    async def tell(self, book: Book, before: Book | None) -> None:
        wanted = self._wanted.of(book)
        write_whole(self._map, map_text(wanted))
        write_whole(self._file, self._config.of(book))
        await self._worker()
        asked = None if before is None else _backends(changed_models(before, book))
        there = await self._ours(asked)
        leaving = [row for row in there.values() if row.server not in wanted.servers and not row.maintenance]
        await self._socket.tell(f"set server {row.backend}/{row.server} state maint" for row in leaving)
        backends = await self._socket.backends()
        mine = wanted.servers if asked is None else {k: s for k, s in wanted.servers.items() if s.backend in asked}
        if not backends.issuperset(wanted.backends) or _takes_reload(mine, there):
            await self._reload()
        else:
            await self._at_run_time(mine, there)
            await self._map_entries(wanted)

    async def _at_run_time(self, servers: Mapping[ReplicaId, Server], there: Mapping[ReplicaId, ServerRow]) -> None:
        new = [server for id_, server in servers.items() if id_ not in there]
        await self._socket.tell((f"add server {s.at} {s.line()}" for s in new), "New server registered")
        await self._socket.tell(f"enable health {s.at}" for s in new)
        known = [(s, row) for id_, s in servers.items() if (row := there.get(id_)) is not None]
        await self._socket.tell(f"set server {s.at} weight {s.weight}" for s, row in known if row.weight != s.weight)
        ready = [*new, *(s for s, row in known if row.maintenance)]
        await self._socket.tell(f"set server {s.at} state ready" for s in ready)

    async def _map_entries(self, wanted: Wanted) -> None:
        held = await self._socket.map_entries(self._map)
        changes = [f"del map {self._map} {key}" for key in held.keys() - wanted.entries.keys()]
        changes += [
            f"{'set' if key in held else 'add'} map {self._map} {key} {value}"
            for key, value in wanted.entries.items()
            if held.get(key) != value
        ]
        await self._socket.tell(changes)

    async def _reload(self) -> None:
        """A new worker process with the new files. `RouterError` when none comes up: the former goes on."""
        before = await self._socket.processes()
        await self._socket.ask("reload")
        loop = asyncio.get_running_loop()
        until_s = loop.time() + RELOAD_LIMIT_S
        while loop.time() < until_s:
            with contextlib.suppress(RouterError):  # the master restarts itself, and its socket is away for a moment
                now = await self._socket.processes()
                if now.worker not in (None, before.worker):
                    return
                if now.failed and now.reloads > before.reloads:
                    break
            await asyncio.sleep(LOOK_S)
        raise RouterError(f"HAProxy did not come up with {self._file}: `haproxy -c` says why; the former goes on")

    async def _worker(self) -> None:
        if (await self._socket.processes()).worker is None:
            raise RouterError("HAProxy has no worker process: its configuration may be at fault")

    async def _ours(self, backends: frozenset[str] | None = None) -> dict[ReplicaId, ServerRow]:
        rows = await self._socket.servers(backends=backends)
        return {ReplicaId(row.server): row for row in rows if row.backend.startswith(PREFIX)}

    async def look(self, book: Book, changed: Scope = None) -> Look:
        processes = await self._socket.processes()
        asked = None if changed is None else _backends(changed)
        there = await self._ours(asked)
        former: list[ServerRow] = []
        for pid in processes.former:
            with contextlib.suppress(RouterError):  # it has ended since
                former += await self._socket.servers(f"@!{pid}", asked)
        differs = await self._difference(book, there, asked)
        return Look(f"master {processes.master}", differs, self._use(book, there, former, changed))

    async def _difference(self, book: Book, there: Mapping[ReplicaId, ServerRow], asked: frozenset[str] | None) -> str:
        wanted = self._wanted.of(book)
        held = {id_: row for id_, row in there.items() if not row.maintenance}
        mine = ((id_, s) for id_, s in wanted.servers.items() if asked is None or s.backend in asked)
        wrong = [id_ for id_, server in mine if not _is(server, held.get(id_))]
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
            same = without_head(self._file.read_bytes()) == without_head(self._config.of(book))
            return same and self._map.read_bytes() == map_text(wanted)
        except OSError:
            return False

    def _use(
        self, book: Book, there: Mapping[ReplicaId, ServerRow], former: Sequence[ServerRow], changed: Scope
    ) -> dict[ReplicaId, EngineUsage]:
        """By endpoint, over all processes; only leaving ones where not all were asked for. One that no process knows
        has nothing in flight."""
        found = {}
        everywhere: dict[str, list[ServerRow]] = {id_: [row] for id_, row in there.items()}
        for row in former:
            everywhere.setdefault(row.server, []).append(row)
        for id_ in (*(book.addresses if changed is None else ()), *book.leaving):
            rows = everywhere.get(id_, [])
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


def _backends(models: Iterable[str]) -> frozenset[str]:
    return frozenset(map(backend_of, models))


def _takes_reload(servers: Mapping[ReplicaId, Server], there: Mapping[ReplicaId, ServerRow]) -> bool:
    """A backend, an address or a backup cannot be changed at run time."""
    rows = [(server, there.get(id_)) for id_, server in servers.items()]
    moved = any(
        row is not None and (row.backend, row.address, row.backup) != (s.backend, s.address, s.backup)
        for s, row in rows
    )
    changes = sum(1 for s, row in rows if row is None or row.maintenance or row.weight != s.weight)
    return moved or changes > MAX_COMMANDS


def _is(server: Server, row: ServerRow | None) -> bool:
    return row is not None and (row.backend, row.address, row.weight, row.backup) == (
        server.backend,
        server.address,
        server.weight,
        server.backup,
    )
