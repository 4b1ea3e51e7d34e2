"""A world in which everything runs: for each node eight replicas, all ready and published, and ten devices."""

from dataclasses import replace

from llmgw.catalog import Catalog
from llmgw.decide import decide
from llmgw.ids import DeviceId, NodeId
from llmgw.merge import merge
from llmgw.wire import Device, EngineState, Inventory, Mark, Owner, ReplicaReport, Token
from llmgw.world import Assignment, Seen, Silence, SilenceLevel, World

FLEET, INSTALLATION = "bench", "bench-1"
PER_NODE = 8
DEVICES = 10
MODELS = 200
NOW_S = 1_000_000.0


def world(nodes: int) -> tuple[World, float]:
    """The world, and the time at which nothing is left to decide."""
    placed = _settled(unstarted(nodes))
    ready = {a.replica: _row(a) for a in placed.assignments.values()}
    by_node: dict[NodeId, list[ReplicaReport]] = {}
    for assignment in placed.assignments.values():
        by_node.setdefault(assignment.node, []).append(ready[assignment.replica])
    reported = {id_: replace(s, replicas=tuple(by_node.get(id_, ()))) for id_, s in placed.seen.items()}
    sent = dict.fromkeys(placed.assignments, 1)
    return _settled(replace(placed, seen=reported, sent=sent)), NOW_S


def unstarted(nodes: int) -> World:
    """The same fleet before anything was started."""
    seen = {NodeId(_name(i)): _seen(i) for i in range(nodes)}
    return World(FLEET, INSTALLATION, 1, 0, catalog=_catalog(nodes), seen=seen)


def _settled(world: World) -> World:
    while True:
        plan = decide(world, NOW_S)
        world = merge(world, plan, NOW_S, world.catalog)
        if not plan.more:
            return world


def observed(world: World, number: int) -> World:
    """The world after one more observation: node `number` has told a new report, and every map was written anew."""
    node = sorted(world.seen)[number % len(world.seen)]
    seen = {**world.seen, node: replace(world.seen[node], revision=world.seen[node].revision + number + 1)}
    return replace(world, seen=seen, silence=dict(world.silence), calls=dict(world.calls), waiting=dict(world.waiting))


def with_lost_node(world: World, now_s: float) -> World:
    node = sorted(world.seen)[len(world.seen) // 2]
    silence = {f"node/{node}": Silence(SilenceLevel.LOST, now_s - 60.0)}
    return replace(world, silence={**world.silence, **silence})


def with_model(world: World, name: str, replicas: int) -> World:
    assert world.catalog is not None
    new = Catalog.model_validate({"models": [_model(name, replicas)]}).models
    return replace(world, catalog=world.catalog.model_copy(update={"models": (*world.catalog.models, *new)}))


def _catalog(nodes: int) -> Catalog:
    models = [_model(f"m{n:03d}", nodes * PER_NODE // MODELS) for n in range(MODELS)]
    return Catalog.model_validate(
        {"nodes": [{"id": _name(i), "url": f"http://{_name(i)}:1"} for i in range(nodes)], "models": models}
    )


def _model(name: str, replicas: int) -> dict[str, object]:
    profile = {"name": "p", "engine": "stub", "accelerators": [{"count": 1}]}
    return {"name": name, "replicas": replicas, "profiles": [profile]}


def _name(number: int) -> str:
    return f"n{number:05d}"


def _seen(number: int) -> Seen:
    devices = tuple(
        Device(id=DeviceId(f"GPU-{number}-{d}"), index=d, kind="NVIDIA H100", vendor="nvidia", memory_mib=81_559)
        for d in range(DEVICES)
    )
    return Seen(
        node=NodeId(_name(number)),
        machine=f"machine-{number}",
        boot="boot-1",
        instance="agent-1",
        revision=1,
        token=Token(installation=INSTALLATION, fleet=FLEET, epoch=1, seq=1),
        owner=Owner(installation=INSTALLATION, fleet=FLEET),
        inventory=Inventory(devices=devices, host_memory_mib=1 << 20),
        replicas=(),
        quarantined={},
    )


def _row(assignment: Assignment) -> ReplicaReport:
    return ReplicaReport(
        replica=assignment.replica,
        model=assignment.model,
        mark=Mark(installation=INSTALLATION, fleet=FLEET, replica=assignment.replica, epoch=1, seq=1),
        fingerprint=assignment.fingerprint,
        attempt=1,
        state=EngineState.READY,
        was_ready=True,
        url="http://node:9001",
        claims=assignment.claims,
    )
