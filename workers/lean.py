"""Imports what a worker needs without what only comes with it, before anything else imports it.

Temporal's SDK has a client of its own and loads gRPC's stubs only where that package happens to be installed for the
sake of another: 11 MB that a worker never uses. The command line that httpx brings needs `click` and `rich`, and so do
logs, but at a terminal only: 4 MB. Whoever imports these later gets them.
"""

import importlib
import sys


def lean(module: str, without: str) -> None:
    """Import `module` as if `without` were not installed. Does nothing where either has been imported before."""
    if without in sys.modules or module in sys.modules:
        return
    sys.modules[without] = None  # type: ignore[assignment]  # how Python itself says that there is none
    try:
        importlib.import_module(module)
    finally:
        del sys.modules[without]


lean("temporalio.worker", without="grpc")
lean("httpx", without="click")
if not sys.stderr.isatty():
    lean("structlog", without="rich")
