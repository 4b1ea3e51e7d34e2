"""What Prometheus reads: the fleet's gauges from the acting worker alone, counts of what this worker did, no relics."""

from dataclasses import replace
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from activities import handover
from activities.handover import Handed
from activities.pool import identity
from llmgw import views
from llmgw.calls import CallOutcome, DispatchAnswer, DispatchCall, PublishAnswer, StartOrder, TaskResult
from llmgw.decide import decide
from llmgw.ids import ModelName, NodeId, ReplicaId, SpecId
from llmgw.lasting import Span, ended_by
from llmgw.plan import Plan
from llmgw.recent import Recent
from llmgw.wire import CommandResult, Outcome, Pull, Refusal, RefusalCode, Stop, Token
from llmgw.world import Input, InputKind, World
from sim.fleet import SimFleet
from tests.cli.fleets import WorldFleet
from tests.core.fleets import catalog, model, running
from tests.core.worlds import NOW
from tests.workers.fleets import troubled
from workers import metrics
from workers.meters import COUNTED, Meters
from workers.reading import Reading, read
from workflows import names

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: bytes) -> Samples:
    found = (s for family in text_string_to_metric_families(text.decode()) for s in family.samples)
    labels = ((s, {k: v for k, v in s.labels.items() if k != "fleet"}) for s in found)
    return {(s.name, tuple(sorted(given.items()))): s.value for s, given in labels}


async def scraped(fleet: WorldFleet, *, acting: bool = True) -> Samples:
    if acting:
        fleet.recent = fleet.recent.with_acting(identity(), NOW)
    return samples(metrics.page("main", await read(fleet), Meters("main")))


