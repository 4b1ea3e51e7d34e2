"""What reaches the workflow from outside: the catalog by signal or update, orders, and whatever else is sent.

Handlers record and return. They judge nothing, never raise and never act: a rule that runs here is frozen into every
history. An update waits for its verdict, which the plan gives.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from llmgw.plan import Verdict
from llmgw.world import InputKind
from workflows import names
from workflows.converting import problem_of
from workflows.fleet_state import FleetState
from workflows.news import Happened, News
from workflows.order_handlers import OrderHandlers

ORDER_EVENTS, CATALOG_EVENTS = 4, 40
"""What each adds to a history; a catalog counts for its size (256 KB at most) as well."""


class Inputs(OrderHandlers):
    """Mixed into the workflow class."""

    def __init__(self) -> None:
        self.state: FleetState
        self.news = News()
        self.waiting: dict[int, asyncio.Future[Verdict]] = {}
        """Updates that wait for their verdict, by arrival."""
        self.closed = False
        """No update is let in any more: the run is about to be continued."""
        self.length = 0
        """About how many events this run has made, counted by what it did: the length of the history, asked at the same
        place, may differ between what happens and its replay."""

    def note(self, happened: Happened, *, is_input: bool = False) -> None:
        self.news.add(workflow.info().get_current_history_length(), happened, is_input=is_input)

    async def answer(self) -> None:
        """Let updates whose verdict is there answer now, before any further command."""
        for arrival in sorted(self.waiting.keys() & self.state.verdicts.keys()):
            self.waiting.pop(arrival).set_result(self.state.verdicts[arrival])
        for _ in range(3):
            await asyncio.sleep(0)  # yields only: no timer

    @workflow.signal(name=names.REPLACE_CATALOG, description="Replace the whole catalog: one JSON object")
    def replace_catalog(self, *args: Any) -> None:
        self._signalled(InputKind.CATALOG, names.REPLACE_CATALOG, args)

    @workflow.update(
        name=names.APPLY_CATALOG,
        description="Replace the whole catalog and answer with its generation, digest and differences, or all problems",
    )
    async def apply_catalog(self, *args: Any) -> Verdict:
        return await self._verdict(self._take(InputKind.CATALOG, names.APPLY_CATALOG, args))

    @apply_catalog.validator
    def _may_apply(self, *args: Any) -> None:
        self._admit(args)

    @workflow.signal(dynamic=True, description="Anything else is refused, visibly")
    def unknown_signal(self, name: str, args: Sequence[RawValue]) -> None:
        del args
        self.note_refusal(name, "no such signal; `temporal workflow metadata` lists them")

    def note_refusal(self, name: str, text: str) -> None:
        """Also called by the guard interceptor for what a handler could not take."""
        now_s = workflow.now().timestamp()

        def refused() -> bool:
            self.length += ORDER_EVENTS
            self.state.refuse(name, text, now_s)
            return True

        self.note(refused, is_input=True)

    def _signalled(self, kind: InputKind, name: str, args: tuple[Any, ...]) -> None:
        """Take it, or note that it cannot be read. Runs that began when such signals were dropped drop them still."""
        problem = problem_of(args)
        if problem is None:
            self._take(kind, name, args)
            return
        now_s = workflow.now().timestamp()

        def refused() -> bool:
            is_noted = workflow.patched(names.UNDECODABLE_PATCH)
            if is_noted:
                self.length += ORDER_EVENTS
                self.state.refuse(name, problem, now_s)
            return is_noted

        self.note(refused, is_input=True)

    def _take(self, kind: InputKind, name: str, args: tuple[Any, ...]) -> int:
        """Give it its place among the news; its arrival number."""
        arrived = self.state.arrived(kind, name, args, workflow.now().timestamp())

        def taken() -> bool:
            self.length += CATALOG_EVENTS if kind is InputKind.CATALOG else ORDER_EVENTS
            self.state.take(arrived)
            return True

        self.note(taken, is_input=True)
        return arrived.arrival

    async def _verdict(self, arrival: int) -> Verdict:
        self.waiting[arrival] = asyncio.get_running_loop().create_future()
        return await self.waiting[arrival]

    def _admit(self, args: Sequence[object]) -> None:
        """Refuses an update that cannot be read, and any while the run is about to be continued. What is refused leaves
        no trace in the history, and what was let in is never asked again at replay: so this may look at whatever moment
        it is."""
        if (problem := problem_of(args)) is not None:
            raise ApplicationError(problem, type=names.UNDECODABLE)
        if self.closed:
            raise ApplicationError("the plane is about to go on in a new run: ask again", type=names.ASK_AGAIN)
