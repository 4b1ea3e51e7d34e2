"""The router put together: one aiohttp application over one table store, one set of counts and one client session."""

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import structlog
from aiohttp import AddrInfoType, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web

from router.auth import Gate
from router.control import Control, unauthorized
from router.description import describe
from router.disk import Disk
from router.metrics import CONTENT_TYPE, Metrics
from router.proxy import PATHS, Hold, Proxy
from router.settings import Settings
from router.state import StateStream
from router.tables import Tables
from router.traffic import Traffic

KEEP_ALIVE_S = 4.0
"""Idle connections to engines are closed before engines do it: uvicorn's and cpp-httplib's default is 5 s."""

TICK_S = 1.0
"""How late the plane may learn that an endpoint is idle, or used again."""

_AUTO_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""What the client session would add by itself: engines get what clients sent."""

_log = structlog.get_logger("llmgw.router")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Router:
    """What one router process holds. `closing`: no longer ready, and about to end."""

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


def open_router(settings: Settings) -> Router:
    """Keys and tables read from disk; called inside the running loop, before it serves.

    Raises OSError or ValueError for key files, `router.disk.InUseError` where another router has the state directory.
    """
    control_gate, client_gate = Gate(settings.token_file), Gate(settings.api_keys_file)
    disk = Disk(settings.state_dir)
    traffic = Traffic(asyncio.get_running_loop().time)
    tables = Tables(disk, traffic)
    for aside in tables.load():
        _log.error(
            "a table on disk cannot be understood and is set aside: this fleet has none until its plane sends one",
            path=str(aside.path),
            problem=aside.reason,
        )
    state = StateStream(settings.router_id, uuid.uuid4().hex, _version(), tables, traffic)
    return Router(settings, control_gate, client_gate, disk, traffic, tables, state)


def application(router: Router) -> web.Application:
    """The HTTP face of a router. Its clean-up closes the client session and lets go of the state directory."""
    app = web.Application(client_max_size=router.settings.max_body_bytes)
    control, metrics = Control(router.tables), Metrics(router.traffic, router.tables)
    guard = _guard(router.control_gate)
    app.router.add_put("/v1/table", guard(control.put_table))
    app.router.add_patch("/v1/table", guard(control.patch_table))
    app.router.add_get("/v1/state", guard(router.state.serve))
    app.router.add_get("/healthz", _healthy)
    app.router.add_get("/readyz", _readiness(router))
    app.router.add_get("/metrics", _metrics(metrics))
    app.router.add_get("/openapi.json", _description)
    app.cleanup_ctx.append(_data_plane(app, router))
    return app


def _data_plane(app: web.Application, router: Router) -> Callable[[web.Application], AsyncIterator[None]]:
    """Routes of the data plane, over a session that lives as long as the application."""
    settings = router.settings
    session = ClientSession(
        connector=TCPConnector(limit=0, ttl_dns_cache=10, keepalive_timeout=KEEP_ALIVE_S, socket_factory=_socket),
        timeout=ClientTimeout(total=None, sock_connect=settings.connect_timeout_s),
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=_AUTO_HEADERS,
        trust_env=False,
    )
    hold = Hold(settings.hold_limit_s, settings.hold_requests)
    proxy = Proxy(router.traffic, session, router.client_gate, hold, settings.max_body_bytes, settings.access_log)
    for path in PATHS:
        app.router.add_post(path, proxy.complete)
    app.router.add_get("/v1/models", proxy.list_models)
    app.router.add_route("*", "/{path:.*}", proxy.unknown_path)

    async def lifetime(_: web.Application) -> AsyncIterator[None]:
        ticking = asyncio.create_task(_tick(router.traffic), name="tick")
        yield
        ticking.cancel()
        await session.close()
        router.disk.close()

    return lifetime


async def _tick(traffic: Traffic) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        traffic.tick()


def _socket(address: AddrInfoType) -> socket.socket:
    """A socket to an engine that notices within half a minute when the other machine is gone without a word: its
    requests would count as in flight, and hold up a drain, until the kernel's own limit of hours."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    for option, value in KEEP_ALIVE_OPTIONS:
        made.setsockopt(*option, value)
    return made


KEEP_ALIVE_OPTIONS: tuple[tuple[tuple[int, int], int], ...] = (
    ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 15),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL), 5),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPCNT), 3),
    ((socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT), 30_000),
)


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
