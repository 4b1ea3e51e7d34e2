"""A mistake of the agent in work that never ends is told, and the work goes on."""

import asyncio

import pytest

from agent import again as again_module
from agent.again import again


async def test_what_breaks_is_told_and_begun_again_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again_module, "AGAIN_S", 0.0)
    told: list[str] = []
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun < 4:
            raise RecursionError(f"broke {begun}")

    await again(work, lambda error: told.append(str(error)))
    assert (begun, told) == (4, ["broke 1", "broke 2", "broke 3"])


async def test_what_is_cancelled_stays_cancelled() -> None:
    told: list[Exception] = []
    task = asyncio.create_task(again(asyncio.Event().wait, told.append))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == []
