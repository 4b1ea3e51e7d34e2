"""Memos of pure functions by the identity of what they were made of. Values here are frozen, so the very same ones give
the same answer; a memo changes no outcome, and what is not kept is made again.

The newest answer per name is kept, with a hold on what it was made of: as much as there are names, and no history.
Threads may share one: what it was made of is compared with what is asked for each time.
"""

from collections.abc import Callable, Hashable
from operator import is_
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


T = TypeVar("T")


def same_as(before: tuple[T, ...] | None, now: tuple[T, ...]) -> tuple[T, ...]:
    """`before` where it holds the very same objects, so that what was made of it is known again; else `now`."""
    return before if before is not None and _are_same(before, now) else now


def _are_same(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    return len(before) == len(now) and all(map(is_, before, now))


class Latest(Generic[K, V]):
    """The last answer per name. `most`: names; beyond that all are forgotten, so that fleets which ended go too."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[K, tuple[tuple[object, ...], V]] = {}

    def last(self, name: K) -> V | None:
        """The last answer for `name`, whatever it was made of."""
        kept = self._kept.get(name)
        return None if kept is None else kept[1]

    def get(self, name: K, made_of: tuple[object, ...], make: Callable[[], V]) -> V:
        """The answer for `name` where it was made of these very objects, else what `make` gives. Every object that
        `make` looks at must be named; where None stands for one, another may not."""
        kept = self._kept.get(name)
        if kept is not None and _are_same(kept[0], made_of):
            return kept[1]
        made = make()
        if len(self._kept) >= self._most:
            self._kept = {}
        self._kept[name] = made_of, made
        return made
