"""What of an observation only shows our own orders: it is evidence, but nothing has to be decided for it at once."""

from llmgw.observation import NodeSeen, RouterSeen, SilenceSeen, TroubleSeen
from llmgw.wire import EngineState, ReplicaReport

ECHO_S = 1.5
"""What only shows what we have just ordered waits this long for the news that nearly always follow it, and comes in one
observation with them. Well under the time after which an order that does not show is repeated (`llmgw.outbox`)."""
TABLE_ECHO_S = 4.0
"""The same of a router that took a table: its answer has said so, and an observation costs seven events."""


def is_echo(before: NodeSeen | RouterSeen | SilenceSeen | TroubleSeen | None, after: object) -> bool:
    """Whether a change only shows what we ourselves have just ordered: a start begun, a stop begun, a table taken.

    It is still told, since it is evidence; but nothing has to be decided for it at once.
    """
    if isinstance(before, NodeSeen) and isinstance(after, NodeSeen):
        rows = {row.replica: row for row in before.replicas}
        new = {row.replica: row for row in after.replicas}
        gone = rows.keys() - new.keys()
        # What had failed goes when its stop is told, and the answer has said so (`CommandResult.gone`).
        is_told = all(rows[id_].state is EngineState.FAILED for id_ in gone)
        return is_told and before.boot == after.boot and all(_begun(rows.get(id_), row) for id_, row in new.items())
    if isinstance(before, RouterSeen) and isinstance(after, RouterSeen):
        same_use = (before.draining, before.idle, before.asked) == (after.draining, after.idle, after.asked)
        return before.instance == after.instance and same_use and after.held is not None
    return False


def is_taken_table(before: object, after: object) -> bool:
    """Whether an echo shows nothing but a newer table of ours at a router, as its answer to that table did."""
    if not (isinstance(before, RouterSeen) and isinstance(after, RouterSeen)) or before.held is None:
        return False
    was, now = before.held.token, None if after.held is None else after.held.token
    return now is not None and (was.installation, was.epoch) == (now.installation, now.epoch) and was.seq < now.seq


def _begun(before: ReplicaReport | None, row: ReplicaReport) -> bool:
    if before == row:
        return True
    if row.state is EngineState.STOPPING:
        return True
    return row.state in (EngineState.STARTING, EngineState.LOADING) and (before is None or not before.was_ready)
