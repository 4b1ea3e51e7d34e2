"""Histories recorded with earlier code replay with this code: an upgrade never wedges a fleet in flight.

When this fails after a change of workflow code: guard the change with `workflow.patched`, or, before the first release
of that code, record anew with `python -m tests.histories.record`.
"""

import random
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from workers.control import runner
from workflows.converting import data_converter
from workflows.guard import GuardInterceptor
from workflows.reconcile import ReconcileWorkflow

from .earlier import told_earlier

RECORDED = sorted((Path(__file__).parent.parent / "histories").glob("*.json"))


def test_there_are_histories_of_every_scene() -> None:
    assert [path.stem for path in RECORDED] == ["edits", "failures", "long_run"]


def _history(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem, path.read_text())


def _replayer() -> Replayer:
    return Replayer(
        workflows=[ReconcileWorkflow],
        data_converter=data_converter,
        workflow_runner=runner(),
        interceptors=[GuardInterceptor()],
    )


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
async def test_a_recorded_history_replays(path: Path) -> None:
    result = await _replayer().replay_workflow(_history(path))
    assert result.replay_failure is None


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
async def test_it_replays_as_well_when_things_are_told_earlier_than_they_were(path: Path) -> None:
    """Tasks may be cut otherwise at replay: a decision tells what it has seen, and no order of events does."""
    told = [told_earlier(_history(path), random.Random(seed)) for seed in range(5)]
    assert any(moved for _, moved in told)
    for otherwise, _ in told:
        result = await _replayer().replay_workflow(otherwise)
        assert result.replay_failure is None
