"""Models that are asked for and have no ready endpoint: who waits for them, how long waking takes, when it is over.

Requests that wait are let go on in their order of arrival, at the very moment a table brings an endpoint. Owned by one
event loop. Never starts anything: the control plane reads of it in the state stream.
"""

import asyncio
import math
from collections.abc import Callable, Mapping

from llmgw.ids import ModelName
from llmgw.wire import ModelState
from router.changes import Changes
from router.routing import Route, Routing

ASK_QUIET_S = 10.0
"""An ask after this long without one is news: it makes a revision. Those in between only move its age."""
ASK_KEPT_S = 60.0
"""So long after the last request a model still counts as asked for: clients come back when they were told to."""

_WAKING = (ModelState.ASLEEP, ModelState.STARTING)
"""States in which an endpoint may be expected by itself or for the asking."""


class Asks:
    """`clock`: monotonic seconds. `asked`: model -> when it was last wanted."""

    def __init__(self, clock: Callable[[], float], changes: Changes) -> None:
        self._clock = clock
        self._changes = changes
        self.asked: dict[ModelName, float] = {}
        self._began: dict[ModelName, float] = {}
        self._took_s: dict[ModelName, float] = {}
        self._waiting: dict[ModelName, dict[asyncio.Future[None], str]] = {}
        self._stale: dict[asyncio.Future[None], Route] = {}
        """Requests whose endpoints, by the route they know, take no connections."""
        self._elsewhere: dict[int, Mapping[ModelName, tuple[int, float]]] = {}

    def note(self, route: Route) -> None:
        """A client asked for a name that has no ready endpoint."""
        now = self._clock()
        for name in route.models:
            last = self.asked.get(name)
            self.asked[name] = now
            self._began.setdefault(name, now)
            if last is None or now - last > ASK_QUIET_S:
                self._changes.note()

    def waiting(self) -> Mapping[ModelName, int]:
        """How many requests are held, by model."""
        return {name: len(waiters) for name, waiters in self._waiting.items()}

    @property
    def behind(self) -> int:
        """How many requests wait for a table that is newer than the death of their endpoints."""
        return len(self._stale)

    def wanted(self) -> dict[ModelName, tuple[int, float]]:
        """Model -> how many requests wait, and when it was last wanted; in every process of this router."""
        waiting = self.waiting()
        found = {name: (waiting.get(name, 0), at) for name, at in self.asked.items()}
        for asked in self._elsewhere.values():
            for name, (count, at) in asked.items():
                known, last = found.get(name, (0, 0.0))
                found[name] = known + count, max(last, at)
        return found

    def hear(self, process: int, asked: Mapping[ModelName, tuple[int, float]]) -> None:
        """What is wanted in another process; that anything begins or ends to be wanted is news."""
        before = self.wanted().keys()
        self._elsewhere[process] = asked
        if self.wanted().keys() != before:
            self._changes.note()

    async def until_served(self, route: Route, limit: int, until: float) -> bool | None:
        """Hold a request until its name's route has changed for good: True. None: `limit` requests wait already;
        False: it is `until`. A caller that goes away frees its place."""
        model = route.models[0]
        waiters = self._waiting.setdefault(model, {})
        if len(waiters) >= limit:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters[future] = route.name
        try:
            await asyncio.wait_for(future, max(0.0, until - self._clock()))
        except TimeoutError:
            return False
        finally:
            waiters.pop(future, None)
            if model in self.asked:
                self.asked[model] = self._clock()
            if not waiters and self._waiting.get(model) is waiters:
                del self._waiting[model]
        return True

    async def until_changed(self, route: Route, limit: int, until: float) -> bool:
        """Hold a request none of whose endpoints takes connections: the control plane withdraws what died, and what
        the next table says of the name is newer than what the request knows. False: `limit` such requests wait for
        the model already, or it is `until`."""
        if sum(other.models[0] == route.models[0] for other in self._stale.values()) >= limit:
            return False
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stale[future] = route
        try:
            await asyncio.wait_for(future, max(0.0, until - self._clock()))
        except TimeoutError:
            return False
        finally:
            del self._stale[future]
        return True

    def expected_s(self, route: Route) -> int:
        """When to ask again: what the last waking took, less what has passed of this one; else the table's word."""
        model = route.models[0]
        took_s, began = self._took_s.get(model), self._began.get(model)
        if route.state not in _WAKING or took_s is None or began is None:
            return route.retry_after_s
        left_s = took_s - (self._clock() - began)
        return math.ceil(left_s) if left_s > 0 else route.retry_after_s

    def installed(self, routing: Routing) -> None:
        """A snapshot is in force: whoever need not wait any longer goes on."""
        now = self._clock()
        for model in [m for m in self._began if is_served(routing, m)]:
            self._took_s[model] = max(1.0, now - self._began.pop(model))
        self.asked = {m: at for m, at in self.asked.items() if m in routing.models and not is_served(routing, m)}
        for waiters in list(self._waiting.values()):
            for future, name in list(waiters.items()):
                if not future.done() and not is_waking(routing.routes.get(name)):
                    future.set_result(None)
        for future, known in list(self._stale.items()):
            if not future.done() and routing.routes.get(known.name) is not known:
                future.set_result(None)

    def forget(self) -> None:
        """Let go of asks that nobody has repeated and nobody waits for; that is news."""
        now = self._clock()
        stale = [m for m, at in self.asked.items() if now - at >= ASK_KEPT_S and m not in self._waiting]
        for model in stale:
            del self.asked[model]
            self._began.pop(model, None)
        if stale:
            self._changes.note()


def is_waking(route: Route | None) -> bool:
    """Whether a request by this route may be held: its model has no endpoint and one may be expected."""
    return route is not None and not route.ranks and route.state in _WAKING


def is_served(routing: Routing, model: ModelName) -> bool:
    route = routing.routes.get(model)
    return route is not None and bool(route.ranks)
