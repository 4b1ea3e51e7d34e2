"""Public incidents about nodes, clocks, edits and names, as scenes over simulated nodes and routers.

B13 has its table in test_cases_orders, B12 its own scenes in test_salvage, and more of B46 and B47 are in test_rolling.
"""

import pytest

from llmgw.ids import ModelName, NodeId, RouterId
from llmgw.world import SilenceLevel
from sim.fleet import SimFleet

from .fleets import catalog, fleet, ids, model, of, only, places, published, running, state, why

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
R1 = RouterId("r1")


def engines(f: SimFleet) -> set[str]:
    return {r for n in f.nodes.values() for r in n.engines}


# --- B22: a partition ----------------------------------------------------------------------------------------------


def test_b22_a_short_partition_takes_routes_away_and_gives_them_back_and_stops_or_starts_nothing() -> None:
    f = running(model("m"), nodes="abc", policy={"lost_after_s": 180.0})
    before, seq = only(f, "m"), f.world.seq
    f.cut = {f"node/{before.node}"}
    f.run(60)
    assert published(f, "m") == set()
    f.cut = set()
    f.run(5)
    assert published(f, "m") == {before.replica}
    assert sum(len(n.starts) for n in f.nodes.values()) == 1
    assert f.world.seq - seq == 2, "only the router was told, twice"


def test_b22_after_a_long_partition_the_old_copy_is_stopped_and_never_routed_to_again() -> None:
    f = running(model("m", 1, 1), nodes="abc", count=1, policy={"lost_after_s": 180.0})
    old = only(f, "m")
    seen: list[set[str]] = []
    f.checks.append(lambda f: seen.append(set(published(f, "m"))))
    f.cut = {f"node/{old.node}"}
    f.run(175)
    assert ids(f, "m") == {old.replica}
    f.run(20)
    [new] = published(f, "m")
    assert new != old.replica
    after = len(seen)
    f.cut = set()
    f.run(30)
    assert engines(f) == {new}
    assert all(old.replica not in names for names in seen[after:])


# --- B41: another address, another name ----------------------------------------------------------------------------


def test_b41_a_new_address_changes_routes_in_one_step_and_restarts_nothing() -> None:
    f = running(model("m", 2, 1), nodes="ab", count=1)
    before = ids(f, "m")
    raw = catalog(f, model("m", 2, 1))
    nodes = [{"id": "a", "url": "http://elsewhere:1"}, {"id": "b", "url": "http://b:1"}]
    f.catalog({**raw, "nodes": nodes})
    f.run(20)
    assert published(f, "m") == before
    assert sum(len(n.starts) for n in f.nodes.values()) == 2


# --- B43: clocks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_b43_a_jump_of_the_planes_clock_loses_no_node_and_stops_nothing(jump_s: float) -> None:
    f = running(model("m", 2, 1), nodes="ab", count=1)
    before = published(f, "m")
    f.now_s += jump_s
    f.eyes.heard_s = {
        target: at_s + jump_s for target, at_s in f.eyes.heard_s.items()
    }  # the observer's clock is monotonic
    for node in f.nodes.values():
        node.now_s += jump_s
    f.run(60)
    assert published(f, "m") == before == engines(f)
    assert all(s.level is SilenceLevel.HEARD for s in f.world.silence.values())


def test_b43_a_stop_that_was_begun_ends_in_time_after_the_clock_went_back() -> None:
    f = running(model("m", {"min": 1, "max": 2}), nodes="ab", count=1, policy={"drain_limit_s": 20.0})
    f.order("scale", model="m", replicas=2)
    f.run(10)
    f.now_s -= 600.0
    f.eyes.heard_s = {target: at_s - 600.0 for target, at_s in f.eyes.heard_s.items()}
    f.order("scale", model="m", replicas=1)
    f.run(60)
    assert len(engines(f)) == 1


# --- B44: a reboot -------------------------------------------------------------------------------------------------


