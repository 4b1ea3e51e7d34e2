"""What has happened and is not taken up yet, each under a number that it has at replay as well.

A plan is made by a local activity. At replay its result may be handed over before, or together with, what came while it
was made, and workflow tasks may be cut otherwise than they were. So which news a plan was made on is read from no order
of events: its result tells their numbers, and exactly those are taken up with it.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from workflows.fleet_state import FleetState


class Weight(Enum):
    PLAN = auto()
    """Calls for a plan."""
    ANSWER = auto()
    """A node took its commands, which changes nothing but when they are repeated."""
    PART = auto()
    """Of an observation, the rest of which is on its way."""


def nothing(state: FleetState) -> None:
    """Of what leaves no trace in the state."""


@dataclass(frozen=True)
class Happened:
    record: Callable[[FleetState], None] = nothing
    """Puts it into the state. It may be done on a copy, and once more; it gives no command."""
    settle: Callable[[], None] = lambda: None
    """What the loop keeps besides the state; done once, when it is taken up."""
    weight: Weight = Weight.PLAN


@dataclass(frozen=True)
class Preview:
    """The state as it is with all that has happened, for a plan."""

    state: FleetState
    seen: tuple[int, ...]


@dataclass
class News:
    _pending: dict[int, Happened] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._pending)

    def add(self, number: int, happened: Happened) -> None:
        self._pending[number] = happened

    def weights(self) -> Counter[Weight]:
        return Counter(happened.weight for happened in self._pending.values())

    def has(self, numbers: Iterable[int]) -> bool:
        return self._pending.keys() >= set(numbers)

    def preview(self, state: FleetState, now_s: float) -> Preview:
        """At the workflow's present time."""
        made = copy.copy(state)  # its values are replaced, never changed
        made.at(now_s)
        for happened in self._pending.values():
            happened.record(made)
        return Preview(made, tuple(self._pending))

    def take(self, numbers: Iterable[int]) -> Sequence[Happened]:
        """Those, in that order; they are pending no more. Raises KeyError for what has not happened."""
        return [self._pending.pop(number) for number in numbers]

    def take_all(self) -> Sequence[Happened]:
        return self.take(tuple(self._pending))
