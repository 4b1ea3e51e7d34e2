"""How the workflow hands its world to the plan: by reference, in the same process.

A local activity runs in the process of its workflow task, so the world never has to be serialised: not per pass, and
not again at every replay. Only workflow code writes here and only the plan reads; values are immutable.
"""

from dataclasses import dataclass

from llmgw.world import World


@dataclass(frozen=True, slots=True)
class Handed:
    world: World
    now_s: float


_HANDED: dict[str, Handed] = {}


def put(run_id: str, world: World, now_s: float) -> None:
    _HANDED[run_id] = Handed(world, now_s)


def get(run_id: str) -> Handed:
    """KeyError when the workflow task that handed it over ran elsewhere: the local activity is then tried again."""
    return _HANDED[run_id]


def drop(run_id: str) -> None:
    """The run ends: its world is no longer kept alive."""
    _HANDED.pop(run_id, None)
