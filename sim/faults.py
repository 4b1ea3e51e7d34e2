"""What can go wrong, and what people do meanwhile: a table of happenings, and stories of them made from a seed.

A happening is a plain value, so that a failing story can be told again without some of them.
"""

import json
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from llmgw.carry import Parts
from llmgw.ids import NodeId, RouterId
from llmgw.wire import RefusalCode
from llmgw.world import InputKind
from sim.fleet import SimFleet

TROUBLE_S = 240.0
"""How long things go wrong; then everything is mended."""


@dataclass(frozen=True, slots=True)
class Happening:
    at_s: float
    what: str
    whom: str = ""
    number: int = 0

    def __str__(self) -> str:
        return f"{self.at_s:.1f} {self.what} {self.whom} {self.number or ''}".rstrip()


def _cut(fleet: SimFleet, h: Happening) -> None:
    fleet.cut.add(h.whom)


def _heal(fleet: SimFleet, h: Happening) -> None:
    fleet.cut.discard(h.whom)


def _lose_replies(fleet: SimFleet, h: Happening) -> None:
    fleet.lose_replies.add(h.whom)


def _keep_replies(fleet: SimFleet, h: Happening) -> None:
    fleet.lose_replies.discard(h.whom)


def _double(fleet: SimFleet, h: Happening) -> None:
    fleet.double.add(h.whom)


def _once(fleet: SimFleet, h: Happening) -> None:
    fleet.double.discard(h.whom)


def _pause(fleet: SimFleet, _h: Happening) -> None:
    fleet.pause()


def _go_on(fleet: SimFleet, _h: Happening) -> None:
    fleet.go_on()


def _slow_stops(fleet: SimFleet, h: Happening) -> None:
    fleet.nodes[NodeId(h.whom)].stop_s = 25.0


def _quick_stops(fleet: SimFleet, h: Happening) -> None:
    fleet.nodes[NodeId(h.whom)].stop_s = 1.0


def _crash(fleet: SimFleet, h: Happening) -> None:
    node = fleet.nodes[NodeId(h.whom)]
    if node.engines:
        node.crash(sorted(node.engines)[h.number % len(node.engines)])


def _restart_agent(fleet: SimFleet, h: Happening) -> None:
    fleet.nodes[NodeId(h.whom)].restart_agent()


def _reboot(fleet: SimFleet, h: Happening) -> None:
    fleet.nodes[NodeId(h.whom)].reboot()


def _refuse(fleet: SimFleet, h: Happening) -> None:
    fleet.nodes[NodeId(h.whom)].refuses = RefusalCode.NO_PORT


def _accept(fleet: SimFleet, h: Happening) -> None:
    fleet.nodes[NodeId(h.whom)].refuses = None


def _break_starts(fleet: SimFleet, h: Happening) -> None:
    fleet.nodes[NodeId(h.whom)].crash_starts = True


def _mend_starts(fleet: SimFleet, h: Happening) -> None:
    fleet.nodes[NodeId(h.whom)].crash_starts = False


def _restart_router(fleet: SimFleet, h: Happening) -> None:
    fleet.routers[RouterId(h.whom)].restart()


def _wipe_router(fleet: SimFleet, h: Happening) -> None:
    fleet.routers[RouterId(h.whom)].lose_memory()


def _request(fleet: SimFleet, h: Happening) -> None:
    router = fleet.routers[RouterId(h.whom)]
    if router.table.endpoints:
        router.begin(sorted(router.table.endpoints)[h.number % len(router.table.endpoints)])


def _requests_end(fleet: SimFleet, h: Happening) -> None:
    router = fleet.routers[RouterId(h.whom)]
    for replica in [r for r, n in router.in_flight.items() for _ in range(n)]:
        router.end(replica)


def _ask(fleet: SimFleet, h: Happening) -> None:
    fleet.routers[RouterId(h.whom)].ask("naps")


def _rest(fleet: SimFleet, h: Happening) -> None:
    """Nobody asks there any more, and what is not in use has been idle for as long as anybody wants to know."""
    router = fleet.routers[RouterId(h.whom)]
    router.asked = frozenset()
    router.rest()


def _carry_over(fleet: SimFleet, _h: Happening) -> None:
    fleet.carry_over()


