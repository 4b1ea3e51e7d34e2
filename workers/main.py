"""The worker's process: `python -m workers.main --help`, or `llmgw worker`."""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import structlog
from pydantic import ValidationError

from workers.control import run, stop_on_signals
from workers.settings import WorkerSettings
from workflows.client import Connection

VARIABLES = {
    "fleet": ("LLMGW_FLEET", "name of the fleet"),
    "installation": (
        "LLMGW_INSTALLATION",
        "id of your installation: made once, kept by you, equal on all hosts",
    ),
    "state_dir": ("LLMGW_STATE_DIR", "where an installation id is made and kept when none is given"),
    "token_file": ("LLMGW_TOKEN_FILE", "bearer token for agents and routers, on the first line"),
    "metrics_listen": ("LLMGW_METRICS_LISTEN", "HOST:PORT of the Prometheus metrics; `off` for none"),
    "identity": ("LLMGW_IDENTITY", "name of this worker in Temporal"),
    "deployment": ("LLMGW_DEPLOYMENT", "worker deployment name, with --build-id"),
    "build_id": ("LLMGW_BUILD_ID", "build id of this worker, with --deployment"),
    "max_history": ("LLMGW_MAX_HISTORY", "continue as new after this many events"),
}
CONNECTION = {field.name: f"Temporal {field.name.replace('_', ' ')}" for field in fields(Connection)}


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> WorkerSettings:
    """Flags before environment before defaults. ValidationError names every problem; `--help` prints and exits."""
    parser = argparse.ArgumentParser(
        prog="llmgw worker",
        description="A control worker: decides for one fleet, tells agents and routers. Run as many as you like; "
        "Temporal gives the fleet one owner. Temporal's address and credentials come from its own client profile.",
    )
    for name, (variable, text) in VARIABLES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE", help=f"{text} [{variable}]")
    for name, text in CONNECTION.items():
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE", help=text)
    parser.add_argument("--fresh", action="store_true", help="start anew a fleet that was ended")
    parser.add_argument("--no-ensure", dest="ensure", action="store_false", help="do not start the fleet's workflow")
    given = vars(parser.parse_args(argv))
    values: dict[str, Any] = {"fresh": given["fresh"], "ensure": given["ensure"]}
    for name, (variable, _) in VARIABLES.items():
        value = given[name] if given[name] is not None else environ.get(variable)
        if value is not None:
            values[name] = None if name == "metrics_listen" and value == "off" else value
    paths = ("tls_ca_file", "tls_cert_file", "tls_key_file")
    told: dict[str, Any] = {name: given[name] for name in CONNECTION if given[name] is not None}
    told |= {name: Path(told[name]) for name in paths if name in told}
    values["connection"] = Connection(**told)
    return WorkerSettings.model_validate(values)


def main() -> int:
    """0 after an orderly end, 2 for bad settings, 3 when Temporal is not reached."""
    _set_up_logs()
    try:
        settings = parse(sys.argv[1:], os.environ)
    except ValidationError as error:
        for problem in error.errors():
            where = ".".join(map(str, problem["loc"])).replace("_", "-")
            print(f"llmgw worker: {'--' + where + ': ' if where else ''}{problem['msg']}", file=sys.stderr)
        return 2
    try:
        asyncio.run(_work(settings))
    except (RuntimeError, OSError, ValueError) as error:
        print(f"llmgw worker: {str(error).splitlines()[0]}", file=sys.stderr)
        return 3
    return 0


async def _work(settings: WorkerSettings) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    await run(settings, stop)


def _set_up_logs() -> None:
    """One line per event: readable at a terminal, JSON elsewhere."""
    renderer: Any = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    shared: list[Any] = [structlog.stdlib.add_log_level, structlog.processors.TimeStamper(fmt="iso")]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for noisy in ("httpx", "temporalio.activity", "temporalio.workflow"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Temporal's native runtime aborts in about half of all ordinary exits
