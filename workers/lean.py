"""Imports Temporal's SDK without its gRPC stubs for Python, before anything else imports it.

The SDK has a client of its own and loads them only where the package `grpc` happens to be installed for the sake of
another: 11 MB that a worker never uses. Whoever imports `grpc` itself later gets it.
"""

import importlib
import sys

MODULE = "grpc"


def lean() -> None:
    """Import the SDK as if `grpc` were not installed. Does nothing where either has been imported before."""
    if MODULE in sys.modules or "temporalio" in sys.modules:
        return
    sys.modules[MODULE] = None  # type: ignore[assignment]  # how Python itself says that there is none
    try:
        importlib.import_module("temporalio.worker")
    finally:
        del sys.modules[MODULE]


lean()
