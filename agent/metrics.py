"""The agent's own figures, in Prometheus form, under names `llmgw_agent_*`. Gauges are read when they are scraped."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from llmgw.wire import EngineState, NodeReport

_READY_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class Meters:
    """Everything that counts; one per agent, so that several may live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.commands = Counter(
            "llmgw_agent_commands_total", "Commands by kind and outcome", ["kind", "outcome"], registry=self.registry
        )
        self.refused_batches = Counter(
            "llmgw_agent_refused_batches_total", "Batches refused whole", ["code"], registry=self.registry
        )
        self.ready_after = Histogram(
            "llmgw_agent_ready_seconds",
            "From execution to ready",
            buckets=_READY_BUCKETS_S,
            registry=self.registry,
        )
        self.stopped = Counter("llmgw_agent_stopped_total", "Replicas proven gone", registry=self.registry)
        self.bugs = Counter("llmgw_agent_bugs_total", "Tasks that broke", registry=self.registry)
        self.streams = Gauge("llmgw_agent_streams", "Held report streams", registry=self.registry)

    def watch(self, report: Callable[[], NodeReport], plane_silent_s: Callable[[], float]) -> None:
        """Show the node's state as gauges."""
        self.registry.register(_NodeGauges(report, plane_silent_s))

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _NodeGauges(Collector):
    def __init__(self, report: Callable[[], NodeReport], plane_silent_s: Callable[[], float]) -> None:
        self._report = report
        self._plane_silent_s = plane_silent_s

    def collect(self) -> Iterable[Metric]:
        report = self._report()
        by_state = Tally(row.state for row in report.replicas)
        replicas = GaugeMetricFamily("llmgw_agent_replicas", "Replicas by state", labels=["state"])
        for state in EngineState:
            replicas.add_metric([state], by_state[state])
        by_health = Tally(device.health for device in report.inventory.devices)
        devices = GaugeMetricFamily("llmgw_agent_devices", "Devices by health", labels=["health"])
        for health, count in sorted(by_health.items()):
            devices.add_metric([health], count)
        yield replicas
        yield devices
        on_disk = [row for row in report.weights if not row.pulling]
        yield GaugeMetricFamily("llmgw_agent_pulls", "Pulls under way", value=len(report.weights) - len(on_disk))
        yield GaugeMetricFamily(
            "llmgw_agent_weights_incomplete",
            "Weights on the disk that cannot be loaded",
            value=sum(not row.complete for row in on_disk),
        )
        yield GaugeMetricFamily(
            "llmgw_agent_plane_silent_seconds",
            "Since a plane last read a report or sent commands",
            value=self._plane_silent_s(),
        )
        yield GaugeMetricFamily(
            "llmgw_agent_problems", "Things that are wrong with the agent itself", value=len(report.problems)
        )
        yield GaugeMetricFamily("llmgw_agent_revision", "Revision of the report", value=report.revision)
        yield GaugeMetricFamily(
            "llmgw_agent_inventory_complete", "1 when the device tools answer", value=float(report.inventory.complete)
        )
        yield GaugeMetricFamily(
            "llmgw_agent_token_seq", "Sequence of the highest token held", value=report.token.seq if report.token else 0
        )

    def describe(self) -> Iterable[Metric]:
        return ()  # names are fixed above; the default would collect before the node is open
