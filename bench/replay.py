"""Replay of recorded runs with the code that is there now: `python -m bench.replay FOLDER`. Exit 1 when one differs.

Takes what `bench.soak --histories` and `temporal workflow show --output json` write.
"""

import asyncio
import sys
from pathlib import Path

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from bench.report import finished
from workers.control import runner
from workflows.converting import data_converter
from workflows.guard import GuardInterceptor
from workflows.reconcile import ReconcileWorkflow


async def differing(histories: list[WorkflowHistory]) -> list[str]:
    """Why each run that does not replay does not."""
    replayer = Replayer(
        workflows=[ReconcileWorkflow],
        data_converter=data_converter,
        workflow_runner=runner(),
        interceptors=[GuardInterceptor()],
    )
    results = [await replayer.replay_workflow(history, raise_on_replay_failure=False) for history in histories]
    return [f"{r.history.run_id}: {r.replay_failure}" for r in results if r.replay_failure is not None]


def main(folder: str) -> int:
    files = sorted(Path(folder).glob("*.json"))
    problems = asyncio.run(differing([WorkflowHistory.from_json(file.stem, file.read_text()) for file in files]))
    print(f"{len(files)} runs, {len(problems)} differ", *problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    finished(main(sys.argv[1]))
