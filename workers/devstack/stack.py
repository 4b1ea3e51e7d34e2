"""One dev stack from its first process to its last: comes up, is asked and told things, and leaves nothing behind.

Used by `llmgw dev` and by its check. Engines are the agents' affair while the stack runs; only when it has ended is
what still carries the stack's mark ended too.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client, RPCError
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import TemporalError

from llmgw.plan import Judgement, Verdict
from llmgw.views import ModelRow, ReplicaRow, Status
from workers.devstack import example
from workers.devstack.layout import (
    NODES,
    Layout,
    StackError,
    choose_ports,
    hold,
    is_free,
    remember_ports,
    remembered_ports,
)
from workers.devstack.owned import Owned, end, owned
from workers.devstack.parts import FLEET, ROUTER, Answers, Programs, Questions, stages
from workers.devstack.supervisor import Change, PartState, Supervisor
from workflows import names
from workflows.client import Fleet

LOOK_S = 0.1
DRAIN_S = 12.0
"""How long the plane may take to stop everything in order when the stack is ended."""
LEFTOVER_LIMITS_S = (5.0, 3.0)
ENGINE_LIMITS_S = (2.0, 2.0)
NEEDED_ATTRIBUTES = {names.PHASE_ATTRIBUTE, names.GENERATION_ATTRIBUTE, names.REJECTED_ATTRIBUTE}


@dataclass(frozen=True, slots=True)
class Remains:
    """What was still there after the end. Both empty: nothing."""

    processes: tuple[Owned, ...] = ()
    ports: tuple[int, ...] = ()

    def __str__(self) -> str:
        said = [str(process) for process in self.processes] + [f"port {port}" for port in self.ports]
        return ", ".join(said) or "nothing"


class Stack:
    """The parts and the fleet they make."""

    def __init__(
        self, layout: Layout, programs: Programs, http: aiohttp.ClientSession, tell: Callable[[Change], None]
    ) -> None:
        self.layout = layout
        self.programs = programs
        self.http = http
        self.supervisor = Supervisor(layout.logs, tell)
        self.hurry = asyncio.Event()
        """Set: end without waiting for anything to end in order."""
        self._fleet: Fleet | None = None
        self._is_up = False

    @property
    def fleet(self) -> Fleet:
        if self._fleet is None:
            raise StackError("Temporal does not run yet")
        return self._fleet

    # --- coming up ---

    async def start(self) -> None:
        """Start every part and wait until it is ready. StackError names the part that is not."""
        try:
            for stage in stages(self.layout, self.programs, self._questions()):
                async with asyncio.TaskGroup() as group:
                    for part in stage:
                        group.create_task(self.supervisor.start(part))
        except* StackError as errors:
            raise StackError("\n".join(map(str, errors.exceptions))) from None
        await self._undrain()
        self._is_up = True

    def _questions(self) -> Questions:
        return Questions(self._temporal_answers, self._fleet_answers, self._http_answers)

    async def _temporal_answers(self) -> bool:
        try:
            client = await Client.connect(self.layout.temporal_address, data_converter=pydantic_data_converter)
            known = await client.operator_service.list_search_attributes(
                ListSearchAttributesRequest(namespace=client.namespace)
            )
        except (RPCError, RuntimeError):
            return False
        if not set(known.custom_attributes) >= NEEDED_ATTRIBUTES:
            return False
        if self._fleet is None:  # a client finds the server again by itself when that is started anew
            self._fleet = Fleet(client, FLEET)
        return True

    async def _fleet_answers(self) -> bool:
        try:
            await self.status()
        except TemporalError:
            return False
        return True

    def _http_answers(self, url: str) -> Answers:
        async def answers() -> bool:
            try:
                async with self.http.get(url, timeout=aiohttp.ClientTimeout(total=1.0)) as answer:
                    return answer.status == 200
            except (aiohttp.ClientError, TimeoutError):
                return False

        return answers

    # --- asking and telling ---

    async def status(self) -> Status:
        status: Status = await self.fleet.query(names.STATUS, answer=Status)
        return status

    async def models(self) -> tuple[ModelRow, ...]:
        pages = await self.fleet.pages(names.MODELS)
        return tuple(ModelRow.model_validate(row) for page in pages for row in page["models"])

    async def replicas(self) -> tuple[ReplicaRow, ...]:
        pages = await self.fleet.pages(names.REPLICAS)
        return tuple(ReplicaRow.model_validate(row) for page in pages for row in page["replicas"])

    async def unobserved(self) -> tuple[str, ...]:
        """Our agents and router that the catalog in force does not name at their present address."""
        known = {target["url"] for page in await self.fleet.pages(names.TARGETS) for target in page["targets"]}
        return tuple(
            f"{name} ({self.layout.url(name)})" for name in (*NODES, ROUTER) if self.layout.url(name) not in known
        )

    async def apply(self, catalog: example.Json) -> Verdict:
        """Replace the catalog. StackError with every problem when it is not accepted."""
        verdict = await self.fleet.apply(catalog)
        if verdict.judgement not in (Judgement.ACCEPTED, Judgement.UNCHANGED):
            raise StackError("\n  ".join([f"the catalog is {verdict.judgement}:", *verdict.problems, verdict.text]))
        return verdict

    async def apply_example(self) -> bool:
        """Apply the example, unless the fleet has a catalog that somebody else gave it. Says whether it was applied."""
        kept = self.layout.root / "example-digest"
        in_force = (await self.status()).digest
        if in_force and (not kept.exists() or kept.read_text() != in_force):
            return False
        verdict = await self.apply(example.first_catalog(self.layout, self.programs.llama))
        kept.write_text(verdict.digest)
        return True

    # --- ending ---

    async def end(self) -> Remains:
        """End the engines in order, then every part, then whatever else carries the mark; tells what is left."""
        await self.supervisor.let_go()
        if self._is_up:
            await self._unless_hurried(self._drain(), DRAIN_S)
        await self._unless_hurried(self.supervisor.end(), None)
        left = await end(lambda: owned(self.layout.root), () if self.hurry.is_set() else ENGINE_LIMITS_S)
        ports = tuple(port for port in self.layout.ports.uses.values() if not is_free(port))
        return Remains(left, ports)

    async def _unless_hurried(self, work: Coroutine[object, object, None], limit_s: float | None) -> None:
        """Do it until it is done, its time is over, or somebody is in a hurry. What it raises is no obstacle."""
        tasks = {asyncio.create_task(work), asyncio.create_task(self.hurry.wait())}
        await asyncio.wait(tasks, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _drain(self) -> None:
        """Have the plane stop every engine of ours, in its order and with proof.

        Agents leave engines running when they end, and an engine ended behind their back counts as a failure.
        """
        cordoned = [row["id"] for page in await self.fleet.pages("nodes") for row in page["nodes"] if row["cordoned"]]
        self.layout.drained.write_text(json.dumps(cordoned))
        for node in NODES:  # all of them first: nothing is to move to the one that is drained last
            await self.fleet.order("cordon", {"node": node})
        for node in NODES:
            await self.fleet.order("drain", {"node": node, "deadline_s": 0.0})
        while any(row.node in NODES for row in await self.replicas()):  # noqa: ASYNC110 - a query, no event of ours
            await asyncio.sleep(LOOK_S)

    async def _undrain(self) -> None:
        """Take back the drains of the last end, no operator's cordon. Nothing is placed before all are taken back."""
        if not self.layout.drained.exists():
            return
        cordoned = json.loads(self.layout.drained.read_text() or "[]")
        paused = (await self.fleet.query("status"))["phase"] == "paused"
        if not paused:
            await self.fleet.order("pause", {"reason": "the stack comes up", "for_s": 60.0})
        for node in NODES:
            await self.fleet.order("uncordon", {"node": node})
            if node in cordoned:
                await self.fleet.order("cordon", {"node": node})
        if not paused:
            await self.fleet.order("resume", {})
        self.layout.drained.unlink()


