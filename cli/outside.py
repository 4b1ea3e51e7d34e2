"""What a command reaches beyond itself: fleets, agents, other programs and time. One value, handed in once.

The real ones are the defaults; a test hands in another value as typer's context object.
"""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a quick `llmgw --help` imports neither Temporal's SDK nor an HTTP client
    import httpx

    from workflows.client import Fleet


@dataclass(frozen=True, slots=True)
class Target:
    """Which fleet, and how it is reached. None: as Temporal's client profile says."""

    fleet: str = "default"
    profile: str | None = None
    address: str | None = None
    namespace: str | None = None
    api_key: str | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    token_file: Path | None = None
    """Bearer token for agents."""


async def connected(target: Target) -> "Fleet":
    """The fleet, by Temporal. `UnreachableError` or ValueError when it is not reached."""
    from temporalio.runtime import Runtime, TelemetryConfig  # late: 0.2 s

    from workflows.client import Connection, Fleet, connect

    connection = Connection(
        profile=target.profile,
        address=target.address,
        namespace=target.namespace,
        api_key=target.api_key,
        tls_ca_file=target.tls_ca,
        tls_cert_file=target.tls_cert,
        tls_key_file=target.tls_key,
    )
    quiet = Runtime(telemetry=TelemetryConfig(logging=None))  # its retries are no news to an operator
    return Fleet(await connect(connection, runtime=quiet), target.fleet)


def agent_client(headers: dict[str, str]) -> "httpx.Client":
    """A client for agents. They are spoken to directly, never through a proxy of the environment."""
    import httpx  # late: 0.1 s

    return httpx.Client(headers=headers, timeout=10.0, trust_env=False)


def replace_process(argv: Sequence[str]) -> None:
    """Become another program; does not return."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(argv[0], list(argv))  # noqa: S606 - this very interpreter


@dataclass(frozen=True, slots=True)
class Outside:
    fleet: Callable[[Target], Awaitable["Fleet"]] = connected
    agents: Callable[[dict[str, str]], "httpx.Client"] = agent_client
    start: Callable[[Sequence[str]], None] = replace_process
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    monotonic_s: Callable[[], float] = time.monotonic
    now_s: Callable[[], float] = time.time
    """Seconds since the epoch, to compare clocks."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


@dataclass(frozen=True, slots=True)
class Session:
    """One run of the command line."""

    outside: Outside
    target: Target
