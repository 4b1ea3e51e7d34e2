"""The plane's side of the conformance test: it tells through the sink and sees through the pool, as a worker does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from activities.outward import Callers
from activities.pool import Pool
from activities.settings import Outward
from activities.sinks.kinds import sinks, watching
from activities.sinks.sink import RouterError, Sink
from llmgw import table as tables
from llmgw.calls import Delta, PublishCall
from llmgw.ids import ReplicaId, RouterId
from llmgw.observation import RouterSeen, Target, Targets
from llmgw.table import Table, TableChange
from llmgw.wire import Endpoint, RouterTable, TableModel, TableReply, Token
from tests.sinks.rigs import Rig

SEEN_LIMIT_S = 60.0
TRIES = 4
FLEET = "f"


@dataclass
class Plane:
    """One plane with one router."""

    rig: Rig
    sink: Sink
    pool: Pool
    table: Table = tables.EMPTY
    seq: int = 0
    seen: RouterSeen | None = None
    trouble: str = ""
    agent_url: str = ""
    _cursor: int = 0
    _revision: int = 1

    def call(self, seq: int, delta: Delta | None = None, installation: str = "home") -> PublishCall:
        token = Token(installation=installation, fleet=FLEET, epoch=1, seq=seq)
        return PublishCall(
            router=RouterId("r"),
            kind=self.rig.kind,
            url=self.rig.url,
            token=token,
            revision=seq,
            delta=delta,
            settings=dict(self.rig.settings),
        )

    async def put(self, models: Iterable[TableModel], endpoints: Iterable[Endpoint]) -> TableReply:
        """Tell the whole table."""
        self.table = tables.build(models, endpoints)
        return await self.put_again()

    async def put_again(self) -> TableReply:
        """Tell the table in force anew, as the backstop does."""

        def put() -> Awaitable[TableReply]:
            call = self.call(self.seq)
            return self.sink.put(call, self.whole(call))

        return await self._until_told(put)

    async def _until_told(self, tell: Callable[[], Awaitable[TableReply]]) -> TableReply:
        """As a lane does: a failed call is made again, under a new token. What is refused stays refused."""
        for _ in range(TRIES):
            self.seq += 1
            try:
                return await tell()
            except RouterError as error:
                last = error
        raise last

    async def patch(
        self, put: Iterable[Endpoint] = (), drop: Iterable[str] = (), models: Iterable[TableModel] = ()
    ) -> TableReply:
        """Tell a difference."""
        dropped = tuple(ReplicaId(id_) for id_ in drop)
        change = TableChange(put_models=tuple(models), put_endpoints=tuple(put), drop_endpoints=dropped)
        after = tables.apply(self.table, change)
        delta = Delta(
            base=self.table.digest,
            digest=after.digest,
            put_models=change.put_models,
            put_endpoints=change.put_endpoints,
            drop_endpoints=dropped,
        )
        reply = await self._until_told(lambda: self.sink.patch(self.call(self.seq, delta)))
        self.table = after
        return reply

    async def sees(self, test: Callable[[RouterSeen], bool]) -> RouterSeen:
        """Wait until the router is seen so."""
        async with asyncio.timeout(SEEN_LIMIT_S):
            while self.seen is None or not test(self.seen):
                observation = await self.pool.take(self._cursor)
                self._cursor = observation.cursor
                for trouble in observation.troubles:
                    self.trouble = trouble.text
                for seen in observation.routers:
                    self.seen = seen
        return self.seen

    def look_anew(self) -> None:
        """Forget what was seen, as after the observer changed."""
        self.seen, self._revision = None, self._revision + 1
        self.pool.aim({}, Targets(revision=self._revision))
        self.aim()

    def aim(self) -> None:
        target = Target(id="router/r", url=self.rig.url, kind=self.rig.kind, settings=dict(self.rig.settings))
        node = Target(id="node/n", url=self.agent_url)
        self.pool.aim({target.id: target, node.id: node}, Targets(revision=self._revision))

    def whole(self, call: PublishCall) -> RouterTable:
        """The table in force, under the call's token."""
        return RouterTable(
            token=call.token,
            digest=self.table.digest,
            models=tuple(self.table.models.values()),
            endpoints=tuple(self.table.endpoints.values()),
        )

    def holds_table(self, seen: RouterSeen) -> bool:
        """Whether it says that it holds exactly the table in force."""
        return seen.held is not None and seen.held.digest == self.table.digest


@asynccontextmanager
async def plane_of(rig: Rig, agent_url: str) -> AsyncIterator[Plane]:
    outward = Outward()
    callers = Callers(outward)
    pool = Pool(FLEET, outward, aiohttp.ClientSession(), watching(outward))
    plane = Plane(rig, sinks(callers)[rig.kind], pool, agent_url=agent_url)
    plane.aim()
    yield plane
    await pool.close()
    await callers.close()
