from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agent.running import Agent, agent_in


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    """A real agent with four declared devices and nothing on it."""
    async with agent_in(tmp_path) as made:
        yield made
