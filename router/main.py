"""`python -m router.main`: the router as a process. Settings and signals in, exit code out; decides nothing else.

TERM or INT: no new connections, open requests get `--drain-limit-s`, then it ends; a second one ends it at once.
HUP: the key files are read again.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial

import structlog
import uvloop
from aiohttp import web

from router import logs
from router.app import Router, application, control_application, open_router
from router.board import Board
from router.disk import Disk, InUseError
from router.keeper import Keeper
from router.settings import Settings, SettingsError, read
from router.sockets import BACKLOG, listening, stop_listening

_log = structlog.get_logger("llmgw.router")
CLOSE_S = 5.0
"""A follower may take so much longer than the drain limit to end."""


def main(argv: Sequence[str] | None = None) -> int:
    """0 after an orderly end, 2 for bad settings, 1 where it could not begin to serve."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        settings = read(argv, os.environ)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    logs.configure()
    run = _run_alone(settings) if settings.processes == 1 else _run_several(settings, argv)
    try:
        uvloop.run(run)
    except InUseError as error:
        print(f"the router cannot start: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        listen = settings.listen
        print(f"the router cannot start on {listen.host}:{listen.port}: {error}", file=sys.stderr)
        return 1
    return 0


async def _run_alone(settings: Settings) -> None:
    """Control API and clients in this process."""
    with listening(settings.listen) as clients:
        router = open_router(settings)
        runner = _runner(application(router), settings)
        ending = _on_signals(router.reload_keys)
        await runner.setup()
        try:
            await web.SockSite(runner, clients, backlog=BACKLOG).start()
            _say_hello(settings, clients, router)
            await ending.wait()
            _log.info("router closing", drain_limit_s=settings.drain_limit_s)
            router.close()
            await stop_listening(runner, clients)
        finally:
            await runner.cleanup()


async def _run_several(settings: Settings, argv: Sequence[str]) -> None:
    """The control API here, behind a port of this machine alone; clients in followers, behind the public one."""
    with listening(settings.listen) as clients:
        clients.listen(BACKLOG)
        disk = Disk(settings.state_dir)
        keeper = Keeper(clients, Board.create(settings.state_dir, settings.processes), argv, settings.processes)
        router = open_router(settings, disk, keeper)

        def reload() -> None:
            router.reload_keys()
            keeper.reload()

        runner = _runner(control_application(router, partial(keeper.count, router)), settings)
        ending = _on_signals(reload)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            await keeper.start(router, runner.addresses[0][1])
            _say_hello(settings, clients, router)
            await ending.wait()
            _log.info("router closing", drain_limit_s=settings.drain_limit_s)
            router.close()
            clients.close()  # from now on the followers alone decide how long it is open
        finally:
            await keeper.close(settings.drain_limit_s + CLOSE_S)
            await runner.cleanup()


def _runner(app: web.Application, settings: Settings) -> web.AppRunner:
    return web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=settings.drain_limit_s)


def _on_signals(reload: Callable[[], None]) -> asyncio.Event:
    """What is set when the router is to end."""
    loop, ending = asyncio.get_running_loop(), asyncio.Event()

    def end() -> None:
        if ending.is_set():
            os._exit(1)
        ending.set()

    def read_again() -> None:
        try:
            reload()
            _log.info("keys read again")
        except (OSError, ValueError) as error:
            _log.error("keys not read again: the old ones stay", problem=str(error))

    for number, action in ((signal.SIGTERM, end), (signal.SIGINT, end), (signal.SIGHUP, read_again)):
        loop.add_signal_handler(number, action)
    return ending


def _say_hello(settings: Settings, clients: socket.socket, router: Router) -> None:
    host, port = clients.getsockname()[:2]
    if router.control_gate.open:
        _log.warning("the control API is open to everybody on this machine: set --token-file")
    _log.info(
        "router listening",
        router=settings.router_id,
        host=host,
        port=port,
        processes=settings.processes,
        state_dir=str(settings.state_dir),
        fleets=sorted(router.tables.held),
    )


if __name__ == "__main__":
    sys.exit(main())
