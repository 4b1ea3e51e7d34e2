"""What every operator order is: a frozen wish that checks itself against the world and changes only `world.wishes`.

An order is idempotent: one whose wish is already in force gives back the very same world. Nothing here reads a clock,
sends anything, or looks at raw input. The orders themselves are in `llmgw.orders`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictStr

from llmgw.catalog import DAY_S, IDENTIFIER, Seconds
from llmgw.problems import quoted
from llmgw.sentences import cut
from llmgw.world import Wishes, World

REPEAT_S = 10.0
"""Two equal orders with a time limit, given within this time, are one order delivered twice; later ones extend it."""

Problems = tuple[str, ...]
K = TypeVar("K")
V = TypeVar("V")


def printable(text: str) -> str:
    """`text`; ValueError when it holds control characters."""
    if any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise ValueError("must not hold control characters")
    return text


Name = Annotated[StrictStr, Field(min_length=1, max_length=256), AfterValidator(printable)]
Identifier = Annotated[StrictStr, Field(pattern=IDENTIFIER)]
Limit = Annotated[Seconds, Field(gt=0, le=30 * DAY_S)]
Path = Annotated[StrictStr, Field(min_length=1, max_length=1024), AfterValidator(printable)]


class Order(BaseModel, ABC):
    """One wish of an operator. Fields are in the order in which they may be given without names."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: ClassVar[str]
    """As signal, update and command name."""
    description: ClassVar[str]
    """One line for Temporal's UI and the command's help."""
    example: ClassVar[Mapping[str, object]]
    """A valid one, as JSON object."""

    def check(self, world: World) -> Problems:  # noqa: ARG002 - part of the contract
        """Every reason why this cannot be asked of `world`, as sentences that say how to mend it."""
        return ()

    def warnings(self, world: World) -> Problems:  # noqa: ARG002 - part of the contract
        """What the operator should know although the order is taken."""
        return ()

    def line(self) -> str:
        """The order on one line: its name and what was given with it."""
        given = [field for field in type(self).model_fields if field in self.model_fields_set]
        told = [_told(getattr(self, field)) for field in given]
        words = [*told[:1], *(f"{field}={text}" for field, text in zip(given[1:], told[1:], strict=True))]
        return cut(" ".join((self.name, *words)), 160)

    def undo(self) -> str:
        """How it is taken back, a sentence; empty where that is not a question."""
        return ""

    @abstractmethod
    def wish(self, world: World, now_s: float) -> Wishes:
        """The wishes with this one in them; equal ones when it is already in force."""

    def apply(self, world: World, now_s: float) -> World:
        """`world` with the wish in it, or the same `world` when that changes nothing. `check` was empty before."""
        wishes = self.wish(world, now_s)
        return world if wishes == world.wishes else replace(world, wishes=wishes)


# --- wishes as maps ------------------------------------------------------------------------------------------------


def same_end(held_s: float | None, asked_s: float | None) -> bool:
    if held_s is None or asked_s is None:
        return held_s is asked_s
    return abs(held_s - asked_s) <= REPEAT_S


def with_item(items: Mapping[K, V], key: K, value: V) -> Mapping[K, V]:
    return {**items, key: value}


def kept(items: Mapping[K, V], key: K, value: V) -> Mapping[K, V]:
    """`items` with `key`; an earlier value stays, so that a wish keeps its age."""
    return items if key in items else {**items, key: value}


def without(items: Mapping[K, V], key: K) -> Mapping[K, V]:
    return {k: v for k, v in items.items() if k != key}


def _told(value: object) -> str:
    """A value as one would type it."""
    if isinstance(value, str):
        return value if value and not any(char.isspace() for char in value) else quoted(value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ",".join(_told(item) for item in value)
    return "none" if value is None else str(value)
