"""B13: commands that come while something else is under way are understood in every state.

The whole table is made here: every state a replica can be in, times every command, each given twice. Whatever was
under way, once the world is in order again everything is as wanted, and the second command changed nothing.
"""

from collections.abc import Callable, Mapping

import pytest

from llmgw.ids import NodeId
from llmgw.wire import RefusalCode
from sim import promises
from sim.fleet import SimFleet

from .fleets import catalog, fleet, model, of, only, running, why

A = NodeId("a")
M = model("m", {"min": 1, "max": 3}, args=["v1"])
POLICY = {"max_attempts": 2, "removal_grace_s": 5.0, "drain_limit_s": 20.0}


def begun(nodes: str = "ab") -> SimFleet:
    f = fleet(nodes, 1)
    f.catalog(catalog(f, M, policy=POLICY))
    return f


def _ready() -> SimFleet:
    return running(M, nodes="ab", count=1, policy=POLICY)


def _waiting_for_a_place() -> SimFleet:
    f = fleet("ab", 1)
    for node in f.nodes.values():
        node.devices = ()
    f.catalog(catalog(f, M, policy=POLICY))
    f.run(5)
    return f


def _on_its_way() -> SimFleet:
    f = fleet("ab", 1)
    f.delay = lambda: 1.0
    f.catalog(catalog(f, M, policy=POLICY))
    return f


def _starting() -> SimFleet:
    f = begun()
    f.run(1)
    return f


def _refused() -> SimFleet:
    f = fleet("ab", 1)
    for node in f.nodes.values():
        node.refuses = RefusalCode.NO_PORT
    f.catalog(catalog(f, M, policy=POLICY))
    f.run(7)
    return f


def _backing_off() -> SimFleet:
    f = fleet("ab", 1)
    for node in f.nodes.values():
        node.crash_starts = True
    f.catalog(catalog(f, M, policy=POLICY))
    f.run(5)
    return f


def _given_up() -> SimFleet:
    f = _backing_off()
    f.run(60)
    return f


def _draining() -> SimFleet:
    f = _ready()
    router = next(iter(f.routers.values()))
    router.begin(only(f, "m").replica)
    f.order("restart", target="m")
    f.run(5)
    return f


def _stopping() -> SimFleet:
    f = _ready()
    for node in f.nodes.values():
        node.stop_s = 60.0
    f.run(1)
    f.order("restart", target="m")
    f.run(6)
    return f


def _stuck() -> SimFleet:
    f = _ready()
    for node in f.nodes.values():
        node.unkillable = True
    f.run(1)
    f.order("restart", target="m")
    f.run(300)
    return f


def _suspect() -> SimFleet:
    f = _ready()
    f.cut = {f"node/{only(f, 'm').node}"}
    f.run(15)
    return f


def _lost() -> SimFleet:
    f = _ready()
    f.cut = {f"node/{only(f, 'm').node}"}
    f.run(90)
    return f


STATES: Mapping[str, Callable[[], SimFleet]] = {
    "ready": _ready,
    "waiting for a place": _waiting_for_a_place,
    "on its way": _on_its_way,
    "starting": _starting,
    "refused": _refused,
    "backing off": _backing_off,
    "given up": _given_up,
    "draining": _draining,
    "stopping": _stopping,
    "stuck": _stuck,
    "suspect": _suspect,
    "lost": _lost,
}


def _edit(f: SimFleet, *models: dict[str, object]) -> None:
    f.catalog(catalog(f, *models, policy=POLICY))


COMMANDS: Mapping[str, Callable[[SimFleet, str, str], object]] = {
    "restart": lambda f, _, __: f.order("restart", target="m"),
    "restart a replica": lambda f, replica, _: f.order("restart", target=replica),
    "wake": lambda f, _, __: f.order("wake", model="m"),
    "scale up": lambda f, _, __: f.order("scale", model="m", replicas=2),
    "change the profile": lambda f, _, __: _edit(f, model("m", {"min": 1, "max": 3}, args=["v2"])),
    "remove the model": lambda f, _, __: _edit(f),
    "drain its node": lambda f, _, node: f.order("drain", node=node),
    "cordon its node": lambda f, _, node: f.order("cordon", node=node),
    "remove weights": lambda f, _, node: f.order("remove-weights", node=node, paths=["org/m"]),
}
"""Each is given the fleet, a replica of the model (or the model, where it has none) and a node."""


def mended(f: SimFleet) -> None:
    """The world is in order, and there is room for everything."""
    f.cut, f.delay = set(), lambda: 0.0
    for node, with_devices in zip(f.nodes.values(), fleet("ab", 3).nodes.values(), strict=True):
        node.crash_starts, node.refuses, node.stop_s, node.unkillable = False, None, 1.0, False
        node.devices = with_devices.devices
        node.revision += 1
        for engine in node.engines.values():
            if engine.gone_at_s is not None:
                engine.gone_at_s = f.now_s + 1.0
    for router in f.routers.values():
        for replica in list(router.in_flight):
            router.end(replica)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("state", STATES)
def test_every_command_is_understood_in_every_state_and_its_repetition_changes_nothing(
    state: str, command: str
) -> None:
    f = STATES[state]()
    replica, node = next(((a.replica, a.node) for a in of(f, "m")), ("m", A))
    COMMANDS[command](f, replica, node)
    wishes, generation = f.world.wishes, f.world.generation
    COMMANDS[command](f, replica, node)
    assert (f.world.wishes, f.world.generation) == (wishes, generation)
    f.run(3)
    mended(f)
    f.run(700)
    if why(f, "model/m").startswith("failed"):
        f.order("wake", model="m")  # what was given up is tried again when somebody asks for it
        f.run(30)
    promises.all_is_well(f)
    assert len({r for n in f.nodes.values() for r in n.engines}) == len(f.world.assignments)
