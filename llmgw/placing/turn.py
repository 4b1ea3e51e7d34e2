"""Whose turn it is: models in the order in which a plan gives them places."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from llmgw.ids import ModelName


@dataclass(order=True, slots=True)
class Turn:
    """One model's turn; the least comes first."""

    key: tuple[int, float, float, float, ModelName]
    """Rank and arrival, then what the order of a plan is about, and the name."""
    count: int = field(compare=False)
    urgent: int = field(compare=False)

    @property
    def model(self) -> ModelName:
        return self.key[4]


def united(turns: Sequence[Turn]) -> list[Turn]:
    """One turn per model."""
    by_model: dict[ModelName, Turn] = {}
    for turn in turns:
        by_model[turn.model] = merged(by_model.get(turn.model), turn, turn.count)
    return list(by_model.values())


def merged(before: Turn | None, turn: Turn, count: int) -> Turn:
    """What is lacking of a model, together with what was found lacking before."""
    more = 0 if before is None else before.count
    return Turn(turn.key, more + count, more + min(count, turn.urgent))
