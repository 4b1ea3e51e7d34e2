"""Fleets in the states that an operator meets, as values; what the pages of the command line are shown of."""

from dataclasses import replace
from pathlib import Path

from cli.listings import LISTINGS
from llmgw.catalog import Catalog, catalog_digest
from llmgw.ids import ModelName, NodeId, RouterId
from llmgw.plan import Judgement, Verdict
from llmgw.recent import Recent, Refusal
from llmgw.table import build
from llmgw.wire import Device, DeviceHealth, Inventory, ModelState, WeightsReport
from llmgw.world import (
    Drain,
    Event,
    InputKind,
    RouterFacts,
    Silence,
    SilenceLevel,
    StopCause,
    StopIntent,
    Waiting,
    Wishes,
    World,
)
from tests.cli.fleets import Command, WorldFleet
from tests.core.worlds import FLEET, INSTALLATION, NOW, assignment, endpoint, row, seen, table_model

PAGES = (
    "status",
    *LISTINGS,
    "explain model/organisation/model-with-a-long-name-72b-instruct",
    "explain gpu-rack1-07",
    "explain gpu-rack2-11",
)
WIDTHS = (80, 140)
LONG = "organisation/model-with-a-long-name-72b-instruct"


def catalog() -> Catalog:
    profile = {"name": "h100-tp2", "engine": "stub", "accelerators": [{"count": 2, "kind": "h100"}]}
    return Catalog.model_validate(
        {
            "nodes": [
                {"id": "gpu-rack1-07", "url": "http://gpu-rack1-07.example.org:7811", "zone": "rack1"},
                {"id": "gpu-rack2-11", "url": "http://gpu-rack2-11.example.org:7811", "zone": "rack2"},
                {"id": "gpu-rack3-01", "url": "http://gpu-rack3-01.example.org:7811", "zone": "rack3"},
            ],
            "routers": [
                {"id": "edge-1", "url": "http://edge-1:8081"},
                {"id": "edge-2", "url": "http://edge-2:8081"},
            ],
            "models": [
                {
                    "name": LONG,
                    "aliases": ["chat", "large"],
                    "weights": "hf://organisation/model-72b",
                    "replicas": {"min": 2, "max": 4},
                    "profiles": [profile],
                },
                {"name": "llama", "profiles": [profile, {**profile, "name": "a100-tp4"}]},
                {"name": "[bold]odd[/bold]", "replicas": {"min": 0, "max": 1}, "profiles": [profile]},
            ],
        }
    )


def devices(rack: str, *held: str, count: int, **fields: object) -> Inventory:
    """The first ones are held by the replicas named in `held` (`tests.core.worlds.assignment` names devices so)."""
    ids = [
        *(f"GPU-{name}" for name in held),
        *(f"GPU-{rack}-{i:04}-9d1e-77a1b2c3d4e5" for i in range(len(held), count)),
    ]
    kind = {"kind": "NVIDIA H100 80GB HBM3", **fields}
    return Inventory(devices=tuple(Device.model_validate({"id": id_, "index": i, **kind}) for i, id_ in enumerate(ids)))


