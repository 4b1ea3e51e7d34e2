"""What the node says, and when it says something new.

A revision is made only for what a decision can use: ages, use and free disk are sampled when a report is sent, and
make none. Those who hold a stream are woken by it, once per turn of the loop however much changed.
"""

import asyncio
import secrets

from llmgw.ids import DeviceId, ReplicaId
from llmgw.wire import Inventory, NodeReport, ReplicaReport, Token, WeightsReport


class Revisions:
    """Counts what is new. `instance` names this run of the agent."""

    def __init__(self) -> None:
        self.instance = secrets.token_hex(8)
        self.number = 1
        self.told = 0
        """The highest revision that a stream has sent."""
        self._changed = asyncio.Event()
        self._rows: dict[ReplicaId, ReplicaReport] = {}
        self._head: tuple[Inventory, Token | None, dict[DeviceId, str], tuple[str, ...]] | None = None
        self._weights: tuple[WeightsReport, ...] = ()

    def note_replica(self, row: ReplicaReport) -> None:
        lasting = row.model_copy(update={"state_age_s": 0.0, "usage": None})
        if self._rows.get(row.replica) != lasting:
            self._rows[row.replica] = lasting
            self._raise()

    def note_gone(self, replica: ReplicaId) -> None:
        if self._rows.pop(replica, None) is not None:
            self._raise()

    def note_head(
        self,
        inventory: Inventory,
        token: Token | None,
        quarantined: dict[DeviceId, str],
        problems: tuple[str, ...] = (),
    ) -> None:
        head = (inventory, token, quarantined, problems)
        if head != self._head:
            self._head = head
            self._raise()

    def note_weights(self, rows: tuple[WeightsReport, ...]) -> None:
        lasting = tuple(_coarse(row) for row in rows)
        if lasting != self._weights:
            self._weights = lasting
            self._raise()

    def known(self) -> tuple[ReplicaId, ...]:
        """The replicas that may be shown: those whose acceptance is on disk."""
        return tuple(self._rows)

    def is_news(self, instance: str, revision: int) -> bool:
        return (instance, revision) != (self.instance, self.number)

    async def wait(self, seconds: float) -> None:
        """Until something is new, at most `seconds`."""
        waiting = self._changed
        try:
            await asyncio.wait_for(waiting.wait(), seconds)
        except TimeoutError:
            return

    def wake_all(self) -> None:
        """Let every stream look up, without news (the agent ends)."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _raise(self) -> None:
        self.number += 1
        self.wake_all()


def _coarse(row: WeightsReport) -> WeightsReport:
    """A pull's bytes make a revision with every hundredth of the way."""
    step = max(1, (row.total_bytes or 2**30) // 100)
    done = row.bytes - row.bytes % step if row.pulling else row.bytes
    return row.model_copy(update={"bytes": done, "idle_s": None})


def as_line(report: NodeReport) -> bytes:
    return report.model_dump_json(exclude_none=True).encode() + b"\n"
