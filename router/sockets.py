"""Sockets of the data plane, both sides: kept alive by the kernel, so that a peer that is gone without a word is
noticed within half a minute. Its requests would count as in flight, and hold up a drain, for hours otherwise."""

import asyncio
import socket

from aiohttp import AddrInfoType, web

from router.settings import Listen

BACKLOG = 1024

_KEEP_ALIVE: tuple[tuple[tuple[int, int], int], ...] = (
    ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 15),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL), 5),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPCNT), 3),
    ((socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT), 30_000),
)


def to_engine(address: AddrInfoType) -> socket.socket:
    """A socket for a connection to an engine."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    for option, value in _KEEP_ALIVE:
        made.setsockopt(*option, value)
    return made


def listening(listen: Listen) -> socket.socket:
    """The bound socket for clients; accepted ones inherit its keep-alive. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for option, value in _KEEP_ALIVE:
            made.setsockopt(*option, value)
        made.bind(address)
    except OSError:
        made.close()
        raise
    made.setblocking(False)
    return made


async def stop_listening(runner: web.AppRunner, made: socket.socket) -> None:
    """Take no new connections. Those that the kernel has already taken for us are served: closing the socket would
    reset them, and their clients could not know that nobody had read their requests."""
    loop = asyncio.get_running_loop()
    assert runner.server is not None  # noqa: S101 - it is set up
    waiting = []
    while (connection := _next_waiting(made)) is not None:
        waiting.append(connection)
    for site in list(runner.sites):
        await site.stop()
    for connection in waiting:
        await loop.connect_accepted_socket(runner.server, connection)


def _next_waiting(made: socket.socket) -> socket.socket | None:
    try:
        connection, _ = made.accept()
    except OSError:  # none waits
        return None
    connection.setblocking(False)
    return connection
