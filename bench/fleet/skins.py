"""HTTP skins over the models of `sim/`: one server that plays any number of agents and routers, wire-true.

Each target has a URL of its own under one port. For benches and for tests of the plane; no engine is started.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from aiohttp import web
from pydantic import BaseModel

from llmgw.ids import NodeId, ReplicaId, RouterId
from llmgw.wire import (
    BEAT_S,
    BatchReply,
    CommandBatch,
    EndpointUse,
    ErrorCode,
    ErrorReply,
    NodeReport,
    RouterState,
    RouterTable,
    TablePatch,
    TableReply,
)
from sim.node import SimNode
from sim.router import SimRouter

STATUS = {ErrorCode.FOREIGN_OWNER: 403}
Heard = Callable[[str, BaseModel], None]


def _nobody(target: str, document: BaseModel) -> None:
    del target, document


class Knock(BaseModel):
    """A call of the floor, which means nothing."""

    rest: str


@dataclass
class FleetSkin:
    """`heard` is called with `node/ID` or `router/ID` and each document that was taken, at the moment of the answer."""

    nodes: dict[NodeId, SimNode]
    routers: dict[RouterId, SimRouter]
    heard: Heard = _nobody
    _changed: dict[str, asyncio.Event] = field(default_factory=dict)
    _silent: dict[str, asyncio.Event] = field(default_factory=dict)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.add_routes(
            [
                web.post("/node/{id}/v1/commands", self._commands),
                web.get("/node/{id}/v1/state", self._node_state),
                web.put("/router/{id}/v1/table", self._put),
                web.patch("/router/{id}/v1/table", self._patch),
                web.get("/router/{id}/v1/state", self._router_state),
                web.route("*", "/floor/{rest:.*}", self._knock),
            ]
        )
        return app

    def tell(self, target: str) -> None:
        """Wake whoever holds a stream to this target: its model changed."""
        event = self._changed.pop(target, None)
        if event is not None:
            event.set()

    # --- faults ---

    def silence(self, target: str) -> None:
        """As if every packet to and from it were dropped, until `speak`: connections stay, nothing moves."""
        self._silent.setdefault(target, asyncio.Event())

    def speak(self, target: str) -> None:
        event = self._silent.pop(target, None)
        if event is not None:
            event.set()

    async def _heard_at_all(self, target: str) -> None:
        while (silent := self._silent.get(target)) is not None:
            await silent.wait()

    def crash(self, node: NodeId, replica: ReplicaId) -> None:
        """An engine dies."""
        self.nodes[node].crash(replica)
        self.tell(f"node/{node}")

    # --- the floor of a bench ---

    async def _knock(self, request: web.Request) -> web.Response:
        await request.read()
        self.heard("floor", Knock(rest=request.match_info["rest"]))
        return web.Response(body=b"{}", content_type="application/json")

    # --- agents ---

    async def _commands(self, request: web.Request) -> web.Response:
        node = self.nodes[NodeId(request.match_info["id"])]
        await self._heard_at_all(f"node/{node.id}")
        batch = CommandBatch.model_validate_json(await request.read())
        now_s = asyncio.get_running_loop().time()
        reply = node.commands(batch, now_s)
        if isinstance(reply, BatchReply):
            self.heard(f"node/{node.id}", batch)
            self._advance(node)
            for delay_s in {node.start_s, node.stop_s, 0.1}:
                asyncio.get_running_loop().call_later(delay_s + 0.001, self._advance, node)
        return _answer(reply)

    def _advance(self, node: SimNode) -> None:
        node.advance(asyncio.get_running_loop().time())
        self.tell(f"node/{node.id}")

    async def _node_state(self, request: web.Request) -> web.StreamResponse:
        node = self.nodes[NodeId(request.match_info["id"])]
        return await self._held(request, f"node/{node.id}", lambda: node_report(node))

    # --- routers ---

    async def _put(self, request: web.Request) -> web.Response:
        router = self.routers[RouterId(request.match_info["id"])]
        await self._heard_at_all(f"router/{router.id}")
        whole = RouterTable.model_validate_json(await request.read())
        return self._taken(router, whole, router.put(whole))

    async def _patch(self, request: web.Request) -> web.Response:
        router = self.routers[RouterId(request.match_info["id"])]
        await self._heard_at_all(f"router/{router.id}")
        patch = TablePatch.model_validate_json(await request.read())
        return self._taken(router, patch, router.patch(patch))

    def _taken(self, router: SimRouter, offer: BaseModel, reply: TableReply | ErrorReply) -> web.Response:
        if isinstance(reply, TableReply):
            self.heard(f"router/{router.id}", offer)
            self.tell(f"router/{router.id}")
        return _answer(reply)

    async def _router_state(self, request: web.Request) -> web.StreamResponse:
        router = self.routers[RouterId(request.match_info["id"])]
        return await self._held(request, f"router/{router.id}", lambda: router_state(router))

    # --- streams ---

    async def _held(self, request: web.Request, target: str, document: Callable[[], BaseModel]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/x-ndjson"})
        await response.prepare(request)
        told = b""
        with contextlib.suppress(ConnectionError):
            while True:
                await self._heard_at_all(target)
                changed = self._changed.setdefault(target, asyncio.Event())
                line = document().model_dump_json().encode()
                await response.write((line if line != told else b"") + b"\n")
                told = line
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), BEAT_S)
        return response


def node_report(node: SimNode) -> NodeReport:
    """The model's report as an agent sends it."""
    seen = node.report()
    inventory = seen.inventory
    if inventory is None:
        raise ValueError("a model always knows its inventory")
    return NodeReport(
        node=seen.node,
        machine_id=seen.machine,
        boot_id=seen.boot,
        instance=seen.instance,
        revision=seen.revision,
        owner=seen.owner,
        token=seen.token,
        inventory=inventory,
        replicas=seen.replicas,
    )


def router_state(router: SimRouter) -> RouterState:
    """The model's state as a router sends it."""
    seen = router.state()
    tables = {seen.held.token.fleet: seen.held} if seen.held is not None else {}
    use = tuple(
        EndpointUse(id=replica, in_flight=count, idle_s=0, withdrawn=replica not in router.table.endpoints)
        for replica, count in router.in_flight.items()
    )
    return RouterState(router=router.id, instance=seen.instance, revision=seen.revision, tables=tables, use=use)


def _answer(reply: BatchReply | TableReply | ErrorReply) -> web.Response:
    status = STATUS.get(reply.code, 409) if isinstance(reply, ErrorReply) else 200
    return web.Response(status=status, body=reply.model_dump_json().encode(), content_type="application/json")


@contextlib.asynccontextmanager
async def serving(skin: FleetSkin) -> AsyncIterator[str]:
    """Serve the skin on a free port of the loopback; its base URL."""
    runner = web.AppRunner(skin.app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
