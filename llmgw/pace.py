"""How soon what was seen is told to the workflow: news at once after quiet, and gathered where they never cease."""

from dataclasses import dataclass

WINDOW_S = 0.2
AT_ONCE = 3
"""Observations that may follow each other at once after quiet (a request, the engine that it waits for, and its end);
beyond that they are WINDOW_S apart, and what changes meanwhile comes in one."""


@dataclass
class Pace:
    """A bucket of AT_ONCE, of which one comes back each WINDOW_S."""

    left: float = AT_ONCE
    at_s: float = float("-inf")

    def wait_s(self, now_s: float) -> float:
        """Until the next observation may leave."""
        lacking = 1.0 - self._left(now_s)
        return lacking * WINDOW_S if lacking > 1e-6 else 0.0

    def take(self, now_s: float) -> None:
        """One leaves."""
        self.left, self.at_s = max(0.0, self._left(now_s) - 1.0), now_s

    def _left(self, now_s: float) -> float:
        return min(AT_ONCE, self.left + (now_s - self.at_s) / WINDOW_S)
