"""What can be shown of a fleet: pure functions from the world to pages of at most about 64 KB.

The plane's queries, its details in Temporal's UI and the commands of `llmgw` are made of these. They decide nothing,
and nothing they derive is ever stored. Ages and durations are seconds; no page carries an instant or a secret.
"""

from llmgw.showing.catalogs import CatalogPart, CatalogVersionRow, HistoryPage, catalog_part, history
from llmgw.showing.details import fleet_table
from llmgw.showing.devices import DeviceRow, DeviceState
from llmgw.showing.drains import DrainRow
from llmgw.showing.explain import Explanation, LastFailure, explain
from llmgw.showing.fleet_rows import (
    ModelRow,
    ModelsPage,
    NodeRow,
    NodesPage,
    ReplicaRow,
    ReplicasPage,
    WaitingRow,
    models,
    nodes,
    replicas,
)
from llmgw.showing.happenings import EventsPage, NumberedEvent, WeightsPage, WeightsRow, events, weights
from llmgw.showing.phases import Phase, phase
from llmgw.showing.reports import ReportRow, ReportsPage, reports
from llmgw.showing.router_rows import RouterRow
from llmgw.showing.status import RunRow, Status, status
from llmgw.showing.wires import EndpointsPage, TargetsPage, endpoints, packed_table, targets

__all__ = [
    "CatalogPart",
    "CatalogVersionRow",
    "DeviceRow",
    "DeviceState",
    "DrainRow",
    "EndpointsPage",
    "EventsPage",
    "Explanation",
    "HistoryPage",
    "LastFailure",
    "ModelRow",
    "ModelsPage",
    "NodeRow",
    "NodesPage",
    "NumberedEvent",
    "Phase",
    "ReplicaRow",
    "ReplicasPage",
    "ReportRow",
    "ReportsPage",
    "RouterRow",
    "RunRow",
    "Status",
    "TargetsPage",
    "WaitingRow",
    "WeightsPage",
    "WeightsRow",
    "catalog_part",
    "endpoints",
    "events",
    "explain",
    "fleet_table",
    "history",
    "models",
    "nodes",
    "packed_table",
    "phase",
    "replicas",
    "reports",
    "status",
    "targets",
    "weights",
]
