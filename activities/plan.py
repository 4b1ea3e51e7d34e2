"""`plan`: the one place where the plane decides. A local activity, so its input never enters history and the deciding
code may change at every deploy. Its type name is checked at replay: never rename it."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from temporalio import activity

from activities import handover
from activities.handover import Handed
from activities.pools import Pools
from llmgw.calls import cut
from llmgw.decide import decide
from llmgw.plan import Plan
from llmgw.safe import safe_plan

log = logging.getLogger(__name__)

MAX_PLAN_BYTES = 1536 * 1024
"""Temporal takes payloads of 2 MiB at most. A larger result would fail the workflow's task, again and again."""


LARGE = 500
"""Nodes and replicas together. Deciding on fewer takes a few milliseconds, which a change of threads would prolong."""


class Planner:
    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._beside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")
        """One at a time: what a plan keeps for the next one is not shared."""

    @activity.defn(name="plan")
    async def plan(self, run_id: str) -> Plan:
        """Decide on the world that the workflow of this run handed over.

        A programming error in deciding puts the plane into safe mode: what is dead is withdrawn, nothing is started or
        stopped, and the status shows the error until a later pass succeeds.
        """
        handed = handover.get(run_id)
        if not handed.decides:
            return Plan(seen=handed.seen, decided=False)
        made = await self._made(handed)
        if made.targets_changed:
            self._pools.poke(handed.world.fleet)
        return made.model_copy(update={"seen": handed.seen})

    async def _made(self, handed: Handed) -> Plan:
        try:
            made = await self._decided(handed)
        except Exception as error:
            log.exception("deciding failed; safe mode")
            return safe_plan(handed.world, handed.now_s, cut(f"{type(error).__name__}: {error}"))
        if (size := len(made.model_dump_json())) > MAX_PLAN_BYTES:
            problem = f"a plan of {size:,} bytes is too large to be kept: apply a smaller catalog"
            log.error("%s; safe mode", problem)
            return safe_plan(handed.world, handed.now_s, problem)
        return made

    async def _decided(self, handed: Handed) -> Plan:
        """A long decision is made beside the event loop: calls that agents and routers have answered meanwhile would
        pass their limits otherwise, and be made again."""
        world = handed.world
        if len(world.seen) + len(world.assignments) < LARGE:
            return decide(world, handed.now_s)
        return await asyncio.get_running_loop().run_in_executor(self._beside, decide, world, handed.now_s)
