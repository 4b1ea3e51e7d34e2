"""A Temporal dev server for a bench, as the real binary on a free port with a store that lives as long as the bench."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
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


@dataclass
class Server:
    """A running server. Its store outlives its process."""

    address: str
    client: Client
    process: Child
    _start: Callable[[], Child]

    async def restart(self, away_s: float) -> None:
        """Killed, away for a while, and started on the same store."""
        self.process.end(signal.SIGKILL)
        await asyncio.sleep(away_s)
        self.process = self._start()
        await _connected(self.address)


def server_argv(port: int, folder: Path) -> Sequence[str]:
    """The command of a server with its store below `folder`."""
    return [
        *(str(BINARY), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)),
        *("--log-level", "error", "--db-filename", str(folder / "temporal.db")),
        *(item for attribute in ATTRIBUTES for item in ("--search-attribute", attribute)),
    ]


@contextlib.asynccontextmanager
async def dev_server(folder: Path) -> AsyncIterator[Server]:
    """A server that answers. RuntimeError when it does not within 20 s."""
    port = free_port()
    argv = server_argv(port, folder)
    address = f"127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:

        def start() -> Child:
            return stack.enter_context(child(argv, folder / "temporal.log"))

        process = start()
        yield Server(address, await _connected(address), process, start)


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
