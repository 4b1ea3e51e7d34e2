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

import structlog
import uvloop
from aiohttp import web

from router import logs
from router.app import KEEP_ALIVE_OPTIONS, Router, application, open_router
from router.disk import InUseError
from router.settings import Listen, Settings, SettingsError, read

_log = structlog.get_logger("llmgw.router")
BACKLOG = 1024


def main(argv: Sequence[str] | None = None) -> int:
    """0 after an orderly end, 2 for bad settings, 1 where it could not begin to serve."""
    try:
        settings = read(sys.argv[1:] if argv is None else argv, os.environ)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    logs.configure()
    try:
        uvloop.run(_run(settings))
    except InUseError as error:
        print(f"the router cannot start: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        listen = settings.listen
        print(f"the router cannot start on {listen.host}:{listen.port}: {error}", file=sys.stderr)
        return 1
    return 0


async def _run(settings: Settings) -> None:
    with _listening(settings.listen) as listening:
        router = open_router(settings)
        runner = web.AppRunner(
            application(router),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=settings.drain_limit_s,
        )
        ending = asyncio.Event()
        _on_signals(ending, router)
        await runner.setup()
        try:
            await web.SockSite(runner, listening, backlog=BACKLOG).start()
            _say_hello(settings, listening, router)
            await ending.wait()
            _log.info("router closing", drain_limit_s=settings.drain_limit_s)
            router.close()
        finally:
            await runner.cleanup()


def _listening(listen: Listen) -> socket.socket:
    """The listening socket; accepted ones inherit its keep-alive, so clients that are gone do not stay in flight."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for option, value in KEEP_ALIVE_OPTIONS:
            made.setsockopt(*option, value)
        made.bind(address)
    except OSError:
        made.close()
        raise
    made.setblocking(False)
    return made


def _on_signals(ending: asyncio.Event, router: Router) -> None:
    loop = asyncio.get_running_loop()

    def end() -> None:
        if ending.is_set():
            os._exit(1)
        ending.set()

    def reload() -> None:
        try:
            router.reload_keys()
            _log.info("keys read again")
        except (OSError, ValueError) as error:
            _log.error("keys not read again: the old ones stay", problem=str(error))

    actions: tuple[tuple[signal.Signals, Callable[[], None]], ...] = (
        (signal.SIGTERM, end),
        (signal.SIGINT, end),
        (signal.SIGHUP, reload),
    )
    for number, action in actions:
        loop.add_signal_handler(number, action)


def _say_hello(settings: Settings, listening: socket.socket, router: Router) -> None:
    host, port = listening.getsockname()[:2]
    if router.control_gate.open:
        _log.warning("the control API is open to everybody on this machine: set --token-file")
    _log.info(
        "router listening",
        router=settings.router_id,
        host=host,
        port=port,
        state_dir=str(settings.state_dir),
        fleets=sorted(router.tables.held),
    )


if __name__ == "__main__":
    sys.exit(main())
