"""The worker's process: `python -m workers.main --help`, or `llmgw worker`.

Settings, logs, signals and the exit code; the work itself is `workers.control`.
"""

import asyncio
import errno
import gc
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import structlog

from workers.control import run, stop_on_signals
from workers.flags import SettingsError, read
from workers.settings import WorkerSettings
from workers.tidying import allot
from workflows.client import UnreachableError
from workflows.ensure import FleetEndedError

STOPPED, ENDED, BAD_SETTINGS, UNREACHABLE = 0, 1, 2, 3
YOUNG_OBJECTS = 10_000
"""Between two looks of the garbage collector; a decision makes thousands of values, hardly any of them in cycles."""


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Work until SIGTERM or SIGINT. Returns the exit code; when it is not 0, standard error says why in one line."""
    try:
        settings = read(argv, environ)
    except SettingsError as error:
        for problem in error.problems:
            _say(problem)
        return BAD_SETTINGS
    set_up_logs(sys.stderr)
    allot()
    spare_the_collector()
    try:
        asyncio.run(_work(settings))
    except UnreachableError as error:
        _say(str(error))
        return UNREACHABLE
    except ValueError as error:  # of the connection's settings: files and profile
        _say(str(error))
        return BAD_SETTINGS
    except FleetEndedError as error:
        _say(f"{error} (everything that it would command stays as it is)")
        return ENDED
    except OSError as error:
        where = f"--metrics-listen {settings.metrics_listen}"
        taken = f"{where}: the address is taken; give this worker one of its own, or off"
        _say(taken if error.errno == errno.EADDRINUSE else str(error)[:300])
        return ENDED
    except RuntimeError as error:
        _say(" ".join(str(error).split())[:300])
        return ENDED
    return STOPPED


def spare_the_collector() -> None:
    """What is imported stays: looking through it again would stop the process for 100 ms in the midst of a decision."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)


async def _work(settings: WorkerSettings) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    await run(settings, stop)


def _say(text: str) -> None:
    print(f"llmgw worker: {text}", file=sys.stderr)


def set_up_logs(stream: TextIO) -> None:
    """One line per event: readable at a terminal, JSON elsewhere."""
    stamped: list[Any] = [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Any]
    if stream.isatty():
        last = [structlog.dev.ConsoleRenderer()]
    else:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=stamped, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last]
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for noisy in ("httpx", "temporalio.activity", "temporalio.workflow"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


if __name__ == "__main__":
    code = main(sys.argv[1:], os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Temporal's native runtime aborts in about half of all ordinary exits
