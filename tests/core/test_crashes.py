"""Crash loops: whose fault they are, what is left out for them, and the road back."""

import pytest

from llmgw.crashes import WINDOW_S
from llmgw.ids import NodeId
from llmgw.showing.explain import explain
from sim.fleet import SimFleet

from .fleets import catalog, fleet, ids, model, of, places, published, running, why


def bad(f: SimFleet, *args: str) -> None:
    for node in f.nodes.values():
        node.crash_args = frozenset(args)


def test_a_start_that_fails_on_three_nodes_is_the_models_fault_and_the_next_profile_is_tried() -> None:
    f = fleet("abcd")
    bad(f, "best")
    two = [{"name": n, "engine": "stub", "args": [n], "accelerators": [{"count": 1}]} for n in ("best", "spare")]
    f.catalog(catalog(f, {"name": "m", "profiles": two}, policy={"max_attempts": 10}))
    f.run(50)
    assert [a.profile for a in of(f, "m")] == ["spare"]
    assert published(f, "m") == ids(f, "m")
    assert all(f.nodes[NodeId(n)].starts for n in "abc")


def test_a_model_that_failed_on_three_nodes_is_given_up_and_says_where() -> None:
    f = fleet("abcd")
    bad(f, "v1")
    f.catalog(catalog(f, model("m", args=["v1"])))
    f.run(4000)
    assert sum(len(n.starts) for n in f.nodes.values()) == 3, "it is not tried again by itself"
    assert why(f, "model/m").startswith("failed: given up: p failed on 3 nodes (a, b, c), last: the process ended")
    bad(f)
    f.order("wake", model="m")
    f.run(10)
    assert published(f, "m") == ids(f, "m") != set()


def test_replicas_that_crash_after_they_were_ready_do_not_give_a_model_up() -> None:
    f = running(model("m", 3, 1), nodes="abc", count=1)
    for assignment in of(f, "m"):
        f.nodes[assignment.node].crash(assignment.replica)
    f.run(20)
    assert len(published(f, "m")) == 3


def test_what_was_ready_since_is_not_given_up_for_the_nodes_before() -> None:
    f = fleet("abcde", 1)
    f.nodes[NodeId("a")].crash_starts = True
    f.catalog(catalog(f, model("m")))
    f.run(30)
    assert places(f, "m") == ["b"]
    for node in "bcd":
        f.nodes[NodeId(node)].crash_starts = True
    [ready] = of(f, "m")
    f.nodes[NodeId("b")].crash(ready.replica)
    f.run(300)
    assert places(f, "m") == ["e"], "b had it, so a, c and d are at fault"
    assert published(f, "m") == ids(f, "m") != set()


def crashing_node(count: int) -> SimFleet:
    """Node a, the first in every order, on which this many models fail to start; b has room for all."""
    f = fleet("ab", 5)
    f.nodes[NodeId("a")].crash_starts = True
    f.catalog(catalog(f, *(model(f"m{i}") for i in range(count)), policy={"max_loading_per_node": 9}))
    f.run(30)
    return f


def test_a_node_on_which_three_models_fail_gets_no_new_replicas_and_says_why() -> None:
    f = crashing_node(3)
    assert all(places(f, f"m{i}") == ["b"] for i in range(3))
    assert why(f, "node/a").startswith("crashes: starts of 3 models failed there (m0, m1, m2)")
    f.nodes[NodeId("a")].crash_starts = False
    f.catalog(catalog(f, *(model(f"m{i}") for i in range(3)), model("new", 3)))
    f.run(20)
    assert places(f, "new") == ["b", "b"]
    assert "left out for crashes: a" in why(f, "model/new")
    told = explain(f.world, "model/new", f.now_s).sentences
    assert any(text.startswith("Left out for crashes: a; they come back") for text in told)


def test_a_crashing_node_takes_replicas_again_after_a_while_or_when_an_operator_says_so() -> None:
    for how in ("time", "order"):
        f = crashing_node(3)
        f.nodes[NodeId("a")].crash_starts = False
        if how == "order":
            f.order("uncordon", node="a")
        else:
            f.run(WINDOW_S)
        f.settle()
        assert why(f, "node/a") == ""
        f.catalog(catalog(f, *(model(f"m{i}") for i in range(3)), model("new", 3)))
        f.run(20)
        assert len(published(f, "new")) == 3, how


def test_two_models_that_fail_on_a_node_are_no_proof_against_it() -> None:
    f = crashing_node(2)
    assert why(f, "node/a") == ""


def test_one_model_that_fails_everywhere_blames_no_node() -> None:
    f = fleet("abc")
    bad(f, "v1")
    f.catalog(catalog(f, model("m", 3, args=["v1"]), model("k", 3)))
    f.run(200)
    assert [why(f, f"node/{n}") for n in "abc"] == ["", "", ""]
    assert len(published(f, "k")) == 3


def test_what_runs_on_a_crashing_node_stays() -> None:
    f = running(model("old", 2, 1), nodes="ab", count=5)
    before = ids(f, "old")
    f.nodes[NodeId("a")].crash_starts = True
    f.catalog(
        catalog(f, model("old", 2, 1), *(model(f"m{i}", 3) for i in range(3)), policy={"max_loading_per_node": 9})
    )
    f.run(60)
    assert why(f, "node/a").startswith("crashes")
    assert published(f, "old") == before


def test_crashes_of_a_node_survive_carrying_over() -> None:
    f = crashing_node(3)
    f.carry_over()
    f.run(10)
    assert why(f, "node/a").startswith("crashes")


# --- many bad models --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "models"), [("ab", 4), ("abcdefgh", 16)])
def test_an_engine_that_is_broken_for_all_models_takes_no_node_and_the_last_good_versions_come_back(
    nodes: str, models: int
) -> None:
    names = [f"m{i}" for i in range(models)]
    f = running(*(model(n, 2, 1, args=["v1"]) for n in names), nodes=nodes, count=4)
    f.run(120)
    assert all(len(published(f, n)) == 2 for n in names)
    bad(f, "v2")
    f.catalog(catalog(f, *(model(n, 2, 1, args=["v2"]) for n in names)))
    f.run(600)
    assert {n: len(published(f, n)) for n in names} == dict.fromkeys(names, 2)
    assert [why(f, f"node/{n}") for n in nodes] == [""] * len(nodes)


@pytest.mark.parametrize(("nodes", "count", "bad_models"), [("abcdef", 4, 8), ("a", 8, 3)])
def test_bad_models_do_not_keep_a_healthy_one_from_starting(nodes: str, count: int, bad_models: int) -> None:
    """Nor where there is but one node, which is never left out."""
    f = fleet(nodes, count)
    bad(f, "v1")
    broken = [model(f"bad{i}", 1, 1, args=["v1"]) for i in range(bad_models)]
    for run_s, healthy in ((60, []), (30, [model("good", 2, 1)])):
        f.catalog(catalog(f, *broken, *healthy, policy={"max_loading_per_node": 9}))
        f.run(run_s)
    assert len(published(f, "good")) == 2
