"""A replica in words and as the row of a report, and what this program is called."""

import signal
from importlib import metadata

from agent.ledger import Record
from llmgw.wire import EngineState, ReplicaReport


def row_of(record: Record, state: EngineState, reason: str, url: str, *, asleep: bool = False) -> ReplicaReport:
    """What lasts of a replica's row; ages and use are added when it is told."""
    failure = record.failure
    return ReplicaReport(
        replica=record.replica,
        model=record.start.model,
        mark=record.mark,
        fingerprint=record.start.fingerprint,
        attempt=record.start.attempt,
        state=state,
        claims=record.start.claims,
        served_name=record.start.launch.served_name,
        url=url,
        port=record.port,
        pid=record.pid,
        was_ready=record.was_ready,
        exit_code=failure.exit_code if failure else None,
        reason=reason[:300],
        log_tail=failure.log_tail if failure else (),
        rests=record.asleep,
        asleep=asleep,
    )


def how_it_ended(exit_code: int | None, state: EngineState) -> str:
    if exit_code is None:
        return f"the engine ended while {state}"
    if exit_code >= 0:
        return f"the engine ended with exit code {exit_code} while {state}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = str(-exit_code)
    return f"the engine was killed by {name} while {state}"


def own_version() -> str:
    try:
        return metadata.version("llmgw")
    except metadata.PackageNotFoundError:
        return "unknown"
