"""What an agent says is wrong with its own node: few words, told seldom, so that what comes and goes fills no history.

New words are told at once, and with whatever else there is to tell of the node. What follows is told as it is then,
after a rest that doubles with each change and becomes short again after quiet. Nothing is decided by it.
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
        self.newest: tuple[str, ...] = ()
        self._told: tuple[str, ...] = ()
        self._told_s = float("-inf")
        self._rest_s = FIRST_REST_S

    def hear(self, problems: tuple[str, ...]) -> None:
        self.newest = problems

    def is_due(self, now_s: float) -> bool:
        """Whether the newest words are worth being told by themselves."""
        return self.newest != self._told and now_s - self._told_s >= self._rest_s

    def note_told(self, now_s: float, *, alone: bool) -> None:
        """The newest words were told: by themselves, or beside other news, which costs nothing."""
        if self.newest == self._told:
            return
        if alone:
            calm = now_s - self._told_s >= 2 * self._rest_s
            self._rest_s = FIRST_REST_S if calm else min(LONGEST_REST_S, 2 * self._rest_s)
        self._told, self._told_s = self.newest, now_s
