"""Reaching a fleet from a short-lived process: options, one clear sentence for every failure, and a clean exit."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import typer

T = TypeVar("T")

OK, REFUSED, USAGE, UNREACHABLE, TIMED_OUT = 0, 1, 2, 3, 4


@dataclass
class Options:
    """Global options of the command line."""

    fleet: str = "default"
    profile: str | None = None
    address: str | None = None
    namespace: str | None = None
    api_key: str | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    token_file: Path | None = None
    output: str = "table"
    extra: dict[str, Any] = field(default_factory=dict)


def leave(code: int) -> NoReturn:
    """End at once. Temporal's native runtime aborts in about half of all ordinary exits of short-lived processes."""
    sys.stdout.flush()
    sys.stderr.flush()
    if "PYTEST_CURRENT_TEST" in os.environ:
        raise typer.Exit(code)
    os._exit(code)


def fail(code: int, sentence: str) -> NoReturn:
    print(f"llmgw: {sentence}", file=sys.stderr)
    leave(code)


def with_fleet(options: Options, work: Callable[[Any], Awaitable[T]]) -> T:
    """Run `work` with the fleet (`workflows.client.Fleet`); failures end the process with one sentence."""
    from temporalio.client import (  # imported late: `llmgw --help` must be quick
        RPCTimeoutOrCancelledError,
        WorkflowQueryFailedError,
        WorkflowUpdateFailedError,
    )
    from temporalio.service import RPCError, RPCStatusCode

    try:
        return asyncio.run(_connected(options, work))
    except (WorkflowQueryFailedError, WorkflowUpdateFailedError) as error:
        fail(REFUSED, f"fleet {options.fleet} cannot answer: {error.__cause__ or error}")
    except RPCTimeoutOrCancelledError:
        fail(TIMED_OUT, f"no answer from fleet {options.fleet} in time: is a worker running? (`llmgw worker`)")
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            fail(
                UNREACHABLE,
                f"there is no fleet {options.fleet}: start a worker (`llmgw worker`, `llmgw dev`)",
            )
        if error.status in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
            fail(TIMED_OUT, f"no answer from fleet {options.fleet} in time: is a worker running? (`llmgw worker`)")
        fail(UNREACHABLE, f"Temporal says: {error.message}")
    except (RuntimeError, OSError, ValueError) as error:
        where = options.address or "the address of your Temporal profile (default localhost:7233)"
        fail(UNREACHABLE, f"Temporal cannot be reached at {where}: {str(error).splitlines()[0]}")


async def _connected(options: Options, work: Callable[[Any], Awaitable[T]]) -> T:
    from workflows.client import Connection, Fleet, connect  # late, as above

    connection = Connection(
        profile=options.profile,
        address=options.address,
        namespace=options.namespace,
        api_key=options.api_key,
        tls_ca_file=options.tls_ca,
        tls_cert_file=options.tls_cert,
        tls_key_file=options.tls_key,
    )
    return await work(Fleet(await connect(connection), options.fleet))


def show(options: Options, value: Any, table: Callable[[Any], None]) -> None:
    """`value` (JSON types) as the user wants it."""
    if options.output == "json":
        print(json.dumps(value, indent=2, ensure_ascii=False))
    elif options.output == "yaml":
        import yaml  # only where it is asked for

        print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), end="")
    else:
        table(value)
