"""When the clock that the plane lives by is set back: every moment that it remembers goes back with it.

Workflow time is the wall clock of Temporal's servers. Where that is corrected, or a shard moves to a host that is
behind, moments that lie behind us would lie ahead, and every limit, back-off and grace would last as much longer. So
they are moved, all by the same: ages and order stay. What people said as a moment of their own stays as they said it.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import TypeVar, get_args, get_type_hints

from llmgw.world import (
    Assignment,
    Call,
    Drain,
    Event,
    Failure,
    HeldCatalog,
    Input,
    NodeTask,
    Pause,
    Refused,
    RestingPort,
    RouterFacts,
    Seen,
    Silence,
    SleepIntent,
    StopIntent,
    Unreadable,
    Waiting,
    Wishes,
    World,
)

LEAST_S = 2.0
"""Less is not worth the work: nothing is as exact."""

MOMENTS: Mapping[type, tuple[str, ...]] = {
    World: ("settling_since_s", "published_s", "unclaimed"),
    Wishes: ("cordoned", "wakes", "restarts", "confirmed_lost", "trusted", "takeover_s"),
    Assignment: ("created_s",),
    Call: ("failed_s", "told_s", "asked_s"),
    Drain: ("since_s",),
    Event: ("at_s",),
    Failure: ("at_s",),
    HeldCatalog: ("since_s",),
    Input: ("at_s",),
    NodeTask: ("since_s",),
    Pause: ("since_s",),
    Refused: ("at_s",),
    RestingPort: ("since_s",),
    RouterFacts: ("confirmed_s", "asked_s", "failed_s"),
    Seen: ("at_s", "since"),
    Silence: ("since_s",),
    SleepIntent: ("since_s",),
    StopIntent: ("since_s", "commanded_s"),
    Unreadable: ("since_s",),
    Waiting: ("since_s", "until_s"),
}
"""The fields that hold a moment, or moments by a key."""

T = TypeVar("T")


def set_back(world: World, by_s: float) -> World:
    """`world` as it would be had the clock always been so much behind."""
    return _through(world, lambda at_s: _earlier(at_s, by_s))


def newest_s(world: World) -> float:
    """The latest moment that anything of the past is remembered with; 0 where nothing is."""
    found: list[float] = [0.0]

    def see(at_s: float) -> float:
        found.append(abs(at_s))
        return at_s

    _through(replace(world, waiting={}), see)  # reasons name moments ahead
    return max(found)


def _earlier(at_s: float, by_s: float) -> float:
    """A negative one is a mark beside its moment (`World.unclaimed`)."""
    return at_s - by_s if at_s >= 0 else at_s + by_s


def _through(value: T, moment: Callable[[float], float]) -> T:
    """`value` with each moment in it passed through `moment`; the very same where nothing changes."""
    if is_dataclass(value) and not isinstance(value, type):
        names = MOMENTS.get(type(value), ())
        parts = ((name, getattr(value, name)) for name in _looked_at(type(value)))
        made = ((n, old, _moments(old, moment) if n in names else _through(old, moment)) for n, old in parts)
        changed = {name: new for name, old, new in made if new is not old}
        return replace(value, **changed) if changed else value
    if isinstance(value, Mapping):
        items = {key: _through(item, moment) for key, item in value.items()}
        return items if any(items[key] is not item for key, item in value.items()) else value  # type: ignore[return-value]
    if isinstance(value, tuple):
        row = tuple(_through(item, moment) for item in value)
        return row if any(new is not old for new, old in zip(row, value, strict=True)) else value  # type: ignore[return-value]
    return value


@cache
def _looked_at(kind: type) -> tuple[str, ...]:
    """The fields of a record in which moments may be, however deep: of thousands, to look into the others too would
    cost a large fleet's run a quarter of a second at its beginning."""
    hints = get_type_hints(kind)
    return tuple(f.name for f in fields(kind) if f.name in MOMENTS.get(kind, ()) or _holds_moments(hints[f.name]))


def _holds_moments(hint: object) -> bool:
    if isinstance(hint, type) and is_dataclass(hint):
        return bool(_looked_at(hint))
    return any(map(_holds_moments, get_args(hint)))


def _moments(value: object, moment: Callable[[float], float]) -> object:
    if isinstance(value, Mapping):
        return {key: moment(at_s) for key, at_s in value.items()} if value else value
    return moment(value) if isinstance(value, int | float) else value
