"""Views: pages stay small however large the fleet, nothing is left out or told twice, phases follow their rules."""

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from llmgw import record, views
from llmgw.calls import TaskResult
from llmgw.catalog import Catalog, catalog_digest
from llmgw.ids import DeviceId, ModelName, NodeId, ReplicaId, RouterId
from llmgw.observation import NodeSeen, Observation, Targets
from llmgw.plan import Judgement, Verdict
from llmgw.recent import FinishedTask, Recent, Refusal
from llmgw.showing.paging import MAX_PAGE_BYTES, cut_page
from llmgw.table import build, table_digest
from llmgw.wire import (
    CommandResult,
    Device,
    EngineState,
    Inventory,
    ModelState,
    Outcome,
    PathOutcome,
    ReplicaReport,
    Token,
)
from llmgw.world import (
    Drain,
    Event,
    HeldCatalog,
    InputKind,
    Outgoing,
    OutgoingKind,
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
from tests.effort import examples

from .worlds import NOW, assignment, endpoint, model, row, seen, serving, table_model, world

PAGE_LIMIT = 64 * 1024
NODES, PER_NODE = 1_000, 8


@pytest.fixture(scope="module")
def large() -> World:
    """1,000 nodes of 8 devices, 8,000 ready replicas of 500 models with long names."""
    names = [f"organisation/model-with-a-long-name-{i:04}-instruct" for i in range(500)]
    nodes = [f"gpu-node-{i:04}" for i in range(NODES)]
    catalog = Catalog.model_validate(
        {
            "nodes": [
                {"id": n, "url": f"http://{n}.cluster.local:7070", "zone": f"rack-{i % 40}"}
                for i, n in enumerate(nodes)
            ],
            "routers": [{"id": f"edge-{i:02}", "url": f"http://edge-{i:02}:8081"} for i in range(20)],
            "models": [model(n, replicas=16) for n in names],
        }
    )
    placed = [(f"r-{i:05}", names[i % 500], nodes[i // PER_NODE]) for i in range(NODES * PER_NODE)]
    reports = {
        NodeId(n): seen(
            n,
            *(row(r, m) for r, m, _ in placed[k * PER_NODE : (k + 1) * PER_NODE]),
            inventory=Inventory(
                devices=tuple(
                    Device(id=DeviceId(f"GPU-r-{k * PER_NODE + d:05}"), index=d, kind="NVIDIA H100", memory_mib=81_559)
                    for d in range(PER_NODE)
                )
            ),
        )
        for k, n in enumerate(nodes)
    }
    waits = {
        f"model/{n}": Waiting(f"model/{n}", "no_place", "needs 1 × h100: " + "x" * 400, NOW - i)
        for i, n in enumerate(names)
    }
    return World(
        fleet="main",
        installation="inst-1",
        epoch=1,
        seq=99,
        catalog=catalog,
        assignments={ReplicaId(r): assignment(r, m, n) for r, m, n in placed},
        seen=reports,
        table=build([table_model(n) for n in names], [endpoint(r, m) for r, m, _ in placed]),
        table_revision=7,
        waiting=waits,
    )


Page = Callable[[World, int], BaseModel]

PAGED: dict[str, tuple[Page, tuple[str, ...], int]] = {
    "models": (lambda w, p: views.models(w, NOW, p), ("models",), 500),
    "replicas": (lambda w, p: views.replicas(w, NOW, p), ("replicas",), 8_000),
    "nodes": (lambda w, p: views.nodes(w, NOW, p), ("nodes",), 1_000),
    "endpoints": (views.endpoints, ("models", "endpoints"), 8_500),
    "targets": (lambda w, p: views.targets(w, 3, p), ("targets",), 1_020),
}


def pages(make: Page, of: World) -> Iterator[Any]:
    page: int | None = 0
    while page is not None:
        made: Any = make(of, page)
        yield made
        page = made.next_page


@pytest.mark.parametrize("name", PAGED)
def test_pages_of_a_large_fleet_are_small_and_complete(large: World, name: str) -> None:
    make, fields, total = PAGED[name]
    told: list[tuple[str, str]] = []
    for page in pages(make, large):
        assert len(page.model_dump_json().encode()) <= PAGE_LIMIT
        for field in fields:
            told += [(field, getattr(item, "id", None) or item.name) for item in getattr(page, field)]
    assert len(told) == total
    assert told == sorted(told, key=lambda item: (fields.index(item[0]), item[1]))
    assert len(set(told)) == total


def test_the_table_in_one_piece_is_the_pages_together_and_small(large: World) -> None:
    whole = views.EndpointsPage.model_validate_json(zlib.decompress(packed := views.packed_table(large)))
    assert len(packed) <= 256 * 1024
    parts = list(pages(views.endpoints, large))
    assert whole.models == tuple(m for part in parts for m in part.models)
    assert whole.endpoints == tuple(e for part in parts for e in part.endpoints)
    assert (whole.revision, whole.digest, whole.token) == (parts[0].revision, parts[0].digest, parts[0].token)


def test_a_table_too_large_for_one_piece_is_left_to_the_pages(large: World) -> None:
    size = len(views.packed_table(large))
    assert views.packed_table(large, size) != b""
    assert views.packed_table(large, size - 1) == b""


def test_the_status_and_details_of_a_large_fleet_are_small(large: World) -> None:
    made = views.status(large, Recent(), NOW)
    assert len(made.model_dump_json().encode()) <= PAGE_LIMIT
    assert made.nodes == {"healthy": 1_000}
    assert made.replicas == {"ready": 8_000}
    assert (made.devices, made.devices_free) == (8_000, 0)
    assert len(views.fleet_table(large, NOW)) < 10_000


def four_nodes_of_two_devices(**fields: object) -> World:
    nodes = [{"id": name, "url": f"http://{name}:7070"} for name in ("a", "b", "c", "d")]
    found = world("m", **fields)
    devices = {
        n: tuple(Device(id=DeviceId(f"GPU-{n}-{i}"), index=i, kind="h100") for i in range(2))
        for n in ("a", "b", "c", "d")
    }
    return replace(
        found,
        catalog=Catalog.model_validate({"nodes": nodes, "models": [model("m")]}),
        seen={NodeId(n): seen(n, inventory=Inventory(devices=devices[n])) for n in devices},
    )


def test_free_are_only_devices_that_may_be_used_at_once() -> None:
    closed = Wishes(
        cordoned={NodeId("b"): NOW - 5, NodeId("c"): NOW - 9}, drains={NodeId("c"): Drain(NOW - 9, NOW + 60)}
    )
    lost = {"node/d": Silence(SilenceLevel.LOST, NOW - 90)}
    of = four_nodes_of_two_devices(wishes=closed, silence=lost)
    made = views.status(of, Recent(), NOW)
    assert (made.devices, made.devices_free) == (8, 2)
    assert made.device_states == {"free": 2, "closed": 6}
    assert [sum(d.free for d in node.devices) for node in views.nodes(of, NOW).nodes] == [2, 0, 0, 0]
    said = " ".join(views.explain(of, "node/b", NOW).sentences)
    assert "It reports 2 devices, 0 free, 2 unused." in said
    opened = replace(of, wishes=Wishes(), silence={})
    assert views.status(opened, Recent(), NOW).device_states == {"free": 8}
    assert [sum(d.free for d in node.devices) for node in views.nodes(opened, NOW).nodes] == [2, 2, 2, 2]


def test_a_device_that_others_use_is_not_free_and_says_who() -> None:
    free, theirs, ours = (Device(id=DeviceId(f"GPU-{i}"), index=i, kind="h100") for i in range(3))
    theirs = theirs.model_copy(update={"foreign_mib": 20_480, "foreign_processes": ("python", "Xorg")})
    stray = row("old-1", "old", claims=[{"device": ours.id}])
    there = seen("node-a", stray, inventory=Inventory(devices=(free, theirs, ours)))
    of = replace(steady(), seen={NodeId("node-a"): there}, assignments={})
    assert views.status(of, Recent(), NOW).device_states == {"free": 1, "others": 2}
    shown = views.nodes(of, NOW).nodes[0].devices
    assert [(d.free, d.problem) for d in shown] == [
        (True, ""),
        (False, "20GiB used by Xorg, python"),
        (False, "held by old-1, which no assignment claims"),
    ]


@pytest.mark.parametrize(
    ("deadline_s", "said", "left_s"),
    [
        (None, "2 replicas left (m-1, m-2); what finds no place elsewhere stays", None),
        (NOW + 90, "2 replicas left (m-1, m-2); what finds no place elsewhere is stopped in 90 s", 90.0),
        (NOW - 1, "2 replicas left (m-1, m-2); its deadline is over, so they are stopped", None),
    ],
)
def test_a_drain_is_told_with_what_is_left_and_until_when(
    deadline_s: float | None, said: str, left_s: float | None
) -> None:
    drains = Wishes(drains={NodeId("a"): Drain(NOW - 30, deadline_s), NodeId("b"): Drain(NOW - 60, deadline_s)})
    here = {ReplicaId(r): assignment(r, "m", node="a") for r in ("m-1", "m-2")}
    made = views.status(four_nodes_of_two_devices(wishes=drains, assignments=here), Recent(), NOW)
    empty, left = made.drains
    assert (empty.node, empty.left, empty.text, empty.age_s) == ("b", 0, "nothing is left on it", 60.0)
    assert (left.node, left.left, left.text, left.left_s) == ("a", 2, said, left_s)


def test_all_pages_of_the_table_have_its_digest(large: World) -> None:
    parts = list(pages(views.endpoints, large))
    models = [m for part in parts for m in part.models]
    endpoints = [e for part in parts for e in part.endpoints]
    assert {part.digest for part in parts} == {table_digest(models, endpoints)}
    assert {part.revision for part in parts} == {7}


class Text(BaseModel):
    text: str


@given(
    sizes=st.lists(st.sampled_from([0, 10, 5_000, 70_000]), max_size=30),
    page_size=st.integers(-1, 9),
    first=st.integers(-5, 40),
)
@settings(max_examples=examples(30), deadline=None)
def test_following_pages_comes_to_an_end_and_tells_each_row_once(sizes: list[int], page_size: int, first: int) -> None:
    rows = [Text(text="ü" * size) for size in sizes]
    told: list[Text] = []
    page: int | None = first
    for _ in range(len(rows) + 1):
        if page is None:
            break
        cut = cut_page(rows, page, page_size, lambda r: r)
        assert len(cut.rows) <= max(page_size, 1)
        assert len(cut.rows) <= 1 or sum(len(r.model_dump_json().encode()) for r in cut.rows) <= MAX_PAGE_BYTES
        told += cut.rows
        page = cut.next_page
    assert page is None
    assert told == rows[max(first, 0) :]


def test_targets_are_nodes_and_routers_however_they_came_to_the_fleet() -> None:
    start = world("qwen")
    extra = (
        start.catalog.nodes[0].model_copy(update={"id": "extra", "url": "http://extra:1"}) if start.catalog else None
    )
    assert extra is not None
    leaving = extra.model_copy(update={"id": "leaving", "url": "http://leaving:1"})
    wishes = Wishes(added_nodes={NodeId("extra"): extra}, leaving={NodeId("leaving"): leaving})
    found = views.targets(replace(start, wishes=wishes), 5)
    assert isinstance(found, Targets)
    assert [t.id for t in found.targets] == [
        "node/extra",
        "node/leaving",
        "node/node-a",
        "node/node-b",
        "router/edge-1",
    ]
    assert (found.revision, found.suspect_after_s, found.lost_after_s) == (5, 10.0, 60.0)


# --- phases --------------------------------------------------------------------------------------------------------


def steady() -> World:
    start = serving("qwen")
    confirmed = RouterFacts(acked_revision=3, held_digest=start.table.digest, confirmed_s=NOW - 5)
    return replace(start, routers={RouterId("edge-1"): confirmed}, generation=2)


FOREIGN = Token(installation="other", fleet="main", epoch=9, seq=1)


@pytest.mark.parametrize(
    ("changes", "recent", "phase"),
    [
        ({}, Recent(), "steady"),
        ({"table_revision": 4}, Recent(), "converging"),
        ({"waiting": {"model/qwen": Waiting("model/qwen", "no_place", "x", NOW)}}, Recent(), "degraded"),
        ({"waiting": {"router/r2": Waiting("router/r2", "silent", "x", NOW)}}, Recent(), "degraded"),
        ({"waiting": {"model/qwen": Waiting("model/qwen", "backing_off", "x", NOW)}}, Recent(), "converging"),
        ({"outbox": {"node-a": (Outgoing(OutgoingKind.STOP, "x"),)}}, Recent(), "converging"),
        ({"table": build([], [])}, Recent(), "converging"),
        ({"held": HeldCatalog("d", None, NOW, "held: it removes much")}, Recent(), "held"),
        ({"catalog": None}, Recent(), "no_catalog"),
        ({"settling_since_s": NOW}, Recent(), "settling"),
        ({"overtaken_by": FOREIGN}, Recent(), "overtaken"),
        ({}, Recent(safe_mode="ValueError: x"), "safe_mode"),
        ({"fenced_by": FOREIGN}, Recent(safe_mode="x"), "fenced"),
        ({"ending": True, "fenced_by": FOREIGN}, Recent(), "ending"),
    ],
)
def test_the_phase_is_the_first_that_holds(changes: dict[str, Any], recent: Recent, phase: str) -> None:
    found = replace(steady(), **changes)
    assert views.phase(found, recent, NOW) == phase
    made = views.status(found, recent, NOW)
    assert made.phase == phase
    assert made.phase_text


def test_a_silent_router_holds_nothing_up() -> None:
    behind = replace(steady(), table_revision=4, silence={"router/edge-1": Silence(SilenceLevel.SUSPECT, NOW)})
    assert views.phase(behind, Recent(), NOW) == "steady"


# --- status --------------------------------------------------------------------------------------------------------


def test_the_status_tells_what_became_of_what_was_sent() -> None:
    verdict = Verdict(
        arrival=4,
        kind=InputKind.CATALOG,
        name="replace-catalog",
        judgement=Judgement.REFUSED,
        problems=("models[0].name: missing",),
        text="refused: nothing was changed",
    )
    done = CommandResult(
        subject="remove_weights",
        outcome=Outcome.ACCEPTED,
        paths=(PathOutcome(path="a", outcome="removed", freed_bytes=2_048), PathOutcome(path="b", outcome="absent")),
    )
    recent = Recent(
        refusals=(
            Refusal(name="old", at_s=NOW - 9, problems=("x",)),
            Refusal(name="new", at_s=NOW - 1, problems=("y",)),
        ),
        last_catalog=verdict,
        tasks=(FinishedTask(node=NodeId("node-a"), at_s=NOW - 3, result=TaskResult(task="t", result=done)),),
        events=(Event(NOW - 2, "replica/qwen-1", "ready"),),
        acting="worker-1",
        unreadable={"assignment 3": "bad record"},
    )
    made = views.status(steady(), recent, NOW)
    assert [(r.name, r.age_s) for r in made.refusals] == [("new", 1.0), ("old", 9.0)]
    assert made.last_catalog is not None
    assert made.last_catalog.problems == ("models[0].name: missing",)
    assert made.tasks[0].text == "a: removed, 2,048 bytes; b: absent"
    assert made.acting == "worker-1"
    assert "assignment 3" in made.warnings[0]
    (router,) = made.routers
    assert (router.current, router.confirmed_revision, router.confirmed_age_s, router.heard) == (True, 3, 5.0, True)


def test_the_status_stays_small_when_every_list_is_full_of_long_texts() -> None:
    long = "ü" * 3_000
    recent = Recent(
        refusals=tuple(Refusal(name="n", at_s=NOW, problems=(long,) * 20) for _ in range(20)),
        events=tuple(Event(NOW, "replica/x", long) for _ in range(100)),
        safe_mode=long,
        unreadable={f"record {i}": long for i in range(500)},
    )
    routers = {RouterId(f"edge-{i}"): RouterFacts(problem=long) for i in range(90)}
    declared = {"routers": [{"id": r, "url": f"http://{r}:1"} for r in routers], "models": [model("qwen")]}
    waits = {f"model/{i}": Waiting(f"model/{i}", "no_place", long, NOW) for i in range(40)}
    start = replace(steady(), catalog=Catalog.model_validate(declared), routers=routers, waiting=waits)
    made = views.status(start, recent, NOW)
    assert len(made.model_dump_json().encode()) <= PAGE_LIMIT
    assert made.shortened
    assert made.waiting_total == 40


def test_the_status_names_nodes_with_the_same_machine() -> None:
    twin = replace(seen("node-b"), machine="machine-node-a")
    start = replace(steady(), seen={**steady().seen, NodeId("node-b"): twin})
    made = views.status(start, Recent(), NOW)
    assert made.nodes == {"set_aside": 2}
    assert any("node-a is set aside" in text and "node-b" in text for text in made.warnings)


# --- rows ----------------------------------------------------------------------------------------------------------


def test_a_replica_row_says_why_it_is_not_ready() -> None:
    start = steady()
    stop = StopIntent(StopCause.REMOVED, "qwen left the catalog", NOW - 4, 3)
    gone = replace(start, assignments={ReplicaId("qwen-1"): assignment("qwen-1", "qwen", stop=stop)})
    (shown,) = views.replicas(gone, NOW).replicas
    assert (shown.state, shown.reason, shown.age_s) == ("draining", "qwen left the catalog", 4.0)
    (shown,) = views.replicas(start, NOW).replicas
    assert (shown.state, shown.reason, shown.published, shown.devices) == ("ready", "", True, ("GPU-qwen-1",))


def test_an_age_grows_after_the_report_that_told_it() -> None:
    start = steady()
    report = replace(start.seen[NodeId("node-a")], at_s=NOW - 3_600)
    (shown,) = views.replicas(replace(start, seen={NodeId("node-a"): report}), NOW).replicas
    assert shown.age_s == 3_612.0


def test_a_replica_that_waits_for_devices_names_their_holder() -> None:
    start = steady()
    claims = start.assignments[ReplicaId("qwen-1")].parts
    later = replace(assignment("qwen-2", "qwen", created_s=NOW), parts=claims)
    found = replace(start, assignments={**start.assignments, ReplicaId("qwen-2"): later})
    shown = views.replicas(found, NOW).replicas[1]
    assert (shown.state, shown.reason) == ("waiting", "waits for devices of qwen-1")


def test_a_model_row_counts_what_is_wanted_and_ready() -> None:
    wishes = Wishes(scales={ModelName("qwen"): Scale(1, NOW + 60)})
    (shown,) = views.models(replace(steady(), wishes=wishes), NOW).models
    assert (shown.wanted, shown.ready, shown.state) == (1, 1, ModelState.READY)
    assert shown.replicas == {"ready": 1}
    assert shown.override == "scaled to 1 for another 60 s"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"replicas": {"min": 0}, "idle_timeout_s": 900}, "awake until it was not used for 15 min"),
        ({"replicas": {"min": 0}}, "awake, and stays so: it has no idle_timeout_s"),
        ({"replicas": 1}, ""),
    ],
)
def test_what_keeps_a_model_above_its_minimum_is_told(fields: dict[str, object], said: str) -> None:
    of = replace(
        steady(),
        catalog=Catalog.model_validate({"models": [model("qwen", **fields)]}),
        wishes=Wishes(wakes={ModelName("qwen"): NOW}),
    )
    assert views.models(of, NOW).models[0].override == said
    first = views.explain(of, "model/qwen", NOW).sentences[0]
    assert first.endswith(f", and it is {said}." if said else "exactly 1.")


