"""A Temporal dev server for a bench, as the real binary on a free port with a store that lives as long as the bench."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import Client

from bench.processes import Child, child, free_port
from workflows import names
from workflows.client import Connection, UnreachableError, connect

BINARY = Path(sys.executable).parent / "temporal"
ATTRIBUTES = (
    f"{names.PHASE_ATTRIBUTE}=Keyword",
    f"{names.GENERATION_ATTRIBUTE}=Int",
    f"{names.REJECTED_ATTRIBUTE}=Bool",
)
START_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Server:
    address: str
    client: Client
    process: Child


@contextlib.asynccontextmanager
async def dev_server(folder: Path) -> AsyncIterator[Server]:
    """A server that answers. RuntimeError when it does not within 20 s."""
    port = free_port()
    argv = [
        *(str(BINARY), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)),
        *("--log-level", "error", "--db-filename", str(folder / "temporal.db")),
        *(item for attribute in ATTRIBUTES for item in ("--search-attribute", attribute)),
    ]
    address = f"127.0.0.1:{port}"
    with child(argv, folder / "temporal.log") as process:
        yield Server(address, await _connected(address), process)


async def _connected(address: str) -> Client:
    problem: Exception | None = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_LIMIT_S):
            while True:
                try:
                    client = await connect(Connection(address=address))
                    await client.count_workflows()  # the namespace is registered a little later
                except (UnreachableError, RuntimeError) as error:
                    problem = error
                    await asyncio.sleep(0.05)
                else:
                    return client
    raise RuntimeError(f"the Temporal dev server does not answer at {address}: {problem}")