def troubled() -> World:
    """One model short of a replica, one stopping, a silent node, a router behind, a sick device."""
    found = catalog()
    held = assignment("model-with-a-lo-1", LONG, "gpu-rack1-07")
    stop = StopIntent(StopCause.DRAINED, "gpu-rack2-11 is drained", NOW - 90, 42)
    going = assignment("llama-2", "llama", "gpu-rack2-11", stop=stop)
    reason = "stayed in use after a stop"
    sick = devices("r2", "llama-2", count=3, memory_mib=81_559, health=DeviceHealth.QUARANTINED, reason=reason)
    sound = devices("r1", "model-with-a-lo-1", count=3)
    weights = (
        WeightsReport(source="hf://organisation/model-72b", path="hub/model-72b", bytes=145_432_100_000, complete=True),
        WeightsReport(source="hf://other/old-7b@main", path="hub/old-7b", bytes=2_000_000, complete=False, idle_s=9e5),
    )
    models = [table_model(LONG), table_model("llama", ModelState.UNAVAILABLE)]
    table = build(models, [endpoint("model-with-a-lo-1", LONG)])
    drained = NodeId("gpu-rack2-11")
    return World(
        fleet=FLEET,
        wishes=Wishes(cordoned={drained: NOW - 90}, drains={drained: Drain(NOW - 90, NOW + 510)}),
        good={
            ModelName(LONG): Catalog.model_validate(
                {"models": [{"name": LONG, "profiles": [{"name": "h100-tp2", "engine": "stub"}]}]}
            )
        },
        installation=INSTALLATION,
        epoch=1,
        seq=10,
        catalog=found,
        digest=catalog_digest(found),
        generation=7,
        assignments={a.replica: a for a in (held, going)},
        seen={
            NodeId("gpu-rack1-07"): replace(
                seen("gpu-rack1-07", row("model-with-a-lo-1", LONG), inventory=sound), weights=weights
            ),
            NodeId("gpu-rack2-11"): seen("gpu-rack2-11", row("llama-2", "llama"), inventory=sick),
            NodeId("gpu-rack3-01"): seen("gpu-rack3-01"),
        },
        silence={
            "node/gpu-rack3-01": Silence(SilenceLevel.LOST, NOW - 400),
            "router/edge-1": Silence(SilenceLevel.HEARD, NOW - 400),
            "router/edge-2": Silence(SilenceLevel.HEARD, NOW - 400),
        },
        routers={
            RouterId("edge-1"): RouterFacts(acked_revision=42, held_digest=table.digest, confirmed_s=NOW - 5),
            RouterId("edge-2"): RouterFacts(acked_revision=41, confirmed_s=NOW - 70, problem="connection refused"),
        },
        table=table,
        table_revision=42,
        waiting={
            f"model/{LONG}": Waiting(
                f"model/{LONG}",
                "no_place",
                "no node has 2 free h100: gpu-rack1-07 has 1 free of 8 (7 held), gpu-rack2-11 is cordoned",
                NOW - 4000,
            )
        },
    )


def recent() -> Recent:
    refused = Verdict(
        arrival=9,
        kind=InputKind.CATALOG,
        name="replace-catalog",
        judgement=Judgement.REFUSED,
        text="refused: nothing was changed",
        problems=("models[1].pool: no pool is called 'gpus'; did you mean \"gpu\"?",),
    )
    return Recent(
        acting="ctl-1:4711",
        last_catalog=refused,
        refusals=(Refusal(name="replace-catalog", at_s=NOW - 65, problems=refused.problems),),
        events=(
            Event(NOW - 400, "node/gpu-rack3-01", "gpu-rack3-01 is lost: connection refused"),
            Event(NOW - 12, f"model/{LONG}", f"{LONG}: replica model-with-a-lo-1 is ready on gpu-rack1-07"),
        ),
    )


def page(words: str, columns: int | None) -> str:
    """What the command prints of the troubled fleet."""
    fleet = WorldFleet(troubled(), recent=recent())
    fleet.polls = {"4711@ctl-1": 12.0, "812@ctl-2": 41.0}
    command = Command(fleet, columns=columns)
    done = command(*words.split(" "))
    assert done.exit_code == 0, done.output
    return done.stdout


def golden_file(columns: int) -> Path:
    return Path(__file__).with_name(f"pages.{columns}.golden.txt")


def golden(columns: int) -> str:
    """All pages at that width, as they are kept beside this file."""
    return "\n".join(f"$ llmgw {words}\n{page(words, columns)}" for words in PAGES)


if __name__ == "__main__":  # after a change that was looked at: python -m tests.cli.scenes
    for width in WIDTHS:
        golden_file(width).write_text(golden(width))
