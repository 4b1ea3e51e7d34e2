"""A worker does not load what it never uses."""

import subprocess
import sys


def test_a_worker_loads_neither_grpc_nor_rich() -> None:
    names = ("grpc", "rich", "temporalio.worker", "structlog")
    code = f"import sys, workers.main; print(*[name in sys.modules for name in {names}])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["False", "False", "True", "True"]


def test_what_was_left_out_can_be_imported_afterwards() -> None:
    code = "import workers.main, rich.console; print(rich.console.Console.__name__)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["Console"]
