"""Shepherd Model Gateway, told through its worker API, or through its discovery file.

Only workers that carry our label are touched through the API; the file is ours as a whole. A worker that smg cannot
reach is not listed by it: that is told as a difference when it has lasted.
"""

import asyncio
import contextlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from activities.sinks.book import Book, Place, write_whole
from activities.sinks.counting import Counting
from activities.sinks.kept import Control, Look, Scope
from activities.sinks.sink import RouterError
from activities.sinks.smg_api import FLEET_LABEL, REPLICA_LABEL, Worker, WorkerApi, WorkerModel, WorkerSpec, api_of
from llmgw.ids import ReplicaId
from llmgw.sentences import names_shown
from llmgw.wire import Endpoint, EngineUsage, Token

APPLY_LIMIT_S = 8.0
LOOK_S = 0.03
LISTED_WITHIN_S = 10.0
"""How long an added worker may take to be listed."""
LONGEST_PATIENCE_S = 600.0


@contextlib.asynccontextmanager
async def through_api(place: Place) -> AsyncIterator[Control]:
    async with api_of(place) as api:
        yield ApiControl(api)


@contextlib.asynccontextmanager
async def through_file(place: Place) -> AsyncIterator[Control]:
    async with api_of(place) as api:
        yield FileControl(api, place.path("file"))


class Absent:
    """Which workers that were told and are not listed count as lost: smg was restarted, or cannot reach them.

    After each telling workers are given some time to be listed, and more each time that was in vain. Once all were
    listed, or at the first look of all, nobody has to be waited for.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._token: Token | None = None
        self._told_s = float("-inf")
        self._patience_s = LISTED_WITHIN_S
        self._in_vain = False

    def told(self, token: Token) -> None:
        """The router was told a moment ago."""
        self._token, self._told_s = token, self._clock()

    def lost(self, token: Token, absent: Sequence[ReplicaId]) -> Sequence[ReplicaId]:
        """Those of the absent that should have been listed by now."""
        if self._token not in (None, token):
            self._told_s = self._clock()
            self._patience_s = min(LONGEST_PATIENCE_S, 2 * self._patience_s) if self._in_vain else LISTED_WITHIN_S
        self._token = token
        if not absent:
            self._told_s = float("-inf")
        is_late = self._clock() - self._told_s >= self._patience_s
        self._in_vain = bool(absent) and is_late
        return absent if is_late else ()


class _Control(ABC):
    """What both ways share: waiting until nothing withdrawn is picked, and what the list says of use."""

    def __init__(self, api: WorkerApi) -> None:
        self._api = api
        self._counting = Counting()
        self._absent = Absent()

    async def _withdrawn(self, book: Book) -> None:
        """Wait until no worker is picked that is not in the book."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + APPLY_LIMIT_S
        while strange := self._strange(book, await self._api.listed()):
            if loop.time() >= until_s:
                raise RouterError(f"smg still picks {names_shown(sorted(w.url for w in strange))}")
            await asyncio.sleep(LOOK_S)

    @abstractmethod
    def _strange(self, book: Book, listed: Sequence[Worker]) -> list[Worker]:
        """Workers that are picked and should not be."""

    def _used(self, id_: ReplicaId, worker: Worker, outcomes: Mapping[str, int]) -> EngineUsage:
        return self._counting.use(id_, counter=outcomes.get(worker.url, 0), in_flight=worker.load)


