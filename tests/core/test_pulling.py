"""Weights before engines: what a node is told to fetch first, and what removals are told to keep."""

from dataclasses import replace

import pytest

from activities.cutting import node_seen
from llmgw import batches
from llmgw.batches import answer_of
from llmgw.calls import DispatchAnswer
from llmgw.ids import NodeId
from llmgw.weights import must_be_pulled, pull_secret
from llmgw.wire import (
    BatchReply,
    CommandResult,
    LaunchSpec,
    NodeReport,
    Outcome,
    Pull,
    Refusal,
    RefusalCode,
    RemoveWeights,
    WeightsReport,
)
from llmgw.world import NodeTask, Outgoing, OutgoingKind
from sim.fleet import SimFleet

from .fleets import catalog, fleet, ids, model, only, published, running, why
from .worlds import serving

A = NodeId("a")
FILE = "https://files/m.gguf"
ON_FILE = {"env": {"MODEL": "${llmgw:weights}"}}


def wanting(source: str, fleet: SimFleet, **profile: object) -> SimFleet:
    fleet.catalog(catalog(fleet, model("m", profile={**ON_FILE, "weights": source, **profile})))
    return fleet


def test_weights_that_an_engine_cannot_fetch_itself_are_pulled_before_it_is_started() -> None:
    f = fleet("a")
    f.nodes[A].pull_s = 20.0
    wanting(FILE, f)
    f.run(10)
    assert [pull.source for pull in f.nodes[A].pulled] == [FILE]
    assert f.nodes[A].starts == []
    assert why(f, f"replica/{only(f, 'm').replica}").startswith("fetching: a fetches its weights")
    f.run(20)
    assert published(f, "m") == ids(f, "m") != set()
    assert len(f.nodes[A].pulled) == 1


def test_two_replicas_of_one_file_are_one_pull() -> None:
    f = fleet("a")
    f.catalog(catalog(f, model("m", 2, profile={**ON_FILE, "weights": FILE})))
    f.run(15)
    assert len(published(f, "m")) == 2
    assert len(f.nodes[A].pulled) == 1


def test_a_node_that_restarts_its_agent_and_forgot_the_pull_is_told_again() -> None:
    f = fleet("a")
    f.nodes[A].pull_s = 1000.0
    wanting(FILE, f)
    f.run(5)
    f.nodes[A].weights.clear()
    f.nodes[A].restart_agent()
    f.nodes[A].pull_s = 1.0
    f.run(15)
    assert len(f.nodes[A].pulled) == 2
    assert published(f, "m") == ids(f, "m") != set()


def test_a_node_that_cannot_pull_is_a_wait_with_its_reason_and_no_failed_attempt() -> None:
    f = fleet("a")
    f.nodes[A].pull_s = None
    wanting(FILE, f)
    f.run(60)
    assert not f.world.failures
    assert "a refuses" in why(f, f"replica/{only(f, 'm').replica}")
    f.nodes[A].pull_s = 1.0
    f.run(60)
    assert published(f, "m") == ids(f, "m") != set()


def test_the_secret_of_the_engine_serves_its_pull() -> None:
    f = wanting("hf://org/m/m.gguf", fleet("a"), secrets={"HF_TOKEN": "hub"})
    f.run(10)
    assert f.nodes[A].pulled == [Pull(source="hf://org/m/m.gguf", secret="hub")]


def spec(weights: str | None, *argv: str, **secrets: str) -> LaunchSpec:
    return LaunchSpec(engine="x", argv=("x", *argv), served_name="m", weights=weights, secret_env=secrets)


@pytest.mark.parametrize(
    ("weights", "argv", "pulled"),
    [
        (None, (), False),
        ("file:///w/m", ("${llmgw:weights}",), False),
        ("hf://o/m", ("${llmgw:weights}",), False),
        ("hf://o/m/x.gguf", ("-hf", "o/m", "-hff", "x.gguf"), False),
        ("hf://o/m/x.gguf", ("-m", "${llmgw:weights}"), True),
        ("https://h/x.gguf", ("-m", "${llmgw:weights}"), True),
        ("http://h/x.gguf", (), True),
    ],
)
def test_only_what_an_engine_cannot_fetch_itself_must_be_pulled(
    weights: str | None, argv: tuple[str, ...], pulled: bool
) -> None:
    assert must_be_pulled(spec(weights, *argv)) == pulled


