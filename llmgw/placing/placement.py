"""The answer of a plan: what is started where, what gives way, and what found no place."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmgw.ids import ModelName
from llmgw.placing.holding import Holding


@dataclass(frozen=True, slots=True)
class Displaced:
    """A replica that gives way, and for which model."""

    holding: Holding
    by: ModelName


@dataclass(frozen=True, slots=True)
class Placing:
    """The answer: places per new replica in the order of their decision, what gives way, and what found no place."""

    starts: tuple[Holding, ...] = ()
    displaced: tuple[Displaced, ...] = ()
    lacking: Mapping[ModelName, int] = field(default_factory=dict)
