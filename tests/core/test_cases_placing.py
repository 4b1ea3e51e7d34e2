"""Public bug reports about who gets which device, as scenes: B01, B03, B07, B10, B37."""

import random
from collections import Counter
from itertools import pairwise

from llmgw.ids import NodeId, RouterId
from sim.fleet import SimFleet
from sim.node import SimNode, devices, with_inventory

from .fleets import START_S, catalog, fleet, ids, model, of, only, published, why


def claimed(f: SimFleet, name: str) -> list[list[str]]:
    return sorted(sorted(claim.device for claim in assignment.claims) for assignment in of(f, name))


# --- B01: the allow-list is not the reservation -------------------------------------------------------------------


def test_replicas_under_one_list_of_devices_get_sets_of_their_own_and_nothing_beside_the_list() -> None:
    f = fleet("a", count=8)
    allowed = [f"GPU-a-{n}" for n in range(6)]
    listed = {"accelerators": [{"count": 2, "devices": allowed}]}
    f.catalog(catalog(f, model("m", replicas=4, profile=listed)))
    f.run(START_S * 4)
    sets = claimed(f, "m")
    assert [len(one) for one in sets] == [2, 2, 2]
    assert sorted(device for one in sets for device in one) == allowed
    assert "of those listed" in why(f, "model/m")


# --- B03: reserved from the decision on ---------------------------------------------------------------------------


def test_what_is_still_loading_holds_all_that_it_asked_for() -> None:
    f = fleet("a", count=0)
    slow = SimNode(NodeId("a"), devices("a", 2, memory_mib=24_576))
    slow.start_s = 2_400.0
    f.nodes[NodeId("a")] = slow
    need = {"accelerators": [{"count": 1, "claim": "20GiB"}], "start_limit_s": 3_600}
    f.catalog(catalog(f, *(model(name, profile=need) for name in "abc")))
    f.run(2_100)
    homes = Counter(device for name in "abc" for one in claimed(f, name) for device in one)
    assert sorted(homes.values()) == [1, 1]
    [waits] = [name for name in "abc" if not of(f, name)]
    assert "with at most 2.8 GiB left on a device" in why(f, f"model/{waits}")


# --- B07: what is taken by others ---------------------------------------------------------------------------------


def test_a_foreign_process_is_named_with_its_device_and_left_alone_and_its_end_is_enough() -> None:
    f = fleet("a", count=0)
    f.nodes[NodeId("a")] = SimNode(NodeId("a"), devices("a", 2, memory_mib=24_576))
    free = f.nodes[NodeId("a")].devices
    taken = free[0].model_copy(update={"foreign_mib": 4_096, "foreign_processes": ("python3",)})
    f.nodes[NodeId("a")] = with_inventory(f.nodes[NodeId("a")], (taken, free[1]))
    wide = model("m", profile={"accelerators": [{"count": 2, "memory": "21GiB"}]})
    f.catalog(catalog(f, wide))
    f.run(START_S * 2)
    assert why(f, "model/m").endswith(f"(nearest: a with 1 free, 1 used by python3: {taken.id} 4 GiB)")
    f.catalog(catalog(f, wide, model("s", profile={"accelerators": [{"count": 1, "memory": "18GiB"}]})))
    f.run(START_S * 2)
    assert claimed(f, "s") == [[free[1].id]]
    f.catalog(catalog(f, wide))
    f.nodes[NodeId("a")] = with_inventory(f.nodes[NodeId("a")], free)
    f.run(200)
    assert published(f, "m") == ids(f, "m") != set()


# --- B10: down and up again, the same shape -----------------------------------------------------------------------


def test_scaling_down_and_up_again_gives_the_same_shape_every_time() -> None:
    rng = random.Random(1)
    f = fleet("a", count=8)
    half = {"accelerators": [{"count": 4, "claim": 36_864}]}
    for replicas in (4, *(rng.choice((1, 2, 3, 4)) for _ in range(10)), 4):
        f.catalog(catalog(f, model("m", replicas=replicas, profile=half)))
        f.run(60)
        sums: Counter[str] = Counter()
        for assignment in of(f, "m"):
            assert len({claim.device for claim in assignment.claims}) == 4
            sums.update({claim.device: claim.memory_mib or 0 for claim in assignment.claims})
        assert len(of(f, "m")) == len(published(f, "m")) == replicas
        assert max(sums.values()) <= 2 * 36_864


# --- B37: models that push each other out -------------------------------------------------------------------------


def test_b37_two_models_asked_for_in_turns_swap_once_per_residence_and_no_answer_is_cut_off() -> None:
    f = fleet("a", 1)
    pair = [model(n, {"min": 0, "max": 1}, idle_timeout_s=3_600) for n in "ab"]
    f.catalog(catalog(f, *pair, policy={"min_residence_s": 60}))
    f.run(START_S)
    router, used_s, answers = f.routers[RouterId("r1")], f.now_s, list[tuple[str, float]]()
    for _ in range(200):
        name = "ab"[len(answers) % 2]
        router.ask(name)
        f.settle()
        if held := published(f, name):
            [replica] = held
            router.begin(replica)
            f.run(25)
            assert published(f, name) == held, "an answer was cut off"
            router.end(replica)
            used_s = f.now_s
            answers.append((name, used_s))
        limits = {str(model): row.idle_after_s for model, row in router.table.models.items()}
        told = [r for r, e in router.table.endpoints.items() if (limits[e.models[0]] or 9e9) <= f.now_s - used_s]
        router.idle = frozenset(told)
        f.run(5)
    assert len(answers) >= 8, "both are served, one after the other"
    assert all(later - before >= 60 for (_, before), (_, later) in pairwise(answers))


def test_b37_two_that_fit_together_stay_together() -> None:
    f = fleet("a", 2)
    f.catalog(catalog(f, *(model(n, {"min": 0, "max": 1}, idle_timeout_s=3_600) for n in "ab")))
    f.run(START_S)
    router = f.routers[RouterId("r1")]
    for name in "ab":
        router.ask(name)
        f.run(START_S * 2)
    before = only(f, "a").replica, only(f, "b").replica
    f.run(600)
    assert (only(f, "a").replica, only(f, "b").replica) == before
