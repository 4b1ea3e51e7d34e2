"""The words of `explain`, held to a golden file: they are what an operator reads at night.

After a wanted change: `UPDATE_GOLDENS=1 python -m pytest tests/core/test_explain.py`, and read the difference.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from llmgw import views
from llmgw.catalog import Catalog
from llmgw.ids import DeviceId, Fingerprint, ModelName, NodeId, ReplicaId, RouterId
from llmgw.table import build
from llmgw.wire import Device, EngineState, Inventory, ModelState, Owner, RefusalCode, TableModel
from llmgw.world import (
    Call,
    Drain,
    Failure,
    Outgoing,
    OutgoingKind,
    Refused,
    RouterFacts,
    Scale,
    Silence,
    SilenceLevel,
    StopCause,
    StopIntent,
    Waiting,
    Wishes,
    World,
)

from .worlds import NOW, assignment, endpoint, raw_catalog, row, seen, serving, table_model

GOLDEN = Path(__file__).with_name("explain.golden.txt")


def plain() -> World:
    return replace(serving("qwen"), generation=2)


def two_profiles() -> World:
    """qwen on its second profile, one replica short, with failures behind it."""
    stub = {"engine": "stub"}
    qwen = {
        "name": "qwen",
        "aliases": ["chat"],
        "replicas": {"min": 1, "max": 3},
        "profiles": [{"name": "h100", **stub}, {"name": "cpu", **stub}],
    }
    failure = Failure(
        ReplicaId("qwen-0"),
        NodeId("node-a"),
        Fingerprint("f"),
        NOW - 20,
        was_ready=False,
        exit_code=1,
        text="the engine ended, exit code 1",
        log_tail=("loading weights", "torch.OutOfMemoryError: CUDA out of memory"),
        attempt=2,
    )
    waiting = Waiting(
        "model/qwen", "backing_off", "attempt 2 failed on node-a: the engine ended, exit code 1", NOW - 20, NOW
    )
    start = plain()
    return replace(
        start,
        catalog=Catalog.model_validate({**raw_catalog(), "models": [qwen]}),
        table=build([table_model("qwen"), with_alias("llama", "chat")], [endpoint("qwen-1", "qwen")]),
        wishes=Wishes(scales={ModelName("qwen"): Scale(2, NOW + 1_800)}),
        failures={ModelName("qwen"): (failure,)},
        waiting={"model/qwen": replace(waiting, until_s=NOW + 20)},
    )


def with_alias(name: str, alias: str) -> TableModel:
    return table_model(name).model_copy(update={"aliases": (alias,)})


def failed_for_good() -> World:
    text = "given up: cpu failed 5 times in a row, last: the engine ended, exit code 1"
    start = plain()
    return replace(
        start,
        assignments={},
        seen={NodeId("node-a"): seen("node-a")},
        table=build([table_model("qwen", ModelState.UNAVAILABLE)], []),
        waiting={"model/qwen": Waiting("model/qwen", "failed", text, NOW - 600)},
    )


def left_the_catalog() -> World:
    stop = StopIntent(StopCause.REMOVED, "qwen left the catalog", NOW - 12, 4)
    text = "its model left; it is stopped 30 s after, unless it is taken back"
    start = plain()
    return replace(
        start,
        catalog=Catalog.model_validate(raw_catalog("llama")),
        assignments={ReplicaId("qwen-1"): assignment("qwen-1", "qwen", stop=stop)},
        table=build([], []),
        waiting={"replica/qwen-1": Waiting("replica/qwen-1", "draining", text, NOW - 12)},
    )


def loading() -> World:
    report = row("qwen-1", "qwen", EngineState.LOADING, pid=4711, port=9001, reason="weights 40 %")
    return replace(plain(), seen={NodeId("node-a"): seen("node-a", report)}, table=build([], []))


def told_to_stop() -> World:
    stop = StopIntent(
        StopCause.CHANGED, "its catalog entry was changed", NOW - 300, 4, commanded=True, commanded_s=NOW - 200
    )
    return replace(
        plain(), assignments={ReplicaId("qwen-1"): assignment("qwen-1", "qwen", stop=stop)}, table=build([], [])
    )


def refused() -> World:
    start = plain()
    from_world = assignment("qwen-2", "qwen", created_s=NOW - 30)
    return replace(
        start,
        assignments={**start.assignments, ReplicaId("qwen-2"): from_world},
        refused={ReplicaId("qwen-2"): Refused(RefusalCode.NO_DISK, "12 GiB free, 60 GiB needed", NOW - 4)},
        outbox={NodeId("node-a"): (Outgoing(OutgoingKind.START, "qwen-2"),)},
        calls={NodeId("node-a"): Call(failures=2, failed_s=NOW - 1, problem="no answer in time")},
    )


def unclaimed() -> World:
    start = plain()
    report = row("old-7", "llama", pid=99)
    text = "llama runs on node-a, started before our memory, and the catalog does not name it"
    return replace(
        start,
        seen={NodeId("node-a"): seen("node-a", report)},
        unclaimed={ReplicaId("old-7"): NOW - 30},
        waiting={"replica/old-7": Waiting("replica/old-7", "unclaimed", text, NOW - 30)},
    )


def drained() -> World:
    devices = (
        Device(id=DeviceId("GPU-qwen-1"), index=0, kind="NVIDIA H100 80GB HBM3", memory_mib=81_559),
        Device(id=DeviceId("GPU-b"), index=1, kind="NVIDIA H100 80GB HBM3", memory_mib=81_559),
    )
    start = plain()
    report = seen("node-a", row("qwen-1", "qwen"), inventory=Inventory(devices=devices))
    wishes = Wishes(cordoned={NodeId("node-a"): NOW - 60}, drains={NodeId("node-a"): Drain(NOW - 60, NOW + 540)})
    return replace(
        start,
        seen={NodeId("node-a"): replace(report, quarantined={DeviceId("GPU-b"): "stayed in use after a stop"})},
        wishes=wishes,
        outbox={NodeId("node-a"): (Outgoing(OutgoingKind.STOP, "old-7"),)},
    )


def silent() -> World:
    levels = {"node/node-a": Silence(SilenceLevel.LOST, NOW - 75)}
    return replace(plain(), silence=levels, troubles={"node/node-a": "connection refused"})


def not_heard() -> World:
    """Right after a new run began: what is published stays."""
    return replace(plain(), seen={})


def braked() -> World:
    text = "3 of 4 nodes fell silent within a minute: nothing is withdrawn or moved for it."
    return replace(plain(), waiting={"fleet": Waiting("fleet", "brake", text, NOW - 15)})


def foreign() -> World:
    owner = Owner(installation="other", fleet="main")
    return replace(plain(), seen={NodeId("node-a"): replace(seen("node-a"), owner=owner)}, assignments={})


def behind() -> World:
    facts = RouterFacts(
        acked_revision=2,
        confirmed_s=NOW - 40,
        draining=frozenset({ReplicaId("qwen-0")}),
        failures=3,
        failed_s=NOW - 1,
        problem="connection refused",
    )
    return replace(plain(), routers={RouterId("edge-1"): facts})


def with_device(node: str, *kinds: str, memory_mib: int = 81_559) -> Inventory:
    devices = (
        Device(id=DeviceId(f"GPU-{node}-{i}"), index=i, kind=kind, memory_mib=memory_mib)
        for i, kind in enumerate(kinds)
    )
    return Inventory(devices=tuple(devices))


def asks(**profile: object) -> World:
    """qwen has no place; node-a (pool default, rack=1) has two H100, node-b (pool edge) one L4."""
    text = "cpu needs what it asks for: no node has it"
    entry = {"name": "qwen", "profiles": [{"name": "cpu", "engine": "stub", **profile}]}
    nodes = [
        {"id": "node-a", "url": "http://a:7070", "labels": {"rack": "1"}},
        {"id": "node-b", "url": "http://b:7070", "pool": "edge"},
    ]
    raw = {**raw_catalog(), "nodes": nodes, "pools": [{"name": "edge"}], "models": [entry]}
    return replace(
        plain(),
        catalog=Catalog.model_validate(raw),
        assignments={},
        table=build([table_model("qwen", ModelState.UNAVAILABLE)], []),
        seen={
            NodeId("node-a"): seen("node-a", inventory=with_device("node-a", *["NVIDIA H100 80GB HBM3"] * 2)),
            NodeId("node-b"): seen("node-b", inventory=with_device("node-b", "NVIDIA L4", memory_mib=23_034)),
        },
        waiting={"model/qwen": Waiting("model/qwen", "no_place", text, NOW - 60)},
    )


def device(**fields: object) -> list[dict[str, object]]:
    return [{"count": 1, **fields}]


def edited() -> World:
    """The version before an edit serves; the new one has no place."""
    start = plain()
    return replace(
        start,
        good={ModelName("qwen"): start.catalog or Catalog()},
        waiting={"model/qwen": Waiting("model/qwen", "no_place", "cpu needs 4 × h100: no node has it", NOW - 60)},
    )


def moving() -> World:
    """node-a is drained: one of its replicas leaves, one waits for a place, one for its successor to load."""
    start = drained()
    stop = StopIntent(StopCause.DRAINED, "node-a is drained", NOW - 30, 4)
    here = [assignment("qwen-1", "qwen"), assignment("llama-1", "llama"), assignment("old-7", "qwen", stop=stop)]
    coming = assignment("qwen-2", "qwen", node="node-b", created_s=NOW - 20)
    loads = row("qwen-2", "qwen", EngineState.LOADING)
    return replace(
        start,
        catalog=Catalog.model_validate(raw_catalog("qwen", "llama")),
        assignments={a.replica: a for a in (*here, coming)},
        table=build(
            [table_model("qwen"), table_model("llama")], [endpoint("qwen-1", "qwen"), endpoint("llama-1", "llama")]
        ),
        seen={**start.seen, NodeId("node-b"): seen("node-b", loads)},
        waiting={"model/llama": Waiting("model/llama", "no_place", "cpu needs a node: 1 node draining", NOW - 50)},
    )


def emptied() -> World:
    return replace(drained(), assignments={}, table=build([], []), outbox={})


def cordoned() -> World:
    return replace(plain(), wishes=Wishes(cordoned={NodeId("node-a"): NOW - 60}))


def falling_silent() -> World:
    levels = {"node/node-a": Silence(SilenceLevel.SUSPECT, NOW - 25)}
    return replace(plain(), silence=levels, troubles={"node/node-a": "no beat"}, table=build([], []))


def lost_and_replaced() -> World:
    start = silent()
    both = {
        **start.assignments,
        ReplicaId("llama-1"): assignment("llama-1", "llama"),
        ReplicaId("qwen-2"): assignment("qwen-2", "qwen", node="node-b"),
    }
    text = "cpu needs a node: 1 node lost"
    return replace(
        start,
        catalog=Catalog.model_validate(raw_catalog("qwen", "llama")),
        assignments=both,
        seen={**start.seen, NodeId("node-b"): seen("node-b", row("qwen-2", "qwen"))},
        table=build([table_model("qwen")], [endpoint("qwen-2", "qwen")]),
        waiting={"model/llama": Waiting("model/llama", "no_place", text, NOW - 15)},
    )


CASES: list[tuple[str, Callable[[], World], str]] = [
    ("a model that is as wanted", plain, "model/qwen"),
    ("a model that backs off", two_profiles, "qwen"),
    ("a model by its alias", two_profiles, "chat"),
    ("a model that was given up", failed_for_good, "qwen"),
    ("a replica that failed and is gone", two_profiles, "qwen-0"),
    ("a model that left", left_the_catalog, "model/qwen"),
    ("a replica that is as wanted", plain, "replica/qwen-1"),
    ("a replica on its second profile", two_profiles, "qwen-1"),
    ("a replica that loads", loading, "qwen-1"),
    ("a replica whose model left", left_the_catalog, "qwen-1"),
    ("a replica that is told to stop", told_to_stop, "qwen-1"),
    ("a replica that its node refuses", refused, "qwen-2"),
    ("an engine that nobody claims", unclaimed, "old-7"),
    ("a node that is heard", plain, "node/node-a"),
    ("a node that is not heard yet", not_heard, "node-a"),
    ("a node that is drained", drained, "node-a"),
    ("a node that is lost", silent, "node-a"),
    ("a node of somebody else", foreign, "node-a"),
    ("a model whose new version has no place", edited, "qwen"),
    ("a replica of the version before the edit", edited, "qwen-1"),
    ("a kind that nothing is of", lambda: asks(accelerators=device(kind="h10")), "qwen"),
    ("a kind that sounds like nothing there", lambda: asks(accelerators=device(kind="gaudi")), "qwen"),
    ("a kind that another pool has", lambda: asks(accelerators=device(kind="L4")), "qwen"),
    ("more memory than there is", lambda: asks(accelerators=device(kind="h100", memory="141GiB")), "qwen"),
    ("more devices than a node has", lambda: asks(accelerators=device(kind="h100", count=8)), "qwen"),
    ("a label that no node has", lambda: asks(labels={"rack": "2"}), "qwen"),
    ("a label that nobody knows", lambda: asks(labels={"row": "2"}), "qwen"),
    ("a list of strangers", lambda: asks(nodes=["node-x"]), "qwen"),
    ("what is only taken at present", lambda: asks(accelerators=device(kind="h100", count=2)), "qwen"),
    ("a node that is being drained", moving, "node-a"),
    ("a replica that waits to leave", moving, "llama-1"),
    ("a node that is drained and empty", emptied, "node-a"),
    ("a node that is cordoned", cordoned, "node-a"),
    ("a node that falls silent", falling_silent, "node-a"),
    ("a lost node whose models run elsewhere or wait", lost_and_replaced, "node-a"),
    ("a router that lags", behind, "edge-1"),
    ("a router that was told nothing", plain, "router/edge-1"),
    ("the fleet", two_profiles, "fleet"),
    ("the fleet under the brake", braked, ""),
    ("something unknown", plain, "model/qwne"),
]


def text_of(title: str, make: Callable[[], World], subject: str) -> str:
    found = views.explain(make(), subject, NOW)
    lines = [f"# {title}: explain {subject}", f"[{found.subject}]", *found.sentences]
    return "\n".join([*lines, *(f"    {line}" for line in found.log_tail), ""])


def test_explanations_read_as_they_did() -> None:
    text = "\n".join(text_of(*case) for case in CASES)
    if os.environ.get("UPDATE_GOLDENS"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize(("title", "make", "subject"), CASES, ids=[c[0] for c in CASES])
def test_sentences_end_once(title: str, make: Callable[[], World], subject: str) -> None:
    for sentence in views.explain(make(), subject, NOW).sentences:
        assert ".." not in sentence
        assert not sentence.endswith((" ", ",", ";"))
        assert "?." not in sentence
        assert "  " not in sentence
