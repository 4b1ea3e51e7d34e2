"""A real Temporal dev server for the whole session, and a worker with a fleet of its own per test."""

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey
from temporalio.testing import WorkflowEnvironment

from activities.outward import Callers
from activities.pools import Pools
from activities.settings import Outward
from workers.control import make_worker
from workers.settings import WorkerSettings
from workflows import names
from workflows.client import Fleet
from workflows.converting import data_converter
from workflows.ensure import ensure

TEMPORAL = Path(sys.executable).parent / "temporal"


@dataclass(frozen=True)
class Server:
    address: str


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The dev server, started once per test process."""
    loop = asyncio.new_event_loop()
    environment = loop.run_until_complete(
        WorkflowEnvironment.start_local(
            dev_server_existing_path=str(TEMPORAL),
            data_converter=data_converter,
            dev_server_log_level="error",
            search_attributes=[
                SearchAttributeKey.for_keyword(names.PHASE_ATTRIBUTE),
                SearchAttributeKey.for_int(names.GENERATION_ATTRIBUTE),
                SearchAttributeKey.for_bool(names.REJECTED_ATTRIBUTE),
            ],
        )
    )
    yield Server(environment.client.service_client.config.target_host)
    loop.run_until_complete(environment.shutdown())
    loop.close()


@pytest.fixture
async def client(server: Server) -> Client:
    return await Client.connect(server.address, data_converter=data_converter)


@asynccontextmanager
async def working(
    client: Client, name: str, now_s: int = 1_700_000_000, installation: str = "test", **settings: object
) -> AsyncIterator[Fleet]:
    """A worker for fleet `name`, with its workflow running."""
    made = WorkerSettings.model_validate({"fleet": name, "installation": installation, **settings})
    outward = Outward()
    callers, pools = Callers(outward), Pools(outward)
    try:
        async with make_worker(client, made, callers, pools):
            await ensure(client, name, installation, now_s=now_s, max_history=made.max_history)
            yield Fleet(client, name)
    finally:
        await pools.close()
        await callers.close()


@pytest.fixture
async def fleet(client: Client) -> AsyncIterator[Fleet]:
    """An empty fleet with a worker."""
    async with working(client, f"t-{uuid.uuid4().hex[:8]}") as fleet:
        yield fleet
        await fleet.handle.terminate("the test is over")