def test_a_node_row_shows_devices_with_their_holders() -> None:
    devices = tuple(
        Device(id=DeviceId(f"GPU-{i}"), index=k, kind="H100") for k, i in enumerate(["qwen-1", "free", "ill"])
    )
    report = replace(
        seen("node-a", row("qwen-1", "qwen"), inventory=Inventory(devices=devices)),
        quarantined={DeviceId("GPU-ill"): "would not come free"},
    )
    wishes = Wishes(cordoned={NodeId("node-a"): NOW}, drains={NodeId("node-b"): Drain(NOW)})
    start = replace(steady(), seen={NodeId("node-a"): report}, wishes=wishes)
    first, second = views.nodes(start, NOW).nodes
    assert [(d.free, d.holders, d.problem) for d in first.devices] == [
        (False, ("qwen-1",), ""),
        (False, (), ""),
        (False, (), "would not come free"),
    ]
    assert (first.state, first.cordoned, first.replicas) == ("healthy", True, 1)
    assert (second.state, second.drained, second.note) == ("unknown", True, "not heard yet")


def test_what_agents_say_is_wrong_with_their_nodes_is_shown_everywhere() -> None:
    lost, blind = "the state folder was removed", "processes cannot be counted: EMFILE"
    a = replace(seen("node-a", row("qwen-1", "qwen")), problems=(lost, blind))
    b = replace(seen("node-b"), problems=(lost,))
    start = replace(steady(), seen={NodeId("node-a"): a, NodeId("node-b"): b})
    assert [shown.problems for shown in views.nodes(start, NOW).nodes] == [(lost, blind), (lost,)]
    assert {f"nodes node-a, node-b: {lost}", f"node node-a: {blind}"} <= set(
        views.status(start, Recent(), NOW).warnings
    )
    assert f"Its agent says: {blind}." in views.explain(start, "node-a", NOW).sentences


