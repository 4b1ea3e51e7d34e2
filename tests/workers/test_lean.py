"""A worker does not load what it never uses."""

import subprocess
import sys


def test_a_worker_loads_no_grpc_stubs_and_others_still_can() -> None:
    code = "import sys, workers.main; print('grpc' in sys.modules, 'temporalio.worker' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["False", "True"]
