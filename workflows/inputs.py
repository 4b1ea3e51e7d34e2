"""What reaches the workflow from outside: the catalog by signal or update, orders, and whatever else is sent.

Handlers record and return. They judge nothing, never raise and never act: a rule that runs here is frozen into every
history. An update waits for its verdict, which the plan gives.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from llmgw.plan import Verdict
from llmgw.world import Input, InputKind
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
        """Updates that wait for their verdict, by number."""
        self.closed = False
        """No update is let in any more: the run is about to be continued."""
        self.length = 0
        """About how many events this run has made, counted by what it did: the length of the history, asked at the same
        place, may differ between what happens and its replay."""
        self.first_arrival = 0
        """Arrivals of former runs are below it."""
        self._signals = 0
        self._updates = 0

    def _next_signal(self) -> int:
        """Signals and updates are counted apart: which of a signal and an update comes first may differ at replay."""
        self._signals += 1
        return 2 * self._signals

    def _next_update(self) -> int:
        self._updates += 1
        return 2 * self._updates + 1

    def _note(self, number: int, record: Callable[[FleetState], None], events: int) -> None:
        """Below zero: what is waited for has the numbers above (`ReconcileWorkflow._spawn`)."""

        def settle() -> None:
            self.length += events

        self.news.add(-number, Happened(record, settle))

    async def answer(self) -> None:
        """Let updates whose verdict is there answer now, before any further command."""
        verdicts = {arrival - self.first_arrival: verdict for arrival, verdict in self.state.verdicts.items()}
        for number in sorted(self.waiting.keys() & verdicts.keys()):
            self.waiting.pop(number).set_result(verdicts[number])
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
        return await self._updated(InputKind.CATALOG, names.APPLY_CATALOG, args)

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
        self._note(self._next_signal(), lambda state: state.refuse(name, text, now_s), ORDER_EVENTS)

    def _signalled(self, kind: InputKind, name: str, args: tuple[Any, ...]) -> None:
        """Take it, or note that it cannot be read."""
        problem = problem_of(args)
        if problem is None:
            self._take(self._next_signal(), kind, name, args)
        else:
            self.note_refusal(name, problem)

    async def _updated(self, kind: InputKind, name: str, args: tuple[Any, ...]) -> Verdict:
        number = self._next_update()
        self._take(number, kind, name, args)
        self.waiting[number] = asyncio.get_running_loop().create_future()
        return await self.waiting[number]

    def _take(self, number: int, kind: InputKind, name: str, args: tuple[Any, ...]) -> None:
        """Give it its place among the news."""
        arrived = Input(self.first_arrival + number, kind, name, list(args), workflow.now().timestamp())
        events = CATALOG_EVENTS if kind is InputKind.CATALOG else ORDER_EVENTS
        self._note(number, lambda state: state.take(arrived), events)

    def _admit(self, args: Sequence[object]) -> None:
        """Refuses an update that cannot be read, and any while the run is about to be continued. What is refused leaves
        no trace in the history, and what was let in is never asked again at replay: so this may look at whatever moment
        it is."""
        if (problem := problem_of(args)) is not None:
            raise ApplicationError(problem, type=names.UNDECODABLE)
        if self.closed:
            raise ApplicationError("the plane is about to go on in a new run: ask again", type=names.ASK_AGAIN)
