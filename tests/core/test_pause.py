"""Paused, the plane watches and publishes, and starts and stops nothing; a doubtful node is what an operator says."""

from dataclasses import replace

import pytest

from llmgw.ids import NodeId, ReplicaId
from llmgw.nodes import survey
from llmgw.plan import Judgement
from llmgw.recent import Recent
from llmgw.views import Phase, status
from sim.fleet import SimFleet
from sim.node import devices
from tests.core.fleets import catalog, fleet, ids, model, places, published, running, state, why


def begun(fleet: SimFleet) -> list[ReplicaId]:
    return [replica for node in fleet.nodes.values() for replica in node.starts]


def phase(fleet: SimFleet) -> Phase:
    return status(fleet.world, Recent(), fleet.now_s).phase


def test_edits_are_taken_and_wait_and_what_leaves_is_withdrawn() -> None:
    f = running(model("a"), model("b"))
    f.order("pause", reason="rack 3 moves")
    before = begun(f), ids(f, "b")
    assert f.catalog(catalog(f, model("a"), model("c"))).judgement is Judgement.ACCEPTED
    f.run(300)
    assert (begun(f), ids(f, "b")) == before
    assert published(f, "b") == set()
    assert "paused by an operator (rack 3 moves)" in why(f, "model/c")
    assert phase(f) is Phase.PAUSED
    f.order("resume")
    f.run(60)
    assert state(f, "c") == "ready"
    assert ids(f, "b") == set()
    assert phase(f) is Phase.STEADY


def test_an_engine_that_dies_is_withdrawn_and_not_replaced_before_the_end_of_the_pause() -> None:
    f = running(model("a"))
    f.order("pause", for_s=120.0)
    [replica] = ids(f, "a")
    next(n for n in f.nodes.values() if replica in n.engines).crash(replica)
    f.run(60)
    assert published(f, "a") == set()
    assert len(begun(f)) == 1
    f.run(90)
    assert state(f, "a") == "ready"
    assert f.world.wishes.pause is None


def test_a_pause_keeps_its_age_and_says_when_it_ends() -> None:
    f = running(model("a"))
    f.order("pause", reason="x")
    f.run(30)
    f.order("pause", reason="y", for_s=600.0)
    text = status(f.world, Recent(), f.now_s).phase_text
    assert text == "y; nothing is started or stopped for 30 s already; goes on in 10 min, or with `llmgw resume`"
    assert f.order("resume").judgement is Judgement.ACCEPTED
    assert f.order("resume").judgement is Judgement.UNCHANGED


def test_the_end_of_a_fleet_is_held_up_by_no_pause() -> None:
    f = running(model("a"))
    f.order("pause")
    f.world = replace(f.world, ending=True)
    f.run(60)
    assert f.ended


# --- nodes in doubt ------------------------------------------------------------------------------------------------


def note(f: SimFleet, node: str) -> str:
    view = survey(f.world).of(NodeId(node))
    assert view is not None
    return f"{view.state}: {view.note}"


def doubled() -> SimFleet:
    f = fleet("ab")
    for node in f.nodes.values():
        node.machine = "copied"
    f.catalog(catalog(f, model("a")))
    f.run(100)
    return f


def test_machines_with_one_id_are_set_aside_until_confirmed_one_by_one() -> None:
    f = doubled()
    assert note(f, "a").startswith("set_aside: the same machine id copied is also reported by b; `llmgw nodes confirm")
    assert f.order("nodes-confirm", node="a").judgement is Judgement.ACCEPTED
    f.run(10)
    assert note(f, "a") == "healthy: "
    assert note(f, "b").startswith("set_aside")
    assert places(f, "a") == ["a"]
    f.order("nodes-confirm", node="b")
    assert note(f, "b") == "healthy: "


def test_another_machine_under_a_known_name_is_taken_when_it_is_confirmed() -> None:
    f = running(model("a"), nodes="a")
    node = f.nodes[NodeId("a")]
    node.machine, node.devices = "new", devices("new", 2)
    node.reboot()
    f.run(10)
    assert note(f, "a").startswith("set_aside: machine new answers under the name of machine machine-a")
    f.order("nodes-confirm", node="a")
    f.run(30)
    assert note(f, "a") == "healthy: "
    assert state(f, "a") == "ready"
    assert all(c.device.startswith("GPU-new") for a in f.world.assignments.values() for c in a.claims)


@pytest.mark.parametrize(
    ("node", "said"),
    [("a", "node a is healthy, not set aside: nothing is in doubt"), ("zz", "there is no node called 'zz'")],
)
def test_only_a_node_in_doubt_is_confirmed(node: str, said: str) -> None:
    f = running(model("a"))
    verdict = f.order("nodes-confirm", node=node)
    assert verdict.judgement is Judgement.REFUSED
    assert said in verdict.problems[0]