def test_b44_nothing_is_placed_on_a_node_before_its_devices_are_up_again() -> None:
    f = running(model("m", 2, 1), nodes="ab", count=1)
    devices = f.nodes[A].devices
    f.nodes[A].reboot()
    f.nodes[A].devices, f.nodes[A].complete = (), False
    f.run(40)
    assert len(published(f, "m")) == 1
    assert f.nodes[A].starts == [r for r in f.nodes[A].starts if r in {"m-0", "m-1"}], "no start without its devices"
    assert "without a complete inventory" in why(f, "model/m")
    f.nodes[A].devices, f.nodes[A].complete = devices, True
    f.nodes[A].revision += 1
    f.run(10)
    assert len(published(f, "m")) == 2


def test_b44_what_was_stopped_while_its_node_was_away_does_not_come_back_with_it() -> None:
    f = running(model("a-wanted"), model("b-unwanted"), nodes="a", policy={"removal_grace_s": 0.0})
    unwanted = only(f, "b-unwanted").replica
    f.cut = {"node/a"}
    f.run(12)
    f.catalog(catalog(f, model("a-wanted"), policy={"removal_grace_s": 0.0}))
    f.run(20)
    back = dict(f.nodes[A].engines)
    f.nodes[A].reboot()
    f.nodes[A].engines.update(back)  # the machine's own supervisor restarted both
    f.cut = set()
    f.run(30)
    assert unwanted not in engines(f)
    assert len(published(f, "a-wanted")) == 1


def test_b44_a_repeat_that_reaches_the_next_boot_starts_nothing_that_was_proven_gone() -> None:
    f = fleet("a")
    f.double = {"node/a"}  # each batch comes again 2 s later
    f.catalog(catalog(f, model("m")))
    f.run(1)
    first = only(f, "m").replica
    assert f.nodes[A].starts == [first]
    f.delay = lambda: 4.0  # what is newer comes later
    f.nodes[A].reboot()
    f.run(3)
    assert first not in f.world.assignments
    assert not engines(f)
    f.delay = lambda: 0.0
    f.run(20)
    assert f.nodes[A].starts == [first, only(f, "m").replica]
    assert engines(f) == published(f, "m") == ids(f, "m")


# --- B46: no room for two ------------------------------------------------------------------------------------------


def test_b46_where_there_is_no_room_for_two_the_old_one_stops_first_and_says_so() -> None:
    f = running(model("m", 1, 2, args=["v1"]), nodes="a")
    f.catalog(catalog(f, model("m", 1, 2, args=["v2"])))
    assert any("there is no room to start the new one first" in line for line in f.story)
    f.run(20)
    assert published(f, "m") == ids(f, "m") != set()
    assert len(f.nodes[A].starts) == 2


def test_b46_where_there_is_room_the_new_one_starts_first() -> None:
    f = running(model("m", 1, 2, args=["v1"]), nodes="ab")
    f.catalog(catalog(f, model("m", 1, 2, args=["v2"])))
    for _ in range(80):
        f.run(0.25)
        assert published(f, "m")
        assert len(engines(f)) <= 2
    assert len(ids(f, "m")) == 1


# --- B47: edits in a row -------------------------------------------------------------------------------------------


def test_b47_an_edit_while_the_former_version_is_being_stopped_ends_in_the_last_edit() -> None:
    f = running(model("m", 1, 2, args=["v1"]), nodes="a")
    f.nodes[A].stop_s = 10.0
    f.catalog(catalog(f, model("m", 1, 2, args=["v2"])))
    f.run(3)
    f.catalog(catalog(f, model("m", 1, 2, args=["v1"])))
    f.run(1)
    f.catalog(catalog(f, model("m", 1, 2, args=["v3"])))
    f.run(60)
    [replica] = ids(f, "m")
    assert "v3" in f.nodes[A].engines[replica].start.launch.argv
    assert len(f.nodes[A].starts) == 2, "nothing in between was started"


