"""One engine's sleep: brought where it is to be, by its own interface, and asked nothing that would wake it.

It says how things are; `agent.replica` keeps the state. What cannot be put to sleep serves on and says why: the plane
sends it nothing, and loses only what its sleep would have given up.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from agent.readiness import Prober
from llmgw.wire import EnginePost, LaunchSpec

ASLEEP = "asleep"
_LOOK_S = 30.0
"""Between two looks at a sleeping engine; a word from the plane ends the wait."""
_RETRY_S = 1.0


class Sleep:
    def __init__(self, prober: Prober, launch: LaunchSpec, *, asleep: bool, clock: Callable[[], float]) -> None:
        self.asleep = asleep
        """As far as is known."""
        self.heard = False
        """It answered the last question."""
        self.reason = ""
        """What is to be said of it beside its state."""
        self._prober = prober
        self._paths = launch.sleep
        self._limit_s = launch.start_limit_s
        self._clock = clock
        self._news = asyncio.Event()
        self._wakes_since_s: float | None = None
        self._fresh = True
        """Nothing was asked yet: it may sleep although nobody remembers it."""

    def nudge(self) -> None:
        """There is another word from the plane."""
        self._news.set()

    async def wait(self, seconds: float) -> None:
        """So long, or until there is news."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)
        self._news.clear()

    async def pause(self, wanted: bool) -> None:
        """Until the next look at what sleeps."""
        await self.wait(min(_LOOK_S, self._limit_s / 4) if wanted and self.heard else _RETRY_S)

    def why_lost(self) -> str:
        """Why an engine that does not wake up is to be ended; empty while it may still."""
        if self._wakes_since_s is None or self._clock() - self._wakes_since_s < self._limit_s:
            return ""
        return f"did not wake up within {self._limit_s:g} s: {self.reason}"

    async def follow(self, base: str, wanted: bool, in_use: Callable[[], Awaitable[bool]]) -> bool:
        """Bring the engine at `base` to sleep, or wake it; whether it sleeps now. `in_use` is asked before it is put to
        sleep, since that would cut requests which no router has sent."""
        if self._paths is None or not (wanted or self.asleep or self._fresh):
            self.reason = ""
            return False
        found = await self._prober.is_asleep(base, self._paths)
        self.heard, self._fresh = found is not None, False
        self.asleep = self.asleep if found is None else found
        if wanted:
            self._wakes_since_s = None
        problem = await self._move(base, wanted, in_use) if self.asleep is not wanted else ""
        if not problem:
            self.asleep = wanted
        if not self.asleep:
            self._wakes_since_s = None
            self.reason = f"is not put to sleep: {problem}"[:300] if wanted else ""
        elif wanted:
            self.reason = ASLEEP
        else:
            self._wakes_since_s = self._clock() if self._wakes_since_s is None else self._wakes_since_s
            self.reason = f"wakes up: {problem}"[:300]
        return self.asleep

    async def _move(self, base: str, wanted: bool, in_use: Callable[[], Awaitable[bool]]) -> str:
        """Why it is not where it is wanted; empty when it is."""
        if self._paths is None:
            return "its engine has no way to"
        if not self.heard and wanted:
            return f"{self._paths.told} gives no answer"
        if wanted and await in_use():
            return "it works on requests that no router sent"
        if wanted:
            return await self._prober.bring(base, EnginePost(path=self._paths.sleep))
        for step in (EnginePost(path=self._paths.wake), *self._paths.then):
            if problem := await self._prober.bring(base, step, self._limit_s):
                return problem
        return ""
