"""How long endpoints have been idle, where a router tells only counters: since the counter last moved."""

import time
from collections.abc import Callable

from llmgw.ids import ReplicaId
from llmgw.wire import EngineUsage


class Counting:
    """Counters by endpoint. The idle clock of one that was never seen before starts now: never too early."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[ReplicaId, tuple[int, float]] = {}

    def use(self, endpoint: ReplicaId, *, counter: int, in_flight: int) -> EngineUsage:
        """What this reading says: in use, or idle since the counter last moved."""
        now = self._clock()
        known = self._last.get(endpoint)
        if known is None or known[0] != counter or in_flight > 0:
            known = self._last[endpoint] = (counter, now)
        return EngineUsage(in_flight=in_flight, idle_s=round(now - known[1], 3))

    def keep(self, endpoints: set[ReplicaId]) -> None:
        """Forget all others."""
        self._last = {id_: reading for id_, reading in self._last.items() if id_ in endpoints}
