"""The router put together: its control API, and its data plane over one client session. One process may have both."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import structlog
from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web

from router.auth import Gate
from router.control import Control, unauthorized
from router.counts import Counts, taken
from router.description import describe
from router.disk import Disk
from router.metrics import CONTENT_TYPE, Count, Metrics
from router.paths import PATHS
from router.proxy import SIDE_DOOR, Hold, Limits, Proxy
from router.settings import Settings
from router.sockets import to_engine
from router.state import StateStream
from router.tables import Others, Tables
from router.traffic import Traffic

KEEP_ALIVE_S = 4.0
"""Idle connections to engines are closed before engines do it: uvicorn's and cpp-httplib's default is 5 s."""

TICK_S = 1.0
"""How late the plane may learn that an endpoint is idle, or used again."""

_AUTO_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""What the client session would add by itself: engines get what clients sent."""

CONTROL_PATHS = ("/v1/table", "/v1/state", "/healthz", "/readyz", "/metrics", "/openapi.json")

_log = structlog.get_logger("llmgw.router")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Router:
    """What one router holds. `closing`: no longer ready, and about to end."""

    settings: Settings
    control_gate: Gate
    client_gate: Gate
    disk: Disk
    traffic: Traffic
    tables: Tables
    state: StateStream
    closing: bool = False

    def reload_keys(self) -> None:
        """Read both key files again. Raises as `router.auth.read_keys`; a bad file leaves its keys as they were."""
        self.control_gate.reload()
        self.client_gate.reload()

    def close(self) -> None:
        """Stop being ready and end the held streams; open requests go on."""
        self.closing = True
        self.state.close()


def open_router(settings: Settings, disk: Disk | None = None, others: Others | None = None) -> Router:
    """Keys and tables read from disk; called inside the running loop, before it serves.

    Raises OSError or ValueError for key files, `router.disk.InUseError` where another router has the state directory.
    """
    control_gate, client_gate = Gate(settings.token_file), Gate(settings.api_keys_file)
    disk = Disk(settings.state_dir) if disk is None else disk
    traffic = Traffic(time.monotonic)
    tables = Tables(disk, traffic, others)
    for aside in tables.load():
        _log.error(
            "a table on disk cannot be understood and is set aside: this fleet has none until its plane sends one",
            path=str(aside.path),
            problem=aside.reason,
        )
    state = StateStream(settings.router_id, uuid.uuid4().hex, _version(), tables, traffic)
    return Router(settings, control_gate, client_gate, disk, traffic, tables, state)


def application(router: Router) -> web.Application:
    """Both faces of a router of one process."""

    async def count() -> Counts:
        return await asyncio.to_thread(taken, router.traffic)

    app = control_application(router, count)
    add_data_plane(app, router.settings, router.traffic, router.client_gate)
    return app


def control_application(router: Router, count: Count) -> web.Application:
    """The control API. Its clean-up lets go of the state directory."""
    app = web.Application(client_max_size=router.settings.max_body_bytes)
    control, metrics = Control(router.tables), Metrics(router.traffic, router.tables, count)
    guard = _guard(router.control_gate)
    app.router.add_put("/v1/table", guard(control.put_table))
    app.router.add_patch("/v1/table", guard(control.patch_table))
    app.router.add_get("/v1/state", guard(router.state.serve))
    app.router.add_get("/healthz", _healthy)
    app.router.add_get("/readyz", _readiness(router))
    app.router.add_get("/metrics", _metrics(metrics))
    app.router.add_get("/openapi.json", _description)

    async def lifetime(_: web.Application) -> AsyncIterator[None]:
        yield
        router.disk.close()

    app.cleanup_ctx.append(lifetime)
    app.cleanup_ctx.append(_ticking(router.traffic))
    return app


def add_data_plane(app: web.Application, settings: Settings, traffic: Traffic, gate: Gate) -> None:
    """Routes of clients, over a session that lives as long as the application. Whatever else is asked for is 404, so
    it comes after all other routes. To be called inside the running loop."""
    session = ClientSession(
        connector=TCPConnector(limit=0, ttl_dns_cache=10, keepalive_timeout=KEEP_ALIVE_S, socket_factory=to_engine),
        timeout=ClientTimeout(total=None, sock_connect=settings.connect_timeout_s),
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=_AUTO_HEADERS,
        trust_env=False,
    )
    hold = Hold(settings.hold_limit_s, settings.hold_requests)
    limits = Limits(settings.max_body_bytes, settings.body_limit_s)
    proxy = Proxy(traffic, session, gate, hold, limits, settings.access_log)
    for path in PATHS:
        app.router.add_post(path, proxy.complete)
    app.router.add_get("/v1/models", proxy.list_models)
    app.router.add_get("/v1/models/{name:.+}", proxy.show_model)
    for path in PATHS:
        app.router.add_post(SIDE_DOOR + path, proxy.complete)
    app.router.add_get(f"{SIDE_DOOR}/v1/models", proxy.list_models)
    app.router.add_get(f"{SIDE_DOOR}/health", _healthy)
    app.router.add_route("*", "/{path:.*}", proxy.unknown_path)

    async def lifetime(_: web.Application) -> AsyncIterator[None]:
        yield
        await session.close()

    app.cleanup_ctx.append(lifetime)


def _ticking(traffic: Traffic) -> Callable[[web.Application], AsyncIterator[None]]:
    async def tick() -> None:
        while True:
            await asyncio.sleep(TICK_S)
            traffic.tick()

    async def lifetime(_: web.Application) -> AsyncIterator[None]:
        ticking = asyncio.create_task(tick(), name="tick")
        yield
        ticking.cancel()

    return lifetime


def _guard(gate: Gate) -> Callable[[Handler], Handler]:
    def guarded(handler: Handler) -> Handler:
        async def checked(request: web.Request) -> web.StreamResponse:
            if not gate.admit(request.headers.get("Authorization")):
                return unauthorized()
            return await handler(request)

        return checked

    return guarded


async def _healthy(_: web.Request) -> web.Response:
    """Alive: says nothing of tables."""
    return web.Response(text="ok\n")


def _readiness(router: Router) -> Handler:
    """200 while it has a table to serve from and is not about to end."""

    async def ready(_: web.Request) -> web.Response:
        if router.closing:
            return web.Response(status=503, text="closing\n")
        if not router.tables.held:
            return web.Response(status=503, text="no table yet\n", headers={"Retry-After": "5"})
        return web.Response(text="ready\n")

    return ready


def _metrics(metrics: Metrics) -> Handler:
    async def scrape(_: web.Request) -> web.Response:
        return web.Response(body=await metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    return scrape


async def _description(_: web.Request) -> web.Response:
    return web.json_response(describe(PATHS, _version()))


def _version() -> str:
    try:
        return version("llmgw")
    except PackageNotFoundError:
        return "0"
