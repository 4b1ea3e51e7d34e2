"""What an agent says is wrong with its own node: few words, told seldom, so that what comes and goes fills no history.

New words are told at once. What follows is told as it is then, after a rest that doubles with each change and becomes
short again after quiet. It decides nothing; nothing is decided by it.
"""

from collections.abc import Sequence

from llmgw.calls import cut

MOST = 4
FIRST_REST_S = 60.0
LONGEST_REST_S = 3600.0


def shortened(problems: Sequence[str]) -> tuple[str, ...]:
    """At most `MOST`, each cut."""
    return tuple(cut(text) for text in problems[:MOST])


class Complaints:
    """Of one agent. Moments are on the caller's clock."""

    def __init__(self) -> None:
        self.told: tuple[str, ...] = ()
        self._newest: tuple[str, ...] = ()
        self._told_s = float("-inf")
        self._rest_s = FIRST_REST_S

    def hear(self, problems: Sequence[str], now_s: float) -> tuple[str, ...]:
        """What is to be told, now that the agent says `problems`."""
        self._newest = shortened(problems)
        if self.is_due(now_s):
            still_s = now_s - self._told_s
            calm = still_s >= 2 * self._rest_s
            self._rest_s = FIRST_REST_S if calm else min(LONGEST_REST_S, 2 * self._rest_s)
            self.told, self._told_s = self._newest, now_s
        return self.told

    def is_due(self, now_s: float) -> bool:
        """Whether something else is to be told than was."""
        return self._newest != self.told and now_s - self._told_s >= self._rest_s

    def hear_again(self, now_s: float) -> tuple[str, ...]:
        """As `hear`, of what the agent said last."""
        return self.hear(self._newest, now_s)
