"""The state of a replica, for everything that can be known about it."""

import itertools

import pytest

from llmgw.replica_state import ReplicaState, derive
from llmgw.wire import EngineState
from llmgw.world import SilenceLevel, StopCause, StopIntent

from .worlds import NOW, assignment, row

HEARD, SUSPECT, LOST = SilenceLevel.HEARD, SilenceLevel.SUSPECT, SilenceLevel.LOST
WISH = StopIntent(StopCause.SURPLUS, "needs 1 replica", NOW, 3)
TOLD = StopIntent(StopCause.SURPLUS, "needs 1 replica", NOW, 3, commanded=True, commanded_s=NOW)


@pytest.mark.parametrize(
    ("stop", "reported", "level", "in_table", "state"),
    [
        (None, None, HEARD, False, ReplicaState.WAITING),
        (None, EngineState.STARTING, HEARD, False, ReplicaState.STARTING),
        (None, EngineState.LOADING, HEARD, False, ReplicaState.LOADING),
        (None, EngineState.READY, HEARD, True, ReplicaState.READY),
        (None, EngineState.READY, HEARD, False, ReplicaState.READY),
        (None, EngineState.READY, SUSPECT, False, ReplicaState.UNKNOWN),
        (None, EngineState.READY, SUSPECT, True, ReplicaState.READY),
        (None, EngineState.READY, LOST, False, ReplicaState.UNKNOWN),
        (None, None, None, True, ReplicaState.READY),
        (None, None, None, False, ReplicaState.UNKNOWN),
        (WISH, EngineState.READY, HEARD, False, ReplicaState.DRAINING),
        (WISH, None, None, True, ReplicaState.DRAINING),
        (TOLD, EngineState.READY, HEARD, False, ReplicaState.STOPPING),
        (TOLD, None, LOST, False, ReplicaState.STOPPING),
        (None, EngineState.STOPPING, HEARD, False, ReplicaState.STOPPING),
        (None, EngineState.FAILED, HEARD, True, ReplicaState.FAILED),
        (TOLD, EngineState.FAILED, HEARD, False, ReplicaState.FAILED),
    ],
)
def test_the_state_follows_from_wish_report_and_silence(
    stop: StopIntent | None,
    reported: EngineState | None,
    level: SilenceLevel | None,
    in_table: bool,
    state: ReplicaState,
) -> None:
    of = assignment("qwen-1", "qwen", stop=stop)
    assert derive(of, None if reported is None else row("qwen-1", "qwen", reported), level, in_table) is state


def test_every_combination_has_a_state() -> None:
    stops, reports = (None, WISH, TOLD), (None, *EngineState)
    for stop, reported, level, in_table in itertools.product(stops, reports, (None, *SilenceLevel), (True, False)):
        found = None if reported is None else row("qwen-1", "qwen", reported)
        assert derive(assignment("qwen-1", "qwen", stop=stop), found, level, in_table) in ReplicaState