class ApiControl(_Control):
    async def tell(self, book: Book, before: Book | None) -> None:  # noqa: ARG002 - what it holds is read from it
        listed = await self._api.listed()
        for worker in self._strange(book, listed):
            await self._api.remove(worker.id)
        by_url = {worker.url: worker for worker in listed}
        for endpoint in book.reachable():
            spec = _spec(book, endpoint)
            if endpoint.url not in by_url:
                await self._api.add(spec)
            elif not _is(by_url[endpoint.url], spec):
                await self._api.replace(by_url[endpoint.url].id, spec)
        self._absent.told(book.token)
        await self._settled(book)

    async def _settled(self, book: Book) -> None:
        """Withdrawn workers drain and listed ones are as told; new ones may still be on their way."""
        await self._withdrawn(book)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + APPLY_LIMIT_S
        while wrong := self._wrong(book, await self._api.listed()):
            if loop.time() >= until_s:
                raise RouterError(f"smg does not take {names_shown(sorted(wrong))} as told")
            await asyncio.sleep(LOOK_S)

    def _strange(self, book: Book, listed: Sequence[Worker]) -> list[Worker]:
        ours = [w for w in listed if REPLICA_LABEL in w.labels and not w.is_draining]
        return [w for w in ours if w.labels[REPLICA_LABEL] not in book.addresses]

    def _wrong(self, book: Book, listed: Sequence[Worker]) -> list[ReplicaId]:
        by_url = {worker.url: worker for worker in listed}
        told = ((e.id, by_url.get(e.url), _spec(book, e)) for e in book.reachable())
        return [id_ for id_, worker, spec in told if worker is not None and not _is(worker, spec)]

    async def look(self, book: Book, changed: Scope = None) -> Look:  # noqa: ARG002 - it is told of all at once
        listed, outcomes = await self._api.listed(), await self._api.outcomes()
        urls = {worker.url for worker in listed}
        missing = self._absent.lost(book.token, [e.id for e in book.reachable() if e.url not in urls])
        strange, wrong = self._strange(book, listed), self._wrong(book, listed)
        said = [
            f"workers {names_shown(sorted(missing))} are not listed: it may not reach them" if missing else "",
            f"workers {names_shown(sorted(wrong))} are not as told" if wrong else "",
            f"{names_shown(sorted(w.url for w in strange))} should be gone" if strange else "",
        ]
        return Look("smg", "; ".join(filter(None, said)), self._use(book, listed, outcomes))

    def _use(self, book: Book, listed: Sequence[Worker], outcomes: Mapping[str, int]) -> dict[ReplicaId, EngineUsage]:
        """A draining worker is listed until long after its last request, so one that is not listed has none."""
        workers = {w.labels[REPLICA_LABEL]: w for w in listed if REPLICA_LABEL in w.labels}
        found = {}
        for id_ in (*book.addresses, *book.leaving):
            worker = workers.get(id_)
            found[id_] = EngineUsage(in_flight=0, idle_s=0.0) if worker is None else self._used(id_, worker, outcomes)
        self._counting.keep(set(found))
        return found

    async def sweep(self, book: Book, idle: frozenset[ReplicaId]) -> frozenset[ReplicaId]:  # noqa: ARG002
        """smg forgets a draining worker by itself; taking it out any sooner is not possible."""
        return idle


class FileControl(_Control):
    def __init__(self, api: WorkerApi, file: Path) -> None:
        super().__init__(api)
        self._file = file

    async def tell(self, book: Book, before: Book | None) -> None:  # noqa: ARG002 - the file is always whole
        write_whole(self._file, _manifest(book))
        self._absent.told(book.token)
        await self._withdrawn(book)

    def _strange(self, book: Book, listed: Sequence[Worker]) -> list[Worker]:
        wanted = {e.url for e in book.reachable()}
        return [w for w in listed if not w.is_draining and w.url not in wanted]

    async def look(self, book: Book, changed: Scope = None) -> Look:  # noqa: ARG002 - it is told of all at once
        listed, outcomes = await self._api.listed(), await self._api.outcomes()
        picked = {worker.url for worker in listed if not worker.is_draining}
        missing = self._absent.lost(book.token, [e.id for e in book.reachable() if e.url not in picked])
        strange = self._strange(book, listed)
        said = [
            "" if self._is_on_disk(book) else f"{self._file} was changed by somebody else",
            f"workers {names_shown(sorted(missing))} are not listed: it may not reach them" if missing else "",
            f"{names_shown(sorted(w.url for w in strange))} should be gone" if strange else "",
        ]
        return Look("smg", "; ".join(filter(None, said)), self._use(book, listed, outcomes))

    def _is_on_disk(self, book: Book) -> bool:
        return self._file.exists() and self._file.read_bytes() == _manifest(book)

    def _use(self, book: Book, listed: Sequence[Worker], outcomes: Mapping[str, int]) -> dict[ReplicaId, EngineUsage]:
        """Of what is listed; a draining worker is listed for seconds only, after that its engine is asked."""
        workers = {worker.url: worker for worker in listed}
        urls = {e.id: e.url for e in book.reachable()} | {id_: g.endpoint.url for id_, g in book.leaving.items()}
        found = {id_: self._used(id_, workers[url], outcomes) for id_, url in urls.items() if url in workers}
        self._counting.keep(set(found))
        return found

    async def sweep(self, book: Book, idle: frozenset[ReplicaId]) -> frozenset[ReplicaId]:  # noqa: ARG002
        return idle


def _spec(book: Book, endpoint: Endpoint) -> WorkerSpec:
    """The engine's own name is the worker's model; all other public names are its aliases, which smg rewrites."""
    aliases = tuple(sorted(name for name in endpoint.models if name != endpoint.served_name))
    labels = {REPLICA_LABEL: str(endpoint.id), FLEET_LABEL: book.token.fleet}
    models = (WorkerModel(id=endpoint.served_name, aliases=aliases),)
    return WorkerSpec(url=endpoint.url, models=models, labels=labels)


def _is(worker: Worker, spec: WorkerSpec) -> bool:
    models = tuple(model.model_copy(update={"aliases": tuple(sorted(model.aliases))}) for model in worker.models)
    return not worker.is_draining and models == spec.models and spec.labels.items() <= worker.labels.items()


def _manifest(book: Book) -> bytes:
    """The discovery file: a worker's address and its model, and no further name."""
    workers = [{"id": e.id, "url": e.url, "model_id": e.models[0]} for e in book.reachable()]
    return json.dumps({"version": 1, "workers": workers}).encode() + b"\n"
