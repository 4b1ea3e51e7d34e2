"""Prometheus metrics, made from the counts when they are scraped: a request pays for an integer, not for a label.

Labels come from tables only; a name that a client makes up never becomes one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import accumulate

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from router.counts import Counts, EndpointCounts
from router.tables import Tables
from router.traffic import FIRST_BYTE_BUCKETS_S, Traffic

_ENDPOINT = ["model", "fleet", "endpoint"]
CONTENT_TYPE = CONTENT_TYPE_LATEST
Count = Callable[[], Awaitable[Counts]]


class Metrics:
    """`count`: how to get the counts, of every process of this router."""

    def __init__(self, traffic: Traffic, tables: Tables, count: Count) -> None:
        self._traffic = traffic
        self._tables = tables
        self._count = count
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        GCCollector(registry=self._process)

    async def text(self) -> bytes:
        """The exposition; made in a thread, since thousands of endpoints take longer than requests should wait."""
        self._traffic.forget()
        counts = await self._count()
        return await asyncio.to_thread(self._made, counts)

    def _made(self, counts: Counts) -> bytes:
        registry = CollectorRegistry()
        registry.register(_Families(counts, self._traffic, self._tables))
        return generate_latest(registry) + generate_latest(self._process)


class _Families(Collector):
    def __init__(self, counts: Counts, traffic: Traffic, tables: Tables) -> None:
        self._counts = counts
        self._traffic = traffic
        self._tables = tables

    def describe(self) -> list[Metric]:
        """No names to reserve: nothing else is in this registry."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield self._requests()
        for name, text, value in _PER_ENDPOINT_GAUGES:
            yield self._filled(GaugeMetricFamily(name, text, labels=_ENDPOINT), value)
        for name, text, value in _PER_ENDPOINT_COUNTERS:
            yield self._filled(CounterMetricFamily(name, text, labels=_ENDPOINT), value)
        yield from self._per_model()
        yield self._misses()
        yield from self._table()

    def _requests(self) -> Metric:
        family = CounterMetricFamily(
            "llmgw_router_requests", "Requests answered by an endpoint", labels=[*_ENDPOINT, "code"]
        )
        for row in self._counts.endpoints:
            for code, count in row.answers.items():
                family.add_metric([*_labels(row), str(code)], count)
        return family

    def _filled(
        self, family: GaugeMetricFamily | CounterMetricFamily, value: Callable[[EndpointCounts], float]
    ) -> Metric:
        for row in self._counts.endpoints:
            family.add_metric(_labels(row), value(row))
        return family

    def _per_model(self) -> Iterator[Metric]:
        retries = CounterMetricFamily("llmgw_router_retries", "Further attempts", labels=["model", "cause"])
        first = HistogramMetricFamily(
            "llmgw_router_first_byte_seconds", "From the request's arrival to the answer's first byte", labels=["model"]
        )
        held = GaugeMetricFamily(
            "llmgw_router_waiting", "Requests held for a model that sleeps or starts", labels=["model"]
        )
        bounds = [*map(str, FIRST_BYTE_BUCKETS_S), "+Inf"]
        for name, totals in self._counts.models.items():
            for cause, count in totals.retries.items():
                retries.add_metric([name, cause], count)
            buckets = list(zip(bounds, map(float, accumulate(totals.first_bytes)), strict=True))
            first.add_metric([name], buckets, totals.first_byte_sum_s)
            if totals.waiting:
                held.add_metric([name], totals.waiting)
        yield from (retries, first, held)

    def _misses(self) -> Metric:
        """`model` is empty where the request named none that is known."""
        family = CounterMetricFamily(
            "llmgw_router_misses", "Requests that the router answered itself", labels=["model", "cause"]
        )
        for cause, count in self._counts.misses.items():
            family.add_metric(["", cause], count)
        for name, totals in self._counts.models.items():
            for cause, count in totals.misses.items():
                family.add_metric([name, cause], count)
        return family

    def _table(self) -> Iterator[Metric]:
        info = GaugeMetricFamily(
            "llmgw_router_table_info", "The table held", labels=["fleet", "installation", "digest"]
        )
        epoch = GaugeMetricFamily("llmgw_router_table_epoch", "Epoch of the token held", labels=["fleet"])
        seq = GaugeMetricFamily("llmgw_router_table_seq", "Sequence number of the token held", labels=["fleet"])
        age = GaugeMetricFamily("llmgw_router_table_age_seconds", "Since the table was put in force", labels=["fleet"])
        models = GaugeMetricFamily("llmgw_router_table_models", "Models in the table", labels=["fleet"])
        endpoints = GaugeMetricFamily("llmgw_router_table_endpoints", "Endpoints in the table", labels=["fleet"])
        now = self._traffic.clock()
        for fleet, held in self._tables.held.items():
            info.add_metric([fleet, held.token.installation, held.table.digest], 1)
            epoch.add_metric([fleet], held.token.epoch)
            seq.add_metric([fleet], held.token.seq)
            age.add_metric([fleet], now - self._tables.changed_at[fleet])
            models.add_metric([fleet], len(held.table.models))
            endpoints.add_metric([fleet], len(held.table.endpoints))
        refusals = CounterMetricFamily("llmgw_router_table_refusals", "Tables not taken", labels=["code"])
        for code, count in list(self._tables.refusals.items()):
            refusals.add_metric([code], count)
        yield from (info, epoch, seq, age, models, endpoints, refusals)
        yield GaugeMetricFamily(
            "llmgw_router_state_revision", "Revision of the state stream", value=self._traffic.changes.revision
        )


_Value = Callable[[EndpointCounts], float]
_PER_ENDPOINT_GAUGES: tuple[tuple[str, str, _Value], ...] = (
    ("llmgw_router_in_flight", "Requests from their pick to their end", lambda row: row.in_flight),
    ("llmgw_router_endpoint_withdrawn", "1 while it is out of the tables and still busy", lambda row: row.withdrawn),
)
_PER_ENDPOINT_COUNTERS: tuple[tuple[str, str, _Value], ...] = (
    (
        "llmgw_router_ejections",
        "Times it was passed over for a while after a failed connect",
        lambda row: row.ejections,
    ),
    ("llmgw_router_aborts", "Answers that broke off after their first byte", lambda row: row.aborts),
)


def _labels(row: EndpointCounts) -> list[str]:
    return [row.model, row.fleet, row.id]
