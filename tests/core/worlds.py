"""Small worlds for the tests of the core: values only."""

from llmgw.catalog import Catalog
from llmgw.ids import DeviceId, Fingerprint, ModelName, NodeId, ReplicaId, SpecId
from llmgw.table import build
from llmgw.wire import (
    DeviceClaim,
    Endpoint,
    EngineState,
    Inventory,
    Mark,
    ModelState,
    Owner,
    ReplicaReport,
    TableModel,
    Token,
)
from llmgw.world import Assignment, Part, Seen, World

NOW = 1_000_000.0
FLEET, INSTALLATION = "main", "inst-1"


def model(name: str, **fields: object) -> dict[str, object]:
    profile = {"name": "cpu", "engine": "stub"}
    return {"name": name, "profiles": [profile], **fields}


def raw_catalog(*names: str, **fields: object) -> dict[str, object]:
    nodes = [{"id": "node-a", "url": "http://a:7070"}, {"id": "node-b", "url": "http://b:7070", "zone": "z2"}]
    routers = [{"id": "edge-1", "url": "http://edge-1:8081"}]
    return {"nodes": nodes, "routers": routers, "models": [model(n) for n in names], **fields}


def catalog(*names: str, **fields: object) -> Catalog:
    return Catalog.model_validate(raw_catalog(*names, **fields))


def world(*names: str, **fields: object) -> World:
    return World(fleet=FLEET, installation=INSTALLATION, epoch=1, seq=10, catalog=catalog(*names), **fields)  # type: ignore[arg-type]


def assignment(
    replica: str, of: str, node: str = "node-a", created_s: float = NOW - 100, **fields: object
) -> Assignment:
    claims = (DeviceClaim(device=DeviceId(f"GPU-{replica}")),)
    return Assignment(
        replica=ReplicaId(replica),
        model=ModelName(of),
        profile="cpu",
        fingerprint=Fingerprint("f" * 32),
        attempt=1,
        spec=SpecId("s" * 32),
        parts=(Part(NodeId(node), claims),),
        boot="boot-1",
        created_s=created_s,
        **fields,  # type: ignore[arg-type]
    )


def row(replica: str, of: str, state: EngineState = EngineState.READY, **fields: object) -> ReplicaReport:
    mark = Mark(installation=INSTALLATION, fleet=FLEET, replica=ReplicaId(replica), epoch=1, seq=5)
    return ReplicaReport.model_validate(
        {
            "replica": replica,
            "model": of,
            "mark": mark,
            "fingerprint": "f" * 32,
            "attempt": 1,
            "state": state,
            "url": "http://a:9001",
            "state_age_s": 12.0,
            **fields,
        }
    )


def seen(node: str, *rows: ReplicaReport, inventory: Inventory | None = None) -> Seen:
    return Seen(
        node=NodeId(node),
        machine=f"machine-{node}",
        boot="boot-1",
        instance="i-1",
        revision=1,
        token=Token(installation=INSTALLATION, fleet=FLEET, epoch=1, seq=10),
        owner=Owner(installation=INSTALLATION, fleet=FLEET),
        inventory=inventory or Inventory(),
        replicas=rows,
        quarantined={},
    )


def endpoint(replica: str, of: str) -> Endpoint:
    return Endpoint(id=ReplicaId(replica), url="http://a:9001", models=(of,), served_name=of, engine="stub")


def table_model(name: str, state: ModelState = ModelState.READY) -> TableModel:
    return TableModel(name=ModelName(name), state=state)


def serving(*names: str, **fields: object) -> World:
    """One ready, published replica `<name>-1` per model on node-a."""
    replicas = [(f"{n}-1", n) for n in names]
    return world(
        *names,
        assignments={ReplicaId(r): assignment(r, n) for r, n in replicas},
        seen={NodeId("node-a"): seen("node-a", *(row(r, n) for r, n in replicas)), NodeId("node-b"): seen("node-b")},
        table=build([table_model(n) for n in names], [endpoint(r, n) for r, n in replicas]),
        table_revision=3,
        **fields,
    )