# --- details -------------------------------------------------------------------------------------------------------


def test_the_details_table_puts_what_lacks_something_first() -> None:
    start = steady()
    catalog = Catalog.model_validate(
        {"models": [model("qwen"), model("a|b", replicas=2), *(model(f"z{i}", replicas={"min": 0}) for i in range(40))]}
    )
    waits = {"model/a|b": Waiting("model/a|b", "no_place", "needs 1 × h100", NOW - 240)}
    lines = views.fleet_table(replace(start, catalog=catalog, waiting=waits), NOW).splitlines()
    assert lines[0] == "**main** · generation 2 · 0 nodes · 0 routers · 1 endpoint"
    assert lines[4] == "| a\\|b | 0 / 2 | unavailable | needs 1 × h100 (since 4 min) |"
    assert "| qwen | 1 / 1 | ready |  |" in lines
    assert lines[-1] == "and 12 more models; `llmgw status` has them all"


def test_the_details_of_a_new_fleet_say_what_to_do() -> None:
    assert "llmgw apply" in views.fleet_table(World(fleet="main", installation="i", epoch=1, seq=0), NOW)


# --- robustness ----------------------------------------------------------------------------------------------------


def test_views_of_an_empty_world_say_something() -> None:
    empty = World(fleet="main", installation="i", epoch=1, seq=0)
    assert views.status(empty, Recent(), NOW).phase == "no_catalog"
    assert views.models(empty, NOW).models == ()
    assert views.endpoints(empty).endpoints == ()
    assert views.targets(empty, 1).targets == ()
    assert views.explain(empty, "", NOW).sentences == ("Fleet main: no catalog, generation 0 of its catalog.",)


