"""Real routers in tests: one whose program is not here skips its test."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bench.traffic import rigs
from bench.traffic.proxies import AbsentError
from bench.traffic.rigs import RIGS, NativeRig, Rig

__all__ = ["RIGS", "NativeRig", "Rig", "running"]


@asynccontextmanager
async def running(kind: str, directory: Path) -> AsyncIterator[Rig]:
    """The router of a kind, started with nothing told."""
    async with AsyncExitStack() as stack:
        try:
            rig = await stack.enter_async_context(rigs.running(kind, directory))
        except AbsentError as error:
            pytest.skip(str(error))
        yield rig