def value(found: Samples, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


async def test_a_scrape_tells_the_fleet_as_it_is() -> None:
    found = await scraped(troubled())
    assert value(found, "llmgw_worker_acting") == 1
    assert value(found, "llmgw_fleet_nodes", state="lost") == 1
    assert value(found, "llmgw_fleet_nodes", state="foreign") == 0
    assert value(found, "llmgw_fleet_devices", state="quarantined") == 3
    assert value(found, "llmgw_fleet_devices", state="free") == 2
    assert value(found, "llmgw_fleet_devices", state="used") == 1
    assert value(found, "llmgw_model_replicas_wanted", model="llama") == 1
    assert value(found, "llmgw_model_replicas_ready", model="llama") == 0
    assert value(found, "llmgw_fleet_waiting_reasons", reason="no_place") == 1
    assert value(found, "llmgw_fleet_waiting_longest_seconds") == 4000
    assert value(found, "llmgw_router_lag_revisions", router="edge-2") == 1
    assert value(found, "llmgw_router_lag_revisions", router="edge-1") == 0
    assert value(found, "llmgw_router_confirmed_age_seconds", router="edge-2") == 70
    assert value(found, "llmgw_fleet_phase", phase="converging") == 1
    assert value(found, "llmgw_fleet_refused_inputs", input="replace-catalog") == 1
    assert value(found, "llmgw_workflow_continued_total") == 0


async def test_another_worker_than_the_acting_one_tells_nothing_of_the_fleet() -> None:
    found = await scraped(troubled(), acting=False)
    assert value(found, "llmgw_worker_acting") == 0
    assert value(found, "llmgw_fleet_answers") == 1
    assert not any(name.startswith(("llmgw_fleet_nodes", "llmgw_model_rep", "llmgw_router")) for name, _ in found)


def test_a_silent_fleet_is_a_metric_too() -> None:
    found = samples(metrics.page("main", None, Meters("main")))
    assert value(found, "llmgw_fleet_answers") == 0
    assert value(found, "llmgw_worker_up") == 1


async def test_what_left_the_fleet_leaves_the_page() -> None:
    sim = running(model("a"), model("b"))
    before = await scraped(WorldFleet(sim.world))
    assert ("llmgw_model_replicas_ready", (("model", "b"),)) in before
    sim.catalog(catalog(sim, model("a")))
    after = await scraped(WorldFleet(sim.world))
    assert {k for k in after if k[1] == (("model", "b"),)} == set()


def test_every_row_is_told_and_has_its_own_name() -> None:
    found = Reading(_status(), ())
    assert len({row.name for row in metrics.ROWS}) == len(metrics.ROWS)
    for row in metrics.ROWS:
        assert row.counts == row.name.endswith("_total")
        assert all(len(labels) == len(row.labels) for labels, _ in row.values(found))


def _status() -> views.Status:
    return views.status(World(fleet="main", installation="i", epoch=1, seq=0), Recent(), 0.0)


# --- what is counted -----------------------------------------------------------------------------------------------


def spans(fleet: SimFleet) -> list[tuple[Span, float]]:
    """Everything that ends while the fleet runs on, as the worker sees it: at each plan."""
    found: list[tuple[Span, float]] = []
    merge_ = fleet._merge

    def merged(plan: Plan) -> None:
        found.extend((lasted.span, round(lasted.seconds)) for lasted in ended_by(fleet.world, plan, fleet.now_s))
        merge_(plan)

    fleet._merge = merged  # type: ignore[method-assign]
    return found


def test_spans_of_a_replacement_are_told_once_each() -> None:
    fleet = running(model("a"), nodes="a", count=1)
    found = spans(fleet)
    fleet.catalog(catalog(fleet, model("a", args=["--new"])))
    fleet.run(60)
    assert sorted(found) == [(Span.DRAIN, 0), (Span.READY, 4), (Span.STOP, 1)]


def test_a_wake_is_told_from_the_wish_to_the_first_endpoint() -> None:
    fleet = running(model("a", {"min": 0, "max": 2}))
    found = spans(fleet)
    fleet.order("wake", model="a")
    fleet.run(60)
    assert sorted(found) == [(Span.READY, 3), (Span.WAKE, 3)]


def counted(activity: str, args: tuple[Any, ...], answer: object) -> Samples:
    meters = Meters("main")
    COUNTED[activity](meters, args, answer, 0.004)
    return samples(generate_latest(meters.registry))


TOKEN = Token(installation="i", fleet="main", epoch=1, seq=1)


def call() -> DispatchCall:
    start = StartOrder(replica=ReplicaId("a-1"), model=ModelName("a"), fingerprint="f", attempt=1, spec=SpecId("s"))
    return DispatchCall(
        node=NodeId("n"),
        url="http://n",
        token=TOKEN,
        starts=(start,),
        stops=(Stop(replica=ReplicaId("b-1")),),
        tasks={"t-1": Pull(source="hf://a/b")},
    )


def refused(subject: str, code: RefusalCode) -> CommandResult:
    return CommandResult(subject=subject, outcome=Outcome.REFUSED, refusal=Refusal(code=code, message="no"))


def test_commands_are_counted_one_by_one_by_what_became_of_them() -> None:
    task = TaskResult(task="t-1", result=refused("hf://a/b", RefusalCode.NO_DISK))
    answer = DispatchAnswer(outcome=CallOutcome.ANSWERED, refused=(refused("a-1", RefusalCode.NO_PORT),), tasks=(task,))
    found = counted(names.DISPATCH, (call(),), answer)
    assert value(found, "llmgw_commands_total", kind="start", result="no_port") == 1
    assert value(found, "llmgw_commands_total", kind="stop", result="accepted") == 1
    assert value(found, "llmgw_commands_total", kind="pull", result="no_disk") == 1
    found = counted(names.DISPATCH, (call(),), DispatchAnswer(outcome=CallOutcome.FAILED))
    assert value(found, "llmgw_commands_total", kind="start", result="failed") == 1


def test_pushes_are_counted_by_form_and_outcome() -> None:
    found = counted(names.PUBLISH, (), PublishAnswer(outcome=CallOutcome.ANSWERED, full=True))
    assert value(found, "llmgw_pushes_total", form="whole", result="answered") == 1
    assert value(found, "llmgw_push_duration_seconds_count") == 1


def test_plans_are_counted_with_the_verdicts_they_give() -> None:
    fleet = running(model("a"))
    world = replace(fleet.world, inbox=(Input(99, InputKind.ORDER, "cordon", ["nope"], fleet.now_s),))
    handover.put("run-1", Handed(world, fleet.now_s))
    try:
        found = counted(names.PLAN, ("run-1",), decide(world, fleet.now_s))
    finally:
        handover.drop("run-1")
    assert value(found, "llmgw_plans_total", result="made") == 1
    assert value(found, "llmgw_inputs_total", kind="order", judgement="refused") == 1
    assert value(found, "llmgw_plan_duration_seconds_count") == 1
