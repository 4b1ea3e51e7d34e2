"""The agent's own metrics, in a registry of their own."""

from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from llmgw.wire import EngineState


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._replicas = Gauge("llmgw_agent_replicas", "Replicas on this node", ["state"], registry=self.registry)
        self._commands = Counter(
            "llmgw_agent_commands",
            "Commands taken, by what became of them",
            ["kind", "outcome"],
            registry=self.registry,
        )
        self._ready = Histogram(
            "llmgw_agent_time_to_ready_seconds",
            "From start to ready",
            ["engine"],
            buckets=(0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1200, 1800),
            registry=self.registry,
        )
        self.replicas(())

    def replicas(self, states: Iterable[EngineState]) -> None:
        counted = Tally(states)
        for state in EngineState:
            self._replicas.labels(state.value).set(counted[state])

    def command(self, kind: str, outcome: str) -> None:
        self._commands.labels(kind, outcome).inc()

    def ready(self, engine: str, after_s: float) -> None:
        self._ready.labels(engine).observe(after_s)

    def page(self) -> bytes:
        return generate_latest(self.registry)
