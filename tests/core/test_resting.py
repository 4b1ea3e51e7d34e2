"""Ports of replicas that are gone come back into use only when no router can send to them any more."""

from dataclasses import replace

from llmgw import batches
from llmgw.ids import NodeId
from llmgw.resting import MAX_PER_NODE, REST_S
from llmgw.world import RestingPort
from sim.fleet import SimFleet

from .fleets import catalog, fleet, model, of, only, running

A = NodeId("a")


def resting(f: SimFleet) -> list[RestingPort]:
    return list(f.world.resting.get(A, ()))


def restarted(f: SimFleet, times: int = 1) -> None:
    """The only replica on the only node is replaced so often, its port changing each time."""
    for _ in range(times):
        f.run(2)
        f.order("restart", target="m")
        f.run(12)


def test_the_port_of_a_gone_replica_is_named_in_the_next_batch_and_then_forgotten() -> None:
    f = running(model("m"), nodes="a", count=1)
    first = f.nodes[A].engines[only(f, "m").replica].port
    restarted(f)
    assert f.nodes[A].resting == {}, "the start of the new replica named the old one's port"
    assert resting(f) == []
    assert f.nodes[A].engines[only(f, "m").replica].port != first


def test_more_replicas_come_and_go_than_a_node_has_ports() -> None:
    f = running(model("m"), nodes="a", count=1)
    f.nodes[A].ports = range(20000, 20003)
    restarted(f, 8)
    assert len(f.nodes[A].starts) == 9
    assert only(f, "m").replica in f.world.table.endpoints


def test_a_port_rests_while_a_router_may_still_serve_an_old_table() -> None:
    f = fleet("ab", 1, routers=("r1", "r2"))
    f.catalog(catalog(f, model("m", {"min": 1, "max": 2}), policy={"drain_limit_s": 5.0}))
    f.run(10)
    f.order("scale", model="m", replicas=2)
    f.run(10)
    f.cut = {"router/r2"}
    f.order("scale", model="m", replicas=1)
    f.run(60)
    [gone] = [n for n in "ab" if not f.nodes[NodeId(n)].engines]
    [port] = f.world.resting[NodeId(gone)]
    assert not port.let_go, "r2 is silent and never said that it took the replica out"
    f.cut = set()
    f.run(40)
    assert f.world.resting[NodeId(gone)][0].let_go


def test_a_port_is_named_until_the_nodes_token_shows_that_it_was_taken() -> None:
    f = running(model("m"), nodes="a", count=1)
    f.world = replace(f.world, resting={A: (RestingPort(20023, f.now_s, 0),)})
    f.settle()
    assert resting(f)[0].let_go
    f.lose_replies = {"node/a"}
    f.cut = {"node/a"}
    f.order("restart", target="m")
    f.run(8)
    named = resting(f)
    assert [p.port for p in named] == [20023], "batches that nobody took end nothing"
    f.cut, f.lose_replies = set(), set()
    f.run(15)
    assert 20023 not in {p.port for p in resting(f)}


def test_resting_ports_survive_carrying_over() -> None:
    f = running(model("m"), nodes="a", count=1)
    f.world = replace(f.world, resting={A: (RestingPort(20023, f.now_s, 0),)})
    f.carry_over()
    f.settle()
    assert [p.port for p in resting(f)] == [20023]
    assert resting(f)[0].let_go


def test_resting_ports_are_few_and_for_an_hour_only() -> None:
    f = running(model("m"), nodes="a", count=1)
    many = tuple(RestingPort(p, f.now_s, 0) for p in range(30000, 30000 + 2 * MAX_PER_NODE))
    f.world = replace(f.world, resting={A: many})
    f.settle()
    assert [p.port for p in resting(f)] == [p.port for p in many[-MAX_PER_NODE:]]
    f.run(REST_S + 1)
    assert resting(f) == []


def test_a_port_that_is_in_use_again_is_never_named() -> None:
    f = running(model("m"), nodes="a", count=1)
    used = f.nodes[A].engines[only(f, "m").replica].port
    f.world = replace(f.world, resting={A: (RestingPort(used, f.now_s - 10, 0, let_go=True),)})
    f.settle()
    assert resting(f) == []


def test_a_resting_port_alone_gives_no_batch() -> None:
    f = running(model("m"), nodes="a", count=1)
    before = f.world.seq
    f.world = replace(f.world, resting={A: (RestingPort(20023, f.now_s, 0),)})
    f.run(30)
    assert f.world.seq == before
    assert batches.for_node(f.world, A) is None


def test_the_port_of_an_engine_that_vanished_is_known_from_its_route() -> None:
    f = running(model("m"), nodes="a", count=1)
    [replica] = of(f, "m")
    port = f.nodes[A].engines.pop(replica.replica).port
    f.nodes[A].resting[port] = f.now_s
    f.nodes[A].revision += 1
    f.run(10)
    assert len(f.nodes[A].engines) == 1
    assert {p.port for p in resting(f)} == {port}, "its start left before the router had answered"
    restarted(f)
    assert port not in f.nodes[A].resting, "the next batch named it"
