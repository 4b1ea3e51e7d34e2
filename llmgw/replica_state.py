"""The state of a replica, derived anew whenever it is asked for and never stored.

It follows from what was decided, the last report of its node, and whether that node is heard.
"""

from collections.abc import Mapping
from enum import StrEnum

from llmgw.wire import EngineState, ReplicaReport
from llmgw.world import Assignment, SilenceLevel


class ReplicaState(StrEnum):
    WAITING = "waiting"  # decided, and its node shows no process yet
    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    ASLEEP = "asleep"  # idle: its engine sleeps where it is, and wakes when it is asked for
    DRAINING = "draining"  # not wanted now: withdrawn, requests in flight end; can still be taken back
    STOPPING = "stopping"  # told to stop: no way back
    FAILED = "failed"
    UNKNOWN = "unknown"  # its node is not heard, and the routers hold no endpoint of it


def derive(
    assignment: Assignment, row: ReplicaReport | None, level: SilenceLevel | None, in_table: bool
) -> ReplicaState:
    """The state of `assignment`, whose node last reported `row` about it.

    `level` None: the node was not heard in this run (or its reports do not count); then what is published is taken as
    ready until something else is known.
    """
    if row is not None and row.state is EngineState.FAILED:
        return ReplicaState.FAILED
    if assignment.stop is not None:
        return ReplicaState.STOPPING if assignment.stop.commanded else ReplicaState.DRAINING
    if level is None:
        return ReplicaState.READY if in_table else ReplicaState.UNKNOWN
    if level is SilenceLevel.LOST:
        return ReplicaState.UNKNOWN
    if level is SilenceLevel.SUSPECT and not in_table:
        return ReplicaState.UNKNOWN
    if row is None:
        return ReplicaState.WAITING
    if row.asleep:
        return ReplicaState.ASLEEP
    falls_asleep = assignment.sleep is not None and not assignment.sleep.ends
    return ReplicaState.DRAINING if falls_asleep else _AS_REPORTED[row.state]


_AS_REPORTED: Mapping[EngineState, ReplicaState] = {
    EngineState.STARTING: ReplicaState.STARTING,
    EngineState.LOADING: ReplicaState.LOADING,
    EngineState.READY: ReplicaState.READY,
    EngineState.STOPPING: ReplicaState.STOPPING,
    EngineState.FAILED: ReplicaState.FAILED,
}
