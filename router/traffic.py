"""What goes on now: the snapshot in force, requests in flight, models asked for in vain, the state's revision.

Owned by one event loop. The one place where a snapshot is put in force and where a request in flight ends, so that
nothing is picked and not counted, or withdrawn and forgotten before its last request is over. Never does I/O.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from llmgw.ids import ModelName
from router.asks import Asks
from router.changes import Changes
from router.routing import Route, Routing
from router.uses import Key, Use

GONE_KEPT_S = 600.0
"""Counts of what left the tables stay readable this long, so that a scraper sees their last values."""

FIRST_BYTE_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass(slots=True)
class ModelCounts:
    """Counts of one model. `first_bytes` has one bucket more than `FIRST_BYTE_BUCKETS_S`, for what is above."""

    misses: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    first_bytes: list[int] = field(default_factory=lambda: [0] * (len(FIRST_BYTE_BUCKETS_S) + 1))
    first_byte_sum_s: float = 0.0
    gone_at: float | None = None

    def first_byte(self, seconds: float) -> None:
        self.first_bytes[bisect_left(FIRST_BYTE_BUCKETS_S, seconds)] += 1
        self.first_byte_sum_s += seconds


class Traffic:
    """`clock`: monotonic seconds, the event loop's own."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.changes = Changes()
        self.routing = Routing()
        self.withdrawn: dict[Key, Use] = {}
        """Endpoints that left the tables with requests still in flight."""
        self.asks = Asks(clock, self.changes)
        self.idle: frozenset[Key] = frozenset()
        """Watched endpoints that have been idle for long enough, as last told."""
        self.models: dict[ModelName, ModelCounts] = {}
        self.misses: Counter[str] = Counter()
        """Misses that no known model can be blamed for, by cause."""
        self._gone: dict[Key, tuple[float, Use]] = {}

    def install(self, routing: Routing) -> None:
        """Put a snapshot in force: from the next pick on, and for whoever waits for the state."""
        now = self.clock()
        old, self.routing = self.routing, routing
        for key in self.withdrawn.keys() & routing.candidates.keys():
            self.withdrawn.pop(key).withdrawn = False
        for key in old.candidates.keys() - routing.candidates.keys():
            self._withdraw(old.candidates[key].use, now)
        for name, counts in self.models.items():
            if name not in routing.models:
                counts.gone_at = counts.gone_at or now
        for name in routing.models:
            self.models.setdefault(name, ModelCounts()).gone_at = None
        self.asks.installed(routing)
        self.idle = self._idle_now()
        self.forget()
        self.changes.note()

    def finish(self, use: Use) -> None:
        """A request that was picked is over, however it ended."""
        use.release(self.clock())
        if use.withdrawn:
            self._let_go(use)

    def drained(self) -> None:
        """Look at withdrawn endpoints whose last request may have ended in another process."""
        for use in list(self.withdrawn.values()):
            self._let_go(use)

    def _let_go(self, use: Use) -> None:
        if use.in_flight == 0:
            use.withdrawn = False
            del self.withdrawn[use.key]
            self._gone[use.key] = self.clock(), use
            self.changes.note()

    def tick(self) -> None:
        """What changes by the mere passing of time, looked at each second or so."""
        self.asks.forget()
        idle = self._idle_now()
        if idle != self.idle:
            self.idle = idle
            self.changes.note()

    def _idle_now(self) -> frozenset[Key]:
        now = self.clock()
        return frozenset(use.key for use, limit_s in self.routing.watched if use.idle_s(now) >= limit_s)

    def counts(self, route: Route) -> ModelCounts:
        """Counts of the model a route leads to; of the first one where an alias leads to several."""
        return self.models[route.models[0]]

    def everything_used(self) -> list[Use]:
        """Counts in force, withdrawn, and gone not long ago; one per endpoint, also where a table is put in force
        meanwhile. Safe in any thread."""
        gone = [use for _, use in list(self._gone.values())]
        in_force = [candidate.use for candidate in self.routing.candidates.values()]
        return list({use.key: use for use in [*gone, *list(self.withdrawn.values()), *in_force]}.values())

    def forget(self) -> None:
        """Let go of counts that have been gone for long."""
        now = self.clock()
        self._gone = {
            key: (at, use)
            for key, (at, use) in self._gone.items()
            if now - at < GONE_KEPT_S and key not in self.routing.candidates
        }
        self.models = {n: c for n, c in self.models.items() if c.gone_at is None or now - c.gone_at < GONE_KEPT_S}

    def _withdraw(self, use: Use, now: float) -> None:
        if use.in_flight:
            use.withdrawn = True
            self.withdrawn[use.key] = use
        else:
            self._gone[use.key] = now, use
