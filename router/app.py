"""The router put together: one aiohttp application over one table store, one set of counts and one client session."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
import asyncio
import socket

import structlog
from aiohttp import AddrInfoType, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web

from router import control
from router.auth import Keys, read_keys
from router.control import Control
from router.disk import Disk
from router.metrics import CONTENT_TYPE, Metrics
from router.proxy import PATHS, Proxy
from router.settings import Settings
from router.state import StateStream
from router.tables import Tables
from router.traffic import Traffic

KEEP_ALIVE_S = 4.0
"""Idle connections to engines are closed before the engines do it: uvicorn's and cpp-httplib's default is 5 s."""

_log = structlog.get_logger("llmgw.router")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Router:
    """Everything one router process holds. Made by `open_router`; `closing` turns its readiness off."""

    settings: Settings
    disk: Disk
    tables: Tables
    traffic: Traffic
    state: StateStream
    control: Control
    metrics: Metrics
    control_keys: Keys | None
    api_keys: Keys | None
    closing: bool = False

    def reload_keys(self) -> None:
        """Read the key files again; a file that cannot be read or holds no key changes nothing. Raises as
        `read_keys`."""
        control_keys, api_keys = _keys(self.settings)
        self.control_keys, self.api_keys = control_keys, api_keys

    def close(self) -> None:
        """Stop being ready and end the held streams; requests go on."""
        self.closing = True
        self.state.close()


def open_router(settings: Settings) -> Router:
    """Read keys and tables from disk; inside a running event loop. Raises OSError, ValueError, `router.disk.InUse`."""
    control_keys, api_keys = _keys(settings)
    disk = Disk(settings.state_dir)
    traffic = Traffic(asyncio.get_running_loop().time)
    tables = Tables(disk, traffic)
    for aside in tables.load():
        _log.error("table set aside: counts as none until the control plane sends it again", path=str(aside.path),
                   problem=aside.reason)
    state = StateStream(settings.router_id, uuid.uuid4().hex, _version(), tables, traffic)
    return Router(
        settings, disk, tables, traffic, state, Control(tables), Metrics(traffic, tables), control_keys, api_keys
    )