def test_b47_a_rename_is_announced_as_a_stop_and_a_start_and_the_old_name_stays_known() -> None:
    f = running(model("m"), nodes="ab", policy={"removal_grace_s": 60.0})
    known: list[bool] = []

    def watch(f: SimFleet) -> None:
        rows = f.routers[R1].table.models.values()
        known.append(any(m.name == "m" or "m" in m.aliases for m in rows))

    f.checks.append(watch)
    verdict = f.catalog(catalog(f, model("m2", aliases=["m"]), policy={"removal_grace_s": 60.0}))
    assert "m becomes an alias of m2: a rename stops m's engines" in " ".join(verdict.warnings)
    f.run(60)
    assert published(f, "m") == published(f, "m2") == ids(f, "m2")
    assert all(known), "in no table is it a name that nobody knows"


# --- B49: an alias that moves --------------------------------------------------------------------------------------


def test_b49_a_moved_alias_has_one_owner_in_every_table_and_is_never_without_while_one_is_ready() -> None:
    f = running(model("x", aliases=["chat"]), model("y", {"min": 0, "max": 1}), nodes="ab")
    owners: list[list[str]] = []

    def watch(f: SimFleet) -> None:
        rows = f.routers[R1].table.models.values()
        owners.append([m.name for m in rows if "chat" in m.aliases])

    f.checks.append(watch)
    f.catalog(catalog(f, model("x"), model("y", {"min": 0, "max": 1}, aliases=["chat"])))
    f.run(20)
    assert published(f, "chat") == published(f, "x") != set(), "y sleeps, so it stays with x"
    f.order("wake", model="y")
    f.run(10)
    assert published(f, "chat") == published(f, "y") != set()
    assert all(len(names) == 1 for names in owners)


# --- clamps --------------------------------------------------------------------------------------------------------


def test_an_override_never_leaves_the_bounds_that_an_edit_sets_later() -> None:
    f = running(model("m", {"min": 1, "max": 4}), nodes="ab")
    f.order("scale", model="m", replicas=4)
    f.run(20)
    f.catalog(catalog(f, model("m", {"min": 1, "max": 2})))
    f.run(20)
    assert len(ids(f, "m")) == 2
    f.catalog(catalog(f, model("m", {"min": 3, "max": 3})))
    f.run(20)
    assert len(ids(f, "m")) == 3


def test_a_maintenance_deadline_moves_what_it_can_first_and_stops_the_rest_in_time() -> None:
    f = running(model("small", 1, 1), model("big", 1, 2), nodes="ab", count=2)
    node = only(f, "big").node
    f.order("drain", node=node, deadline_s=60.0)
    f.run(50)
    assert published(f, "big"), "it has no place elsewhere and serves on"
    f.run(30)
    assert not f.nodes[node].engines
    assert why(f, "model/big").startswith("no_place")
    f.order("uncordon", node=node)
    f.run(10)
    assert published(f, "big")


def test_a_cordoned_node_keeps_what_runs_and_takes_nothing_new() -> None:
    f = running(model("m", {"min": 1, "max": 3}), nodes="ab", count=2)
    node = only(f, "m").node
    before = ids(f, "m")
    f.order("cordon", node=node)
    f.order("scale", model="m", replicas=3)
    f.run(20)
    assert before <= published(f, "m")
    assert places(f, "m").count(node) == 1


def test_a_held_catalog_moves_nothing_and_shows_itself() -> None:
    models = [model(f"m{i}", 1, 0) for i in range(5)]
    f = running(*models, nodes="a")
    before = engines(f)
    f.catalog({**catalog(f, *models[:1]), "allow_removals": False})
    f.run(100)
    assert engines(f) == before
    assert why(f, "fleet").startswith("held: held: it removes 4 of the 5 models")
    assert of(f, "m4")
    f.catalog({**catalog(f, *models[:1]), "allow_removals": False})
    f.run(100)
    assert len(engines(f)) == 1, "sent again after half a minute it is meant"


def test_a_sleeping_fleet_that_is_carried_over_in_the_middle_of_everything_forgets_nothing() -> None:
    f = running(model("m", {"min": 0, "max": 1}), model("k"), nodes="ab")
    f.order("wake", model="m")
    f.carry_over()
    f.order("cordon", node="a")
    f.carry_over()
    f.run(20)
    assert state(f, "m") == "ready"
    assert A in f.world.wishes.cordoned
    assert f.world.table.models[ModelName("k")].state == "ready"
