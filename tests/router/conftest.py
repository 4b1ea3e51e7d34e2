"""A router per test, with a state directory of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .rig import Engine, Rig, running, started


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with started(tmp_path / "state") as running_router:
        yield running_router


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with running(Engine()) as one:
        yield one


@pytest.fixture
async def other() -> AsyncIterator[Engine]:
    async with running(Engine("m-2")) as two:
        yield two
