"""A small agent: it reports the stubs as its replicas, with how many requests each engine has running."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer

from llmgw.ids import Fingerprint, ModelName, NodeId, ReplicaId
from llmgw.wire import EngineState, EngineUsage, Mark, NodeReport, ReplicaReport
from tests.sinks.stubs import Stub

BEAT_S = 0.5


@asynccontextmanager
async def agent(stubs: Sequence[Stub]) -> AsyncIterator[str]:
    """Its URL."""

    async def state(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(_report(stubs).model_dump_json().encode() + b"\n")
        while True:
            await asyncio.sleep(BEAT_S)
            await response.write(b"\n")

    app = web.Application()
    app.add_routes([web.get("/v1/state", state)])
    async with TestServer(app) as server:
        yield f"http://127.0.0.1:{server.port}"


def _report(stubs: Sequence[Stub]) -> NodeReport:
    return NodeReport(
        node=NodeId("n"), machine_id="m", boot_id="b", instance="i", revision=1, replicas=tuple(map(_row, stubs))
    )


def _row(stub: Stub) -> ReplicaReport:
    return ReplicaReport(
        replica=ReplicaId(stub.id),
        model=ModelName(stub.model),
        mark=Mark(installation="home", fleet="f", replica=ReplicaId(stub.id), epoch=1, seq=1),
        fingerprint=Fingerprint("f"),
        attempt=1,
        state=EngineState.READY,
        url=stub.url,
        usage=EngineUsage(in_flight=stub.running, idle_s=0.0 if stub.running else 60.0),
    )
