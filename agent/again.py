"""Work that goes on for as long as the agent does: a mistake of ours in it is told, and it is begun again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

AGAIN_S = 1.0

Work: TypeAlias = Callable[[], Awaitable[None]]
"""May be begun anew at any point of it, as after a restart of the agent."""
KeepAt: TypeAlias = Callable[[Work, str], asyncio.Task[None]]
"""Begins a task of this name, again where it breaks."""


async def again(work: Work, broke: Callable[[Exception], None]) -> None:
    """`work` to its end, however often it breaks on the way."""
    while True:
        try:
            return await work()
        except Exception as error:
            broke(error)
            await asyncio.sleep(AGAIN_S)