def _clock_back(fleet: SimFleet, h: Happening) -> None:
    """The plane's clock is set back by so many seconds."""
    fleet.set_clock_back(float(h.number))


def _spoil_record(fleet: SimFleet, h: Happening) -> None:
    """One record of an assignment is carried over in words that nobody understands."""

    def spoil(parts: Parts) -> Parts:
        carried = json.loads(zlib.decompress(parts.assignments))
        if records := carried["assignments"]:
            records[h.number % len(records)] |= {"attempt": "a word of another age"}
        return replace(parts, assignments=zlib.compress(json.dumps(carried).encode()))

    fleet.carry_over(spoil)


def _end_spoilt(fleet: SimFleet, _h: Happening) -> None:
    """Somebody looks at the status and restarts what cannot be read."""
    for replica, assignment in sorted(fleet.world.assignments.items()):
        if assignment.unreadable:
            fleet.give(InputKind.ORDER, "restart", {"target": replica})


def _catalog(fleet: SimFleet, h: Happening) -> None:
    fleet.give(InputKind.CATALOG, "replace-catalog", catalog(fleet, h.number))


def _bad_version(fleet: SimFleet, h: Happening) -> None:
    """A version that crashes while it loads, everywhere."""
    for node in fleet.nodes.values():
        node.crash_args = frozenset({"bad"})
    fleet.give(InputKind.CATALOG, "replace-catalog", catalog(fleet, h.number, "bad"))


def _order(name: str, **more: object) -> Callable[[SimFleet, Happening], None]:
    def given(fleet: SimFleet, h: Happening) -> None:
        key = {"drain": "node", "cordon": "node", "uncordon": "node", "restart": "target"}.get(name, "model")
        fields = {key: h.whom, **more, **({"replicas": h.number} if name == "scale" else {})}
        fleet.give(InputKind.ORDER, name, fields)

    return given


WHAT: Mapping[str, Callable[[SimFleet, Happening], None]] = {
    "cut": _cut,
    "heal": _heal,
    "lose replies": _lose_replies,
    "keep replies": _keep_replies,
    "double packets": _double,
    "single packets": _once,
    "pause plane": _pause,
    "plane goes on": _go_on,
    "slow stops": _slow_stops,
    "quick stops": _quick_stops,
    "crash": _crash,
    "restart agent": _restart_agent,
    "reboot": _reboot,
    "refuse": _refuse,
    "accept": _accept,
    "break starts": _break_starts,
    "mend starts": _mend_starts,
    "restart router": _restart_router,
    "wipe router": _wipe_router,
    "request": _request,
    "requests end": _requests_end,
    "ask": _ask,
    "rest": _rest,
    "carry over": _carry_over,
    "clock back": _clock_back,
    "spoil record": _spoil_record,
    "end spoilt": _end_spoilt,
    "catalog": _catalog,
    "bad version": _bad_version,
    "good version": _catalog,
    "drain": _order("drain"),
    "cordon": _order("cordon"),
    "uncordon": _order("uncordon"),
    "scale": _order("scale"),
    "restart": _order("restart"),
    "promote": _order("promote"),
    "revert": _order("revert"),
}

PAIRS = {
    "cut": "heal",
    "lose replies": "keep replies",
    "double packets": "single packets",
    "pause plane": "plane goes on",
    "slow stops": "quick stops",
    "refuse": "accept",
    "break starts": "mend starts",
    "request": "requests end",
    "spoil record": "end spoilt",
    "bad version": "good version",
    "drain": "uncordon",
    "cordon": "uncordon",
}
"""What mends what; it comes some time later, at the latest when the trouble ends."""


SLEEPER = {"replicas": {"min": 0, "max": 1}, "idle_timeout_s": 5.0, "idle": "sleep", "asleep_timeout_s": 60.0}
"""Asks for nothing before a client does."""


def naps(rng: random.Random, routers: Sequence[str]) -> list[Happening]:
    """When clients ask for the model that sleeps, and when nobody uses anything, beside all that else happens. In the
    end everybody has gone."""
    found = [Happening(TROUBLE_S, "rest", router) for router in routers]
    for _ in range(rng.randint(3, 12)):
        what = rng.choice(("ask", "ask", "rest"))
        found.append(Happening(round(rng.uniform(2.0, TROUBLE_S), 1), what, rng.choice(routers)))
    return found


