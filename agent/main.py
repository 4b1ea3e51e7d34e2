"""Runs the node agent: `python -m agent.main --node-id … --state-dir …` (`--help` tells all flags).

Its end is not its engines' end: SIGTERM and SIGINT stop the agent alone, and the next one on the same state folder
takes the engines over.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator

import structlog
import uvicorn
from starlette.types import ASGIApp

from agent.app import build_app
from agent.auth import TokenSource, token_source
from agent.node import Node, StateInUse, log
from agent.ports import overlap_with_clients
from agent.settings import Settings, SettingsError, is_loopback, read_settings
from agent.tls import Rotation, server_context

GRACE_S = 3
"""How long open requests may take when the agent ends."""


def main() -> None:
    """Serve until told to end. Exit codes: 0 told to, 1 cannot run, 2 bad settings."""
    try:
        settings = read_settings(sys.argv[1:], os.environ)
    except SettingsError as error:
        print("llmgw agent: the settings are not usable:", file=sys.stderr)
        for problem in error.problems:
            print(f"  {problem}", file=sys.stderr)
        sys.exit(2)
    set_up_logging()
    try:
        asyncio.run(serve(settings))
    except (StateInUse, OSError) as error:
        print(f"llmgw agent: {error}", file=sys.stderr)
        sys.exit(1)


async def serve(settings: Settings) -> None:
    """Own the node until SIGTERM or SIGINT. Raises StateInUse, OSError (the address is taken)."""
    listening = bind(settings)
    node = Node(settings, os.environ)
    try:
        await node.open()
        tokens = tokens_of(settings)
        server = AgentServer(node, build_app(node, tokens))
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, server.end)
        _say_what_runs(node, listening)
        await server.serve(sockets=[listening])
    finally:
        await node.close()
        listening.close()


def tokens_of(settings: Settings) -> TokenSource | None:
    """Those of the file, else those of the environment; None when there are none: then the network is the guard."""
    if settings.token_file is not None:
        return token_source(settings.token_file)
    return (lambda: settings.tokens) if settings.tokens else None


def bind(settings: Settings) -> socket.socket:
    """The address, taken before anything is touched. Raises OSError that names it."""
    family = socket.AF_INET6 if ":" in settings.listen_host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.listen_host, settings.listen_port))
    except OSError as error:
        listening.close()
        raise OSError(f"--listen {settings.listen_host}:{settings.listen_port}: {error.strerror}") from error
    return listening


class AgentServer(uvicorn.Server):
    """A server that lets held streams end when it does, and leaves signals to `serve`."""

    def __init__(self, node: Node, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._node = node
        if (tls := node.settings.tls) is not None:
            self.config.load()
            self.config.ssl = server_context(tls)
            node.watch_certificate(Rotation(tls, self.config.ssl))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def end(self) -> None:
        self._node.closing = True
        self._node.revisions.wake_all()
        self.should_exit = True


def set_up_logging() -> None:
    """One JSON object a line on stderr; readable lines where that is a terminal."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    on_terminal = sys.stderr.isatty()
    last: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if on_terminal else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            last,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _say_what_runs(node: Node, listening: socket.socket) -> None:
    settings = node.settings
    report = node.report()
    log.info(
        "agent serves",
        node=settings.node,
        listen=f"{settings.listen_host}:{listening.getsockname()[1]}",
        devices=len(report.inventory.devices),
        replicas=len(report.replicas),
        pid=os.getpid(),
    )
    if tokens_of(settings) is None and (settings.tls is None or settings.tls.client_ca is None):
        log.warning("no --token-file: whoever reaches this loopback address may command this node")
    if settings.tls is None and not is_loopback(settings.listen_host):
        log.warning("no --tls-cert: tokens and what engines print cross the network in clear text")
    if problem := overlap_with_clients(settings.first_port, settings.last_port):
        log.warning("engines may find their ports taken", problem=problem)
    if not settings.allow:
        log.warning("no --allow: every executable on this node may be started")
    if not report.inventory.complete:
        log.warning("devices are not all known", problem=report.inventory.problem)


if __name__ == "__main__":
    main()
