"""What one replica is at present: its record, its state, and what is told of it.

It neither looks at the engine nor touches it; `agent.watching`, `agent.ending` and `agent.replica` do, and keep here
what they find.
"""

import asyncio

from agent.ledger import Record
from agent.surroundings import Surroundings
from agent.telling import row_of
from llmgw.wire import EngineState, EngineUsage, ReplicaReport


class Course:
    def __init__(self, record: Record, around: Surroundings) -> None:
        self.record = record
        self.state = EngineState.STARTING
        self.reason = ""
        self.stuck = ""
        """What survived KILL, or memory that did not come back; its devices are quarantined while this is set."""
        self.freed = around.look_at_devices is None or not record.start.claims
        """Its devices need no proof beyond its processes, or the proof was given."""
        self.looked = asyncio.Event()
        """Set once the engine's own answer, or its end, decided the state."""
        self.since_s = now_s()
        """When it came into its state, on the loop's clock."""
        self.host = around.settings.probe_hosts[0]
        """Where it answered last."""
        self._around = around
        self._told: tuple[Record, EngineState, str, str, bool, ReplicaReport] | None = None

    def update(self, **changes: object) -> None:
        """Replace fields of the record; the caller saves."""
        self.record = self.record.model_copy(update=changes)

    def become(self, state: EngineState, reason: str) -> None:
        if (state, reason) == (self.state, self.reason):
            return
        if state is not self.state:
            self.since_s = now_s()
        self.state, self.reason = state, reason
        self.tell()

    def tell_stuck(self, reason: str) -> None:
        """What holds its devices though it should have ended; empty when nothing does any more."""
        if reason != self.stuck:
            self.stuck = reason
            self.tell()

    def tell(self) -> None:
        """Its row may have changed."""
        raise NotImplementedError

    def row(self, usage: EngineUsage | None, *, asleep: bool) -> ReplicaReport:
        """What lasts is made once per change: reports of hundreds of replicas leave at every change of one."""
        seen = (self.record, self.state, self.reason, self.stuck, asleep)
        if self._told is None or self._told[0] is not self.record or self._told[1:5] != seen[1:]:
            url = self.url(self._around.settings.reach_host)
            row = row_of(self.record, self.state, self.stuck or self.reason, url, asleep=asleep)
            self._told = (*seen, row)
        return self._told[5].model_copy(update={"state_age_s": round(now_s() - self.since_s, 3), "usage": usage})

    def url(self, host: str) -> str:
        return f"http://{f'[{host}]' if ':' in host else host}:{self.record.port}"


def now_s() -> float:
    """The loop's clock."""
    return asyncio.get_running_loop().time()