@asynccontextmanager
async def prepared(
    root: Path, programs: Programs, first_port: int | None, tell: Callable[[Change], None]
) -> AsyncIterator[Stack]:
    """A stack on the folder `root`, not started yet; leftovers of one that was killed have ended. Hold the lock.

    The caller ends it. StackError when the folder or a port is taken.
    """
    with hold(root):
        for process in (leftovers := _leftovers(root)):
            tell(Change(process.part or "", PartState.ENDED, text=f"left by a stack that was killed, {process}"))
        left = await end(lambda: _leftovers(root), LEFTOVER_LIMITS_S) if leftovers else ()
        if left:
            raise StackError(f"of a stack that was killed, {Remains(left)} does not end: end it by hand")
        ports = choose_ports(remembered_ports(root), first_port)
        remember_ports(root, ports)
        layout = Layout(root, ports)
        if programs.llama is not None:
            await asyncio.to_thread(example.write_models, root / "models")
        async with aiohttp.ClientSession() as http:
            yield Stack(layout, programs, http, tell)


def _leftovers(root: Path) -> tuple[Owned, ...]:
    """Parts of an earlier stack; engines are not among them: the agents take those over."""
    return tuple(process for process in owned(root) if process.part is not None)


def absolute(root: Path) -> Path:
    """The folder's one true name, by which its processes are marked."""
    return Path(os.path.realpath(root))
