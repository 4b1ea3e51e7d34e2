"""The floor of every latency of the plane: a workflow that does one activity with one PUT per signal, nothing else.

`python -m bench.floor --address HOST:PORT --queue NAME` is its worker: a process of its own, as the plane's is.
"""

import argparse
import asyncio
import os
from datetime import timedelta
from typing import Any

import httpx
from temporalio import activity, workflow
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from workflows.client import Connection, connect


@workflow.defn(name="Floor")
class Floor:
    def __init__(self) -> None:
        self.todo: list[str] = []

    @workflow.run
    async def run(self) -> None:
        while True:
            await workflow.wait_condition(lambda: bool(self.todo))
            url = self.todo.pop(0)
            await workflow.execute_activity("put_once", url, start_to_close_timeout=timedelta(seconds=3))

    @workflow.signal
    def go(self, url: str, *weight: Any) -> None:
        """`weight`: what else the signal carries, for a floor of large ones."""
        del weight
        self.todo.append(url)


@workflow.defn(name="FanOut")
class FanOut:
    """`count` activities with one POST each, fanned out at once; ends with the last."""

    @workflow.run
    async def run(self, url: str, count: int) -> None:
        limit = timedelta(seconds=30)
        await asyncio.gather(
            *(workflow.execute_activity("post_once", f"{url}/{i}", start_to_close_timeout=limit) for i in range(count))
        )


class Calls:
    def __init__(self) -> None:
        self.client = httpx.AsyncClient(trust_env=False)

    @activity.defn(name="put_once")
    async def put_once(self, url: str) -> None:
        await self.client.put(url, content=b"{}")

    @activity.defn(name="post_once")
    async def post_once(self, url: str) -> None:
        await self.client.post(url, content=b"{}")


async def work(address: str, queue: str) -> None:
    client = await connect(Connection(address=address))
    calls = Calls()
    async with Worker(
        client,
        task_queue=queue,
        workflows=[Floor, FanOut],
        activities=[calls.put_once, calls.post_once],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_concurrent_activities=250,
    ):
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True)
    parser.add_argument("--queue", required=True)
    given = parser.parse_args()
    try:
        asyncio.run(work(given.address, given.queue))
    finally:
        os._exit(0)  # the SDK's native runtime may abort an ordinary exit
