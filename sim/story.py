"""Telling a story to a simulated fleet: happenings at their times, then a calm in which all must become well.

`shortest` finds, for a story that ends badly, one with fewer happenings that breaks the same promise.
"""

import random
import traceback
from collections.abc import Sequence

from llmgw.ids import NodeId, RouterId
from llmgw.world import World
from sim import faults, promises
from sim.faults import Happening
from sim.fleet import SimFleet
from sim.node import SimNode, devices
from sim.router import SimRouter

NODES = ("a", "b", "c", "d", "e")
ROUTERS = ("r1", "r2")
DEVICES = 2
AHEAD_S = 1_000_000.0
"""The plane's clock shows so much more than the time that passed: enough to be set back by days."""
CALM_S = 700.0
"""Longer than the longest back-off and every limit of a catalog of the stories together."""


def is_eager(seed: int) -> bool:
    """Whether the plane of this story sees and decides all at once, as no workflow does, but has to bear."""
    return seed % 4 == 2


def fleet(seed: int, *, eager: bool = True) -> SimFleet:
    """A fresh fleet whose network is as good or bad as the seed says. `eager`: see `SimFleet`."""
    rng = random.Random(seed)
    slow = rng.choice((0.0, 0.05, 0.5, 0.8))

    def delay() -> float:
        if slow == 0.0:
            return 0.0
        return rng.choice((2.0, 5.0, 12.0)) if rng.random() < slow / 3 else rng.uniform(0.0, slow)

    world = World(fleet="f", installation="i", epoch=5, seq=0, settling_since_s=1_000.0 + AHEAD_S)
    nodes = {NodeId(n): SimNode(NodeId(n), devices(n, DEVICES)) for n in NODES}
    routers = {RouterId(r): SimRouter(RouterId(r)) for r in ROUTERS}
    return SimFleet(nodes, routers, world, delay=delay, checks=list(promises.ALL), ahead_s=AHEAD_S, eager=eager)


def story(seed: int) -> list[Happening]:
    rng = random.Random(-seed - 1)
    found = faults.happenings(rng, NODES, ROUTERS, rng.randint(5, 45))
    if seed % 4 == 1:
        found += faults.clock_steps(rng)
    if seed % 8 == 3:
        found += faults.naps(rng, ROUTERS)
    return sorted(found, key=lambda h: (h.at_s, h.what, h.whom))


def tell(seed: int, happenings: Sequence[Happening], *, eager: bool | None = None) -> SimFleet:
    """Play the story. AssertionError with the fleet's own account when a promise is broken. `eager`: None = as the
    seed has it."""
    made = fleet(seed, eager=is_eager(seed) if eager is None else eager)
    start_s = made.now_s
    try:
        made.catalog(faults.catalog(made, 0))
        for happening in happenings:
            made.run(max(0.0, start_s + happening.at_s - made.now_s))
            made.story.append(f"{made.now_s:.1f} *** {happening}")
            faults.WHAT[happening.what](made, happening)
            made.settle()
            _at_rest(made)
        made.run(max(0.0, start_s + faults.TROUBLE_S - made.now_s))
        made.story.append(f"{made.now_s:.1f} *** calm")
        made.go_on()
        made.run(CALM_S)
        _at_rest(made)
        promises.all_is_well(made)
    except AssertionError as error:
        raise AssertionError(f"at {made.now_s:.1f}: {error}\n" + "\n".join(made.story)) from error
    return made


def _at_rest(made: SimFleet) -> None:
    if made.paused_s is not None:
        return
    for promise in promises.AT_REST:
        promise(made)


def ending(seed: int) -> str:
    """Empty where the seed's story ends well; else the happenings that are enough for it, and how it ends."""
    happenings = story(seed)
    try:
        tell(seed, happenings)
    except AssertionError:
        fewest, end = shortest(seed, happenings)
        return "\n".join([*map(str, fewest), "", end])
    return ""


def shortest(seed: int, happenings: Sequence[Happening]) -> tuple[list[Happening], str]:
    """The story without whatever it can do without and still break the same promise, and how it ends."""
    left, (broken, end) = list(happenings), _end(seed, happenings)
    before = len(left) + 1
    while broken and len(left) < before:
        before = len(left)
        for happening in list(left):
            fewer = [h for h in left if h is not happening]
            if not _is_mended(fewer) and _is_mended(left):
                continue
            fewer_broken, fewer_end = _end(seed, fewer)
            if fewer_broken == broken:
                left, end = fewer, fewer_end
    return left, end


def _is_mended(happenings: Sequence[Happening]) -> bool:
    """Whether all that goes wrong is mended later: nobody promises that all becomes well else."""
    return all(
        any(h.what == faults.PAIRS[wrong.what] and h.whom == wrong.whom for h in happenings[index + 1 :])
        for index, wrong in enumerate(happenings)
        if wrong.what in faults.PAIRS
    )


def _end(seed: int, happenings: Sequence[Happening]) -> tuple[str, str]:
    """The name of what found the broken promise, and what it said; both empty where all ends well."""
    try:
        tell(seed, happenings)
    except AssertionError as error:
        where = error if error.__cause__ is None else error.__cause__
        return traceback.extract_tb(where.__traceback__)[-1].name, str(error)
    return "", ""
