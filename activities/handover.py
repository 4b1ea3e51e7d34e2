"""How the workflow hands its world to the plan: by reference, in the same process.

A local activity runs in the process of its workflow task, so the world never has to be serialised: not per pass, and
not again at every replay. Only workflow code writes here and only the plan reads; values are immutable.
"""

from collections import deque
from dataclasses import dataclass

from llmgw.world import World


@dataclass(frozen=True, slots=True)
class Handed:
    world: World
    now_s: float
    seen: tuple[int, ...] = ()
    """The news that are in the world; the plan tells them."""
    decides: bool = True
    """False: nothing of it calls for a decision, and it is only to be told as seen."""


_HANDED: dict[str, Handed] = {}
_ENDED: deque[str] = deque(maxlen=100)


def put(run_id: str, handed: Handed) -> None:
    _HANDED[run_id] = handed


def get(run_id: str) -> Handed:
    """KeyError when the workflow task that handed it over ran elsewhere: the local activity is then tried again."""
    return _HANDED[run_id]


def drop(run_id: str) -> None:
    """The run ends: its world is no longer kept alive."""
    if _HANDED.pop(run_id, None) is not None:
        _ENDED.append(run_id)


def ended() -> int:
    """How many runs have ended in this process since this was asked last."""
    count = len(_ENDED)
    _ENDED.clear()
    return count
