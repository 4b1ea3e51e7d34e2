"""Ids and names of the workflow. Each is part of every history and of what operators type: never rename one."""

WORKFLOW = "ReconcileWorkflow"
REPLACE_CATALOG = "replace-catalog"
APPLY_CATALOG = "apply-catalog"

OBSERVE = "observe"
PLAN = "plan"
DISPATCH = "dispatch"
PUBLISH = "publish"

ASK_AGAIN = "AskAgain"
"""Type of the error by which an update is refused for a moment only."""

STATUS = "status"
MODELS = "models"
REPLICAS = "replicas"
NODES = "nodes"
ENDPOINTS = "endpoints"
TABLE = "table"
TARGETS = "targets"
EXPLAIN = "explain"
CARRIED = "carried"
REPORTS = "reports"
HISTORY = "history"
EVENTS = "events"
WEIGHTS = "weights"
CATALOG = "catalog"

UNDECODABLE = "Undecodable"
"""The type of the error with which an update is refused whose arguments cannot be read."""

PHASE_ATTRIBUTE = "FleetPhase"
GENERATION_ATTRIBUTE = "FleetGeneration"
REJECTED_ATTRIBUTE = "FleetRejected"


def workflow_id(fleet: str) -> str:
    return f"fleet-{fleet}"


def task_queue(fleet: str) -> str:
    return f"fleet-{fleet}"
