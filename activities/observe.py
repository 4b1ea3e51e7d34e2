"""`observe`: the workflow's eyes. Drains the process-wide pool and returns what changed; with nothing to report it
holds, at no cost in history. It only reads: an overlap of two observers is harmless."""

import asyncio
import contextlib

from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError

from activities.pool import Pool
from activities.pools import Pools
from llmgw.calls import ObserveCall
from llmgw.observation import Observation, Target, Targets

HEARTBEAT_S = 0.8
TARGETS_EVERY_S = 5.0
POKED_LOOKS = 10
LOOK_S = 0.03
TARGETS_QUERY = "targets"


class Observe:
    def __init__(self, client: Client, pools: Pools) -> None:
        self._client = client
        self._pools = pools

    @activity.defn(name="observe")
    async def observe(self, call: ObserveCall) -> Observation:
        """The next part of what changed since (pool, cursor). An unknown pool id gets a snapshot."""
        try:
            return await self._next(call)
        except asyncio.CancelledError:
            cause = activity.cancellation_details()
            if cause is not None and cause.not_found:
                self._pools.unwatched.set()
            raise

    async def _next(self, call: ObserveCall) -> Observation:
        async with contextlib.AsyncExitStack() as stack:
            beat = asyncio.create_task(_beat())
            stack.callback(beat.cancel)
            pool = await stack.enter_async_context(self._pools.using(call.fleet))
            if pool.revision != call.targets:
                pool.aim(*await self._targets())
            follow = asyncio.create_task(self._follow(pool))
            stack.callback(follow.cancel)
            taking = asyncio.create_task(pool.take(call.cursor if call.pool == pool.id else 0))
            ending = asyncio.create_task(activity.wait_for_worker_shutdown())
            stack.callback(taking.cancel)
            stack.callback(ending.cancel)
            await asyncio.wait({taking, ending}, return_when=asyncio.FIRST_COMPLETED)
            if taking.done():
                return taking.result()
            raise ApplicationError("this worker ends: another one observes")

    async def _follow(self, pool: Pool) -> None:
        """Keep the pool aimed at the fleet's present targets: at once when this process planned the change."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(pool.stale.wait(), TARGETS_EVERY_S)
            looks = POKED_LOOKS if pool.stale.is_set() else 1
            pool.stale.clear()
            for _ in range(looks):
                await asyncio.sleep(LOOK_S)  # the change is in force once its plan is merged
                targets, limits = await self._targets()
                if limits.revision != pool.revision:
                    pool.aim(targets, limits)
                    break

    async def _targets(self) -> tuple[dict[str, Target], Targets]:
        info = activity.info()
        if info.workflow_id is None:
            raise RuntimeError("observe runs only for a workflow")
        return await read_targets(self._client.get_workflow_handle(info.workflow_id))


async def read_targets(handle: WorkflowHandle[object, object]) -> tuple[dict[str, Target], Targets]:
    """All pages of the query `targets`, of one revision."""
    while True:
        first = page = await _page(handle, 0)
        found = {t.id: t for t in page.targets}
        while page.next_page is not None and page.revision == first.revision:
            page = await _page(handle, page.next_page)
            found.update((t.id, t) for t in page.targets)
        if page.revision == first.revision:
            return found, first


async def _page(handle: WorkflowHandle[object, object], page: int) -> Targets:
    answer: Targets = await handle.query(TARGETS_QUERY, page, result_type=Targets)
    return answer


async def _beat() -> None:
    """Heartbeats from a task of their own, so that a long wait never misses one."""
    while True:
        activity.heartbeat()
        await asyncio.sleep(HEARTBEAT_S)
