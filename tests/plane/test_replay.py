"""Histories recorded with earlier code replay with this code: an upgrade never wedges a fleet in flight.

When this fails after a change of workflow code: guard the change with `workflow.patched`, or, before the first release
of that code, record anew with `python -m tests.histories.record`.
"""

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from workers.control import runner
from workflows.converting import data_converter
from workflows.guard import GuardInterceptor
from workflows.reconcile import ReconcileWorkflow

RECORDED = sorted((Path(__file__).parent.parent / "histories").glob("*.json"))


def test_there_are_histories_of_every_scene() -> None:
    assert [path.stem for path in RECORDED] == ["edits", "failures", "long_run"]


def _history(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem, path.read_text())


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
async def test_a_recorded_history_replays(path: Path) -> None:
    replayer = Replayer(
        workflows=[ReconcileWorkflow],
        data_converter=data_converter,
        workflow_runner=runner(),
        interceptors=[GuardInterceptor()],
    )
    result = await replayer.replay_workflow(_history(path))
    assert result.replay_failure is None
