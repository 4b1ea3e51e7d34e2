"""Small simulated fleets for scenario tests: devices, models and what became of them, in few words."""

from collections.abc import Sequence

from llmgw.ids import ModelName, NodeId, ReplicaId, RouterId
from llmgw.world import Assignment, World
from sim import promises
from sim.fleet import SimFleet
from sim.node import SimNode, devices
from sim.router import SimRouter

START_S = 3.0


def model(name: str, replicas: object = 1, devices: int = 1, **fields: object) -> dict[str, object]:
    """One profile `p` on `devices` devices; `args` and `profile` go into it."""
    profile: dict[str, object] = {"name": "p", "engine": "stub"}
    if devices:
        profile["accelerators"] = [{"count": devices}]
    if "args" in fields:
        profile["args"] = fields.pop("args")
    extra = fields.pop("profile", {})
    assert isinstance(extra, dict)
    return {"name": name, "replicas": replicas, "profiles": [{**profile, **extra}], **fields}


def catalog(fleet: SimFleet, *models: dict[str, object], **fields: object) -> dict[str, object]:
    zones = fields.pop("zones", {})
    assert isinstance(zones, dict)
    nodes = [{"id": id_, "url": f"http://{id_}:1", **({"zone": zones[id_]} if zones else {})} for id_ in fleet.nodes]
    routers = [{"id": id_, "url": f"http://{id_}:1"} for id_ in fleet.routers]
    return {"nodes": nodes, "routers": routers, "models": list(models), "allow_removals": True, **fields}


def fleet(nodes: str = "ab", count: int = 2, routers: Sequence[str] = ("r1",)) -> SimFleet:
    """A node per letter with `count` devices each, nothing decided yet."""
    return SimFleet(
        {NodeId(n): SimNode(NodeId(n), devices(n, count)) for n in nodes},
        {RouterId(r): SimRouter(RouterId(r)) for r in routers},
        World(fleet="f", installation="i", epoch=5, seq=0, settling_since_s=1_000.0),
        checks=list(promises.ALL),
    )


def running(*models: dict[str, object], nodes: str = "ab", count: int = 2, **fields: object) -> SimFleet:
    """A fleet in which the models have become ready."""
    made = fleet(nodes, count)
    made.catalog(catalog(made, *models, **fields))
    made.run(START_S * (1 + len(models)))
    return made


def of(fleet: SimFleet, name: str) -> list[Assignment]:
    return [a for _, a in sorted(fleet.world.assignments.items()) if a.model == name]


def ids(fleet: SimFleet, name: str) -> set[ReplicaId]:
    return {a.replica for a in of(fleet, name)}


def published(fleet: SimFleet, name: str) -> set[ReplicaId]:
    """What the first router routes to under a name, be it a model or an alias."""
    router = next(iter(fleet.routers.values()))
    return {e.id for e in router.table.endpoints.values() if name in e.models}


def places(fleet: SimFleet, name: str) -> list[NodeId]:
    return sorted(a.node for a in of(fleet, name))


def why(fleet: SimFleet, subject: str) -> str:
    """`code: text` of what a thing waits for; empty when it does not wait."""
    waiting = fleet.world.waiting.get(subject)
    return "" if waiting is None else f"{waiting.code}: {waiting.text}"


def only(fleet: SimFleet, name: str) -> Assignment:
    [assignment] = of(fleet, name)
    return assignment


def state(fleet: SimFleet, name: str) -> str:
    """What routers are told of a model."""
    return fleet.world.table.models[ModelName(name)].state