def test_a_web_servers_file_gets_no_token_of_the_hub() -> None:
    assert pull_secret(spec("hf://o/m", HF_TOKEN="hub")) == "hub"
    assert pull_secret(spec("https://h/m", HF_TOKEN="hub")) is None


def test_a_refused_pull_is_a_refusal_of_the_replica_that_waits_for_it() -> None:
    f = fleet("a")
    f.nodes[A].pull_s = 1000.0
    wanting(FILE, f)
    f.run(3)
    replica = only(f, "m").replica
    task = NodeTask("t", A, RemoveWeights(paths=("x",)), 0.0)
    outbox = {A: (Outgoing(OutgoingKind.PULL, replica), Outgoing(OutgoingKind.TASK, "t"))}
    world = replace(f.world, outbox=outbox, wishes=replace(f.world.wishes, tasks=(task,)))
    call = batches.for_node(world, A)
    assert call is not None
    commands = batches.command_batch(call).commands
    assert [command.kind for command in commands] == ["remove_weights", "pull"]
    no = Refusal(code=RefusalCode.UNSUPPORTED, message="no root")
    results = (
        CommandResult(subject="remove_weights", outcome=Outcome.ACCEPTED),
        CommandResult(subject=FILE, outcome=Outcome.REFUSED, refusal=no),
    )
    answer: DispatchAnswer = answer_of(call, BatchReply(token=call.token, results=results))
    assert [(result.subject, result.refusal) for result in answer.refused] == [(replica, no)]
    assert [done.task for done in answer.tasks] == ["t"]


# --- removals ------------------------------------------------------------------------------------------------------


def test_a_removal_is_told_what_must_stay_at_the_moment_it_is_sent() -> None:
    f = running(model("m", profile={"weights": "hf://o/runs"}), model("s", {"min": 0}, weights="hf://o/sleeps"))
    node = only(f, "m").node
    f.catalog(catalog(f, model("other", {"min": 0}, profile={"weights": "hf://o/new"}), model("m", 1)))
    task = NodeTask("t", node, RemoveWeights(paths=("x",)), 0.0)
    f.world = replace(
        f.world,
        wishes=replace(f.world.wishes, tasks=(task,)),
        outbox={node: (Outgoing(OutgoingKind.TASK, "t"),)},
    )
    call = batches.for_node(f.world, node)
    assert call is not None
    kept = call.tasks["t"]
    assert isinstance(kept, RemoveWeights)
    assert "hf://o/sleeps" not in kept.keep
    assert kept.keep["hf://o/new"] == "model other"
    runs = [a for a in f.world.assignments.values() if a.node == node and f.world.specs[a.spec].weights]
    assert {f"replica {a.replica}" for a in runs} <= set(kept.keep.values())


def test_models_of_other_pools_keep_nothing_here() -> None:
    raw = {
        "pools": [{"name": "far"}],
        "nodes": [{"id": "node-a", "url": "http://a:1"}],
        "models": [model("m", devices=0, profile={"weights": "hf://o/m", "pool": "far"})],
    }
    world = serving("qwen")
    assert world.catalog is not None
    world = replace(world, catalog=world.catalog.model_validate(raw))
    assert batches.kept_weights(world, NodeId("node-a")) == {}


# --- what of it enters a history -----------------------------------------------------------------------------------


def test_of_a_report_only_what_is_decided_on_is_observed_and_progress_in_tenths() -> None:
    def seen(done: int) -> tuple[WeightsReport, ...]:
        rows = (
            WeightsReport(source="hf://o/whole", path="models--o--whole", bytes=5, complete=True),
            WeightsReport(source="hf://o/whole@v1", path="x", bytes=5, complete=False, reason="a is missing"),
            WeightsReport(source="hf://o/m/x.gguf", path="somewhere", bytes=7, complete=True, idle_s=4.0),
            WeightsReport(source=FILE, path="", bytes=done, total_bytes=1000, complete=False, pulling=True),
        )
        report = NodeReport(node=A, machine_id="m", boot_id="b", instance="i", revision=1, weights=rows)
        return node_seen(A, report).weights

    assert [row.source for row in seen(0)] == ["hf://o/m/x.gguf", FILE]
    assert seen(101) == seen(199) != seen(200)