@given(
    subject=st.text(max_size=30) | st.sampled_from(["model/", "node/node-a", "/", "replica/qwen-1", "router/edge-1"])
)
@settings(max_examples=examples(30), deadline=None)
def test_every_question_is_answered(subject: str) -> None:
    found = views.explain(steady(), subject, NOW)
    assert found.sentences
    json.loads(found.model_dump_json())


def test_a_view_changes_nothing() -> None:
    start = steady()
    before = repr(start)
    views.status(start, Recent(), NOW)
    views.explain(start, "qwen", NOW)
    views.nodes(start, NOW)
    assert repr(start) == before
    assert catalog_digest(start.catalog) if start.catalog else False


def test_states_of_engines_have_a_row_each() -> None:
    for state in EngineState:
        start = replace(steady(), seen={NodeId("node-a"): seen("node-a", row("qwen-1", "qwen", state))})
        (shown,) = views.replicas(start, NOW).replicas
        assert shown.state == state.value


def test_an_age_is_not_begun_anew_by_a_report_about_something_else() -> None:
    first, later = row("a-1", "a", state_age_s=0.0), row("b-1", "b", state_age_s=0.0)

    def told(world: World, revision: int, now_s: float, *rows: ReplicaReport) -> World:
        node = NodeSeen(
            node=NodeId("node-a"), machine="m", boot="boot-1", instance="i-1", revision=revision, replicas=rows
        )
        return record.observed(world, Observation(pool="p", cursor=revision, nodes=(node,)), now_s)

    start = replace(serving("a", "b"), seen={})
    world = told(told(start, 1, NOW, first), 2, NOW + 50, first, later)
    ages = {r.id: r.age_s for r in views.replicas(world, NOW + 60).replicas}
    assert ages == {"a-1": 60.0, "b-1": 10.0}
    loading = first.model_copy(update={"state": EngineState.LOADING})
    again = told(world, 3, NOW + 70, loading, later)
    assert {r.id: r.age_s for r in views.replicas(again, NOW + 75).replicas} == {"a-1": 5.0, "b-1": 25.0}
