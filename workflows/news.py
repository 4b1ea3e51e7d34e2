"""What has happened and is not taken up yet, in an order that a replay has too.

A plan is made by a local activity, and its result may be handed over together with signals and activity results that
came meanwhile, or long before them: at replay it comes as early as it can. Signals and updates of one moment are
handed over before its other events, and may let the workflow go on in between. So news of one moment and kind are
taken up together, and no others with them: what the workflow commands depends on the events alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

Happened = Callable[[], bool]
"""Records it; whether it calls for a plan."""


@dataclass
class News:
    _queue: list[tuple[tuple[int, bool], Happened]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, task: int, happened: Happened, *, is_input: bool = False) -> None:
        """`task`: the workflow task in which it came, by the length of the history at its start, which is the same at
        replay for all that an event brings. `is_input`: it is a signal or an update."""
        self._queue.append(((task, not is_input), happened))

    def next(self) -> list[Happened]:
        """The oldest, with those of the same moment and kind."""
        moment = self._queue[0][0] if self._queue else None
        count = next((i for i, (at, _) in enumerate(self._queue) if at != moment), len(self._queue))
        taken, self._queue = self._queue[:count], self._queue[count:]
        return [happened for _, happened in taken]
