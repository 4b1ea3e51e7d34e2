"""What can be asked of a fleet at any time. Each answer is a page of at most about 64 KB; none changes state.

Ages are counted up to the moment of the answer, not to the last time the workflow did something: its own clock stands
still between its tasks. A query is never replayed, so it may look at the clock of the worker that answers.
"""

import base64
import time
from typing import Any

from temporalio import workflow

from llmgw import views
from workflows import names
from workflows.fleet_state import FleetState


class Queries:
    """Mixed into the workflow class."""

    state: FleetState

    @workflow.query(name=names.STATUS, description="The fleet in one page: phase, models, nodes, routers, refusals")
    def status(self) -> views.Status:
        info = workflow.info()
        run = views.RunRow(
            events=info.get_current_history_length(),
            bytes=info.get_current_history_size(),
            continued=self.state.seed.runs,
        )
        return views.status(self.state.world, self.state.recent, _now_s(), run, self.state.kept.note())

    @workflow.query(name=names.MODELS, description="Models: wanted, ready, waiting and why. Argument: page")
    def models(self, page: int = 0) -> views.ModelsPage:
        return views.models(self.state.world, _now_s(), page)

    @workflow.query(name=names.REPLICAS, description="Replicas: where, in which state, since when. Argument: page")
    def replicas(self, page: int = 0) -> views.ReplicasPage:
        return views.replicas(self.state.world, _now_s(), page)

    @workflow.query(name=names.NODES, description="Nodes and their devices. Argument: page")
    def nodes(self, page: int = 0) -> views.NodesPage:
        return views.nodes(self.state.world, _now_s(), page)

    @workflow.query(name=names.ENDPOINTS, description="The table the routers are told. Argument: page")
    def endpoints(self, page: int = 0) -> views.EndpointsPage:
        return views.endpoints(self.state.world, page)

    @workflow.query(name=names.TABLE, description="The same in one piece, for the plane itself: JSON in zlib")
    def table(self) -> bytes:
        return views.packed_table(self.state.world)

    @workflow.query(name=names.TARGETS, description="Agents and routers that are observed. Argument: page")
    def targets(self, page: int = 0) -> views.TargetsPage:
        return views.targets(self.state.world, self.state.targets, page)

    @workflow.query(name=names.EXPLAIN, description="Why is it so: argument `model/NAME`, `replica/ID` or `node/ID`")
    def explain(self, subject: str = "") -> views.Explanation:
        return views.explain(self.state.world, subject, _now_s())

    @workflow.query(name=names.CARRIED, description="The whole state, as it is carried over to a new execution")
    def carried(self) -> dict[str, Any]:
        seed, parts = self.state.carried()
        packed = {
            "catalog": parts.catalog,
            "assignments": parts.assignments,
            "routes": parts.routes,
            "rest": parts.rest,
            "kept": parts.kept,
        }
        return {
            "moment": self.state.moment(),
            "seed": seed.model_dump(mode="json"),
            "parts": {k: base64.b64encode(v).decode() for k, v in packed.items()},
        }

    @workflow.query(
        name=names.REPORTS, description="What nodes last reported, beside the carried state. Argument: page"
    )
    def reports(self, page: int = 0) -> views.ReportsPage:
        return views.reports(self.state.world, self.state.moment(), page)

    @workflow.query(name=names.EVENTS, description="What happened lately, numbered. Argument: only after this number")
    def events(self, after: int = 0) -> views.EventsPage:
        return views.events(self.state.recent, _now_s(), after)

    @workflow.query(name=names.WEIGHTS, description="Weights on the nodes' disks. Argument: page")
    def weights(self, page: int = 0) -> views.WeightsPage:
        return views.weights(self.state.world, page)

    @workflow.query(name=names.HISTORY, description="The last catalogs, which can be shown and put in force again")
    def history(self) -> views.HistoryPage:
        return views.history(self.state.kept, self.state.world.generation, _now_s())

    @workflow.query(name=names.CATALOG, description="One of the last catalogs. Arguments: generation, page")
    def catalog(self, generation: int = 0, page: int = 0) -> views.CatalogPart:
        return views.catalog_part(self.state.kept, generation or self.state.world.generation, page)


def _now_s() -> float:
    """The moment of the answer; never before what the workflow already knows, should the worker's clock be late."""
    return max(workflow.now().timestamp(), time.time())
