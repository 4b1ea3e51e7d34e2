"""The worker's metrics page: fleet gauges from the one truth, asked at scrape time, and only from the acting worker.

A gauge that two workers told would be counted twice; so each asks the workflow, and only the one that observes tells.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from temporalio.client import WorkflowQueryFailedError
from temporalio.service import RPCError

from activities.pool import identity
from workflows import names
from workflows.client import Fleet

COUNTED = ("models", "replicas", "nodes")


class _Page(Collector):
    """One scrape: what the status said, as metrics."""

    def __init__(self, fleet: str, status: Mapping[str, Any] | None, acting: bool) -> None:
        self._fleet = fleet
        self._status = status
        self._acting = acting

    def collect(self) -> Iterator[Metric]:
        yield self._one("llmgw_worker_up", "This worker runs", 1)
        yield self._one("llmgw_fleet_answers", "The fleet's workflow answers", self._status is not None)
        yield self._one("llmgw_worker_acting", "This worker observes and tells the fleet gauges", self._acting)
        if self._status is None or not self._acting:
            return
        for name in COUNTED:
            family = GaugeMetricFamily(
                f"llmgw_fleet_{name}", f"{name.capitalize()} by state", labels=["fleet", "state"]
            )
            for state, count in self._status.get(name, {}).items():
                if isinstance(count, int):
                    family.add_metric([self._fleet, state], count)
            yield family
        yield self._one("llmgw_fleet_generation", "Generation of the catalog in force", self._status["generation"])
        yield self._one("llmgw_fleet_waiting", "Things that wait", self._status.get("waiting_total", 0))
        yield self._one("llmgw_fleet_refusals", "Refused inputs kept in the status", len(self._status["refusals"]))
        lag = GaugeMetricFamily(
            "llmgw_router_current", "The router confirmed the newest table", labels=["fleet", "router"]
        )
        for router in self._status.get("routers", ()):
            lag.add_metric([self._fleet, router["id"]], int(router.get("current", False)))
        yield lag

    def _one(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=["fleet"])
        family.add_metric([self._fleet], float(value))
        return family


async def page(fleet: Fleet) -> bytes:
    """The metrics now. A fleet that cannot be asked is a metric too, never an error."""
    status: Mapping[str, Any] | None
    try:
        status = await fleet.query(names.STATUS)
    except (RPCError, WorkflowQueryFailedError):
        status = None
    acting = status is not None and status.get("acting") == identity()
    registry = CollectorRegistry()
    registry.register(_Page(fleet.name, status, acting))
    return generate_latest(registry)


@contextlib.asynccontextmanager
async def served(fleet: Fleet, listen: str) -> AsyncIterator[str]:
    """Serve `/metrics` and `/healthz` at HOST:PORT while inside; the URL. OSError when the address is taken."""

    async def metrics(request: web.Request) -> web.Response:
        del request
        return web.Response(body=await page(fleet), content_type="text/plain")

    async def healthz(request: web.Request) -> web.Response:
        del request
        return web.Response(text="ok\n")

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthz)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    host, _, port = listen.rpartition(":")
    await web.TCPSite(runner, host.strip("[]"), int(port)).start()
    try:
        yield f"http://{listen}/metrics"
    finally:
        await runner.cleanup()