APART = frozenset({"clock back", "ask", "rest"})
"""Drawn by themselves, so that a story without them is what it was before there were such."""
SET_BACK_S = (30, 300, 3_600, 7_200, 86_400)
"""By how much clocks are set back."""


def clock_steps(rng: random.Random) -> list[Happening]:
    """When the plane's clock is set back in a story, beside all that else happens."""
    moments = sorted(round(rng.uniform(5.0, TROUBLE_S), 1) for _ in range(rng.randint(1, 3)))
    return [Happening(at_s, "clock back", "", rng.choice(SET_BACK_S)) for at_s in moments]


def catalog(fleet: SimFleet, variant: int, version: str = "") -> dict[str, object]:
    """One of several catalogs of the fleet; together their models need about half of its devices. `version`: an
    argument of all that have devices, instead of the variant's."""
    first, second = version or f"v{variant % 3}", version or f"v{variant // 3 % 2}"
    big = {"name": "p", "engine": "stub", "args": [first], "accelerators": [{"count": 2, "kind": "h100"}]}
    small = {"name": "p", "engine": "stub", "args": [second], "accelerators": [{"count": 1}]}
    cpu = {"name": "p", "engine": "stub", "args": ["cpu"]}
    part = {"name": "p", "engine": "stub", "accelerators": [{"count": 1, "claim": "24GiB"}]}
    naps = {"name": "p", "engine": "stub", "args": [second], "accelerators": [{"count": 1}]}
    models: list[dict[str, object]] = [
        {"name": "big", "priority": 5, "replicas": {"min": 1, "max": 2}, "profiles": [big]},
        {"name": "small", "replicas": {"min": 2, "max": 4}, "profiles": [small]},
        {"name": "cpu", "replicas": 1, "profiles": [cpu]},
        {"name": "part", "priority": -1, "replicas": 2, "profiles": [part]},
        {"name": "naps", "priority": -1, **SLEEPER, "profiles": [naps]},
    ]
    models[variant % 2]["aliases"] = ["chat"]
    if variant % 4 == 3:
        models[1]["canary"] = {"hold_s": 30.0}
    if variant % 5 == 4:
        del models[1]
    return {
        "nodes": [{"id": id_, "url": f"http://{id_}:1"} for id_ in fleet.nodes],
        "routers": [{"id": id_, "url": f"http://{id_}:1"} for id_ in fleet.routers],
        "models": models,
        "policy": {"drain_limit_s": 20.0, "removal_grace_s": 10.0},
        "allow_removals": True,
    }


def happenings(rng: random.Random, nodes: Sequence[str], routers: Sequence[str], number: int) -> list[Happening]:
    """A story: `number` things that happen, each mended again where it has to be, in order of time."""
    found: list[Happening] = []
    targets = {
        "node": [f"node/{n}" for n in nodes],
        "any": [*(f"node/{n}" for n in nodes), *(f"router/{r}" for r in routers)],
    }
    whom: Mapping[str, Sequence[str]] = {
        "cut": targets["any"],
        "lose replies": targets["any"],
        "double packets": targets["any"],
        "pause plane": [""],
        "restart router": routers,
        "wipe router": routers,
        "request": routers,
        "carry over": [""],
        "spoil record": [""],
        "catalog": [""],
        "bad version": [""],
        "scale": ["big", "small"],
        "promote": ["big", "small"],
        "revert": ["big", "small"],
        "restart": ["big", "small", "cpu"],
    }
    starters = [what for what in WHAT if what not in PAIRS.values() and what not in APART]
    for _ in range(number):
        what = rng.choice(starters)
        target, at_s = rng.choice(whom.get(what, nodes)), round(rng.uniform(5.0, TROUBLE_S * 0.8), 1)
        most = {"scale": 2, "catalog": 30, "bad version": 30}.get(what, 6)
        found.append(Happening(at_s, what, target, rng.randint(1, most)))
        if what in PAIRS:
            until_s = min(at_s + rng.choice((1.0, 5.0, 20.0, 90.0)), TROUBLE_S)
            found.append(Happening(until_s, PAIRS[what], target, found[-1].number if what == "bad version" else 0))
    return sorted(found, key=lambda h: (h.at_s, h.what, h.whom))
