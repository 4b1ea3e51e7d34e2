"""The agent's process: `python -m agent.main --help`, or `llmgw agent`. Ending it leaves engines running."""

import asyncio
import logging
import os
import signal
import sys
import uuid
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import structlog
import uvicorn

from agent.app import make_app
from agent.auth import BearerDoor, token_source
from agent.node import Node
from agent.settings import Settings, SettingsError, read_settings


class _Server(uvicorn.Server):
    """Signals are ours: streams are let go before the server waits for them."""

    def install_signal_handlers(self) -> None:
        return


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    _make_machine_id(settings)
    node = Node(settings, os.environ, _version())
    await node.open()
    app = make_app(node, _version())
    guarded = app if settings.token_file is None else BearerDoor(app, token_source(settings.token_file))
    config = uvicorn.Config(
        guarded,
        host=settings.listen_host,
        port=settings.listen_port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=2,
        lifespan="off",
    )
    server = _Server(config)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    serving = asyncio.create_task(server.serve())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    await node.close()
    server.should_exit = True
    stopping.cancel()
    await serving


def _make_machine_id(settings: Settings) -> None:
    """A machine without an id of its own gets one in the state folder."""
    kept = settings.state_dir / "machine-id"
    if not kept.exists():
        kept.write_text(uuid.uuid4().hex + "\n")


def _version() -> str:
    try:
        return version("llmgw")
    except PackageNotFoundError:  # run from a checkout
        return "0"


def _set_up_logs() -> None:
    plain = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.dev.ConsoleRenderer() if plain else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def main() -> int:
    """0 after an orderly end; 2 with every problem of the settings named."""
    _set_up_logs()
    log = structlog.get_logger()
    try:
        settings = read_settings(sys.argv[1:], os.environ)
    except SettingsError as error:
        for problem in error.problems:
            print(f"llmgw agent: {problem}", file=sys.stderr)
        return 2
    if settings.token_file is None:
        log.warning("no bearer tokens: anybody on this machine may command this agent", listen=settings.listen_host)
    if not settings.allow:
        log.warning("no --allow: the plane may start any executable on PATH")
    log.info("agent", node=settings.node, listen=f"{settings.listen_host}:{settings.listen_port}")
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
