"""The worker's metrics: fleet gauges from the one truth, asked at scrape time, and only from the acting worker.

A gauge that two workers told would be counted twice; so each asks the workflow, and only the one that observes tells.
What is gone from the fleet is gone from the page: nothing is remembered between scrapes but what `workers.meters`
counts. To add a gauge: a row in `ROWS`, and one in docs/metrics.md.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from activities.pool import identity
from llmgw import views
from llmgw.nodes import NodeState
from llmgw.replica_state import ReplicaState
from llmgw.wire import ModelState
from workers.meters import Meters
from workers.reading import Reading

Labelled = tuple[tuple[str, ...], float]
"""Values of the row's labels, and the metric's."""


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    text: str
    values: Callable[[Reading], Iterable[Labelled]]
    labels: tuple[str, ...] = ()
    """Beside `fleet`."""
    counts: bool = False
    """It only ever rises: a counter, named `…_total`."""


def _one(value: Callable[[views.Status], float]) -> Callable[[Reading], Iterable[Labelled]]:
    return lambda found: [((), float(value(found.status)))]


def _states(
    kinds: Iterable[str], of: Callable[[views.Status], Mapping[Any, int]]
) -> Callable[[Reading], list[Labelled]]:
    """Every state, also those that nothing is in: a series that comes and goes makes rates and alerts wrong."""
    states = tuple(kinds)
    return lambda found: [((state,), float(of(found.status).get(state, 0))) for state in states]


def _waiting(found: Reading) -> Iterator[Labelled]:
    yield from (((code,), float(count)) for code, count in sorted(found.status.waiting_by.items()))


def _by_model(value: Callable[[views.ModelRow], float]) -> Callable[[Reading], list[Labelled]]:
    return lambda found: [((model.name,), float(value(model))) for model in found.models]


def _by_router(value: Callable[[views.Status, views.RouterRow], float | None]) -> Callable[[Reading], list[Labelled]]:
    def values(found: Reading) -> list[Labelled]:
        told = ((router.id, value(found.status, router)) for router in found.status.routers)
        return [((id_,), float(number)) for id_, number in told if number is not None]

    return values


def _lag(status: views.Status, router: views.RouterRow) -> float:
    """Revisions; a router that has confirmed none lacks them all."""
    return status.table_revision - max(router.confirmed_revision, 0)


def _refused(found: Reading) -> list[Labelled]:
    names = Counter(refusal.name for refusal in found.status.refusals)
    return [((name,), float(count)) for name, count in sorted(names.items())]


def _longest_s(status: views.Status) -> float:
    return max((waiting.age_s for waiting in status.waiting), default=0.0)


def _phases(found: Reading) -> list[Labelled]:
    return [((phase,), float(phase is found.status.phase)) for phase in views.Phase]


ROWS: Sequence[Row] = (
    Row("llmgw_fleet_models", "Models by what routers are told", _states(ModelState, lambda s: s.models), ("state",)),
    Row("llmgw_fleet_replicas", "Replicas by state", _states(ReplicaState, lambda s: s.replicas), ("state",)),
    Row("llmgw_fleet_nodes", "Nodes by state", _states(NodeState, lambda s: s.nodes), ("state",)),
    Row("llmgw_fleet_devices", "Devices by state", _states(views.DeviceState, lambda s: s.device_states), ("state",)),
    Row("llmgw_fleet_phase", "1 for what the fleet does now", _phases, ("phase",)),
    Row("llmgw_fleet_endpoints", "Endpoints that routers are told", _one(lambda s: s.endpoints)),
    Row("llmgw_fleet_generation", "Generation of the catalog in force", _one(lambda s: s.generation)),
    Row("llmgw_fleet_waiting", "Things that are wanted and not done", _one(lambda s: s.waiting_total)),
    Row("llmgw_fleet_waiting_reasons", "Things that wait, by why", _waiting, ("reason",)),
    Row("llmgw_fleet_waiting_longest_seconds", "How long the longest has waited", _one(_longest_s)),
    Row("llmgw_fleet_warnings", "What needs a person", _one(lambda s: len(s.warnings))),
    Row("llmgw_fleet_refusals", "Refused inputs kept in the status", _one(lambda s: len(s.refusals))),
    Row("llmgw_fleet_refused_inputs", "Refused inputs kept in the status, by what was sent", _refused, ("input",)),
    Row("llmgw_model_replicas_wanted", "Replicas wanted now", _by_model(lambda m: m.wanted), ("model",)),
    Row("llmgw_model_replicas_ready", "Replicas that may take traffic", _by_model(lambda m: m.ready), ("model",)),
    Row("llmgw_model_failures", "Failed attempts that still count", _by_model(lambda m: m.failures), ("model",)),
    Row("llmgw_table_revision", "Revision of the routers' table", _one(lambda s: s.table_revision)),
    Row("llmgw_router_current", "The router holds the newest table", _by_router(lambda _, r: r.current), ("router",)),
    Row("llmgw_router_lag_revisions", "Revisions it has not confirmed", _by_router(_lag), ("router",)),
    Row(
        "llmgw_router_confirmed_age_seconds",
        "Since its last confirmation; absent before the first",
        _by_router(lambda _, r: r.confirmed_age_s),
        ("router",),
    ),
    Row("llmgw_router_heard", "The router is heard", _by_router(lambda _, r: r.heard is True), ("router",)),
    Row("llmgw_workflow_history_events", "Events in the running history", _one(lambda s: s.run.events)),
    Row("llmgw_workflow_history_bytes", "Bytes of the running history", _one(lambda s: s.run.bytes)),
    Row(
        "llmgw_workflow_continued_total",
        "How often the workflow has continued as new",
        _one(lambda s: s.run.continued),
        counts=True,
    ),
)


class _Page(Collector):
    """One scrape."""

    def __init__(self, fleet: str, found: Reading | None, acting: bool) -> None:
        self._fleet = fleet
        self._found = found
        self._acting = acting

    def collect(self) -> Iterator[Metric]:
        yield self._family(Row("llmgw_worker_up", "This worker runs", lambda _: ()), [((), 1.0)])
        answers, acting = self._found is not None, self._acting
        yield self._family(
            Row("llmgw_fleet_answers", "The fleet's workflow answers", lambda _: ()), [((), float(answers))]
        )
        text = "This worker observes and tells the fleet gauges"
        yield self._family(Row("llmgw_worker_acting", text, lambda _: ()), [((), float(acting))])
        if self._found is None or not acting:
            return
        for row in ROWS:
            yield self._family(row, row.values(self._found))

    def _family(self, row: Row, values: Iterable[Labelled]) -> Metric:
        kind = CounterMetricFamily if row.counts else GaugeMetricFamily
        family = kind(row.name, row.text, labels=["fleet", *row.labels])
        for labels, value in values:
            family.add_metric([self._fleet, *labels], float(value))
        return family


def page(fleet: str, found: Reading | None, meters: Meters) -> bytes:
    """The metrics now. A fleet that cannot be asked (None) is a metric too, never an error."""
    registry = CollectorRegistry()
    registry.register(_Page(fleet, found, found is not None and found.status.acting == identity()))
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return generate_latest(registry) + generate_latest(meters.registry)
