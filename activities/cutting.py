"""From what agents and routers say to what a decision can use: no ages, no per-request figures, no echo."""

import re

from llmgw import alike
from llmgw.calls import cut
from llmgw.ids import NodeId, RouterId
from llmgw.observation import NodeSeen, RouterSeen
from llmgw.wire import EngineState, NodeReport, ReplicaReport, RouterState, WeightsReport

MOST_WEIGHTS = 50
WHOLE_REPOSITORY = re.compile(r"hf://[^/]+/[^/@]+(@.*)?")
LOG_LINES = 5
LOG_LINE_CHARS = 200
MAX_IDLE = 500
"""Idle endpoints told at once; as these go, the next come."""
MAX_ASKED = 500


def node_seen(node: NodeId, report: NodeReport, problems: tuple[str, ...] = ()) -> NodeSeen:
    """A node's report without its inventory (told apart, once per boot); log lines only of what failed.

    `problems`: what is to be told of those that the report names.
    """
    return NodeSeen(
        node=node,
        machine=report.machine_id,
        boot=report.boot_id,
        instance=report.instance,
        revision=report.revision,
        token=report.token,
        owner=report.owner,
        replicas=alike.rows(node, tuple(_cut_replica(r) for r in report.replicas)),
        quarantined=report.quarantined,
        weights=tuple(_cut_weights(w) for w in report.weights if _is_decided_on(w))[:MOST_WEIGHTS],
        hostname=report.hostname,
        version=report.version,
        says="" if report.node == node else cut(report.node),
        problems=problems,
    )


def _is_decided_on(row: WeightsReport) -> bool:
    """Whole repositories of the hub are fetched by engines themselves: nothing depends on the node having them."""
    return row.pulling or not WHOLE_REPOSITORY.fullmatch(row.source)


def _cut_weights(row: WeightsReport) -> WeightsReport:
    """Whether it is there, else how far it is in tenths: not every byte is worth an event."""
    if row.complete:
        return WeightsReport(source=row.source, path="", bytes=0, complete=True)
    step = max(1, (row.total_bytes or 0) // 10)
    known = row.bytes - row.bytes % step if row.total_bytes else 0
    return row.model_copy(update={"path": "", "idle_s": None, "bytes": known, "reason": cut(row.reason)})


def _cut_replica(row: ReplicaReport) -> ReplicaReport:
    failed = row.state is EngineState.FAILED
    tail = tuple(line[:LOG_LINE_CHARS] for line in row.log_tail[-LOG_LINES:]) if failed else ()
    return row.model_copy(update={"state_age_s": 0.0, "usage": None, "log_tail": tail, "reason": cut(row.reason)})


def router_seen(router: RouterId, fleet: str, state: RouterState) -> RouterSeen:
    """What a router holds of this fleet, which withdrawn endpoints are still in use, and what is idle or asked for."""
    mine = [use for use in state.use if use.fleet in ("", fleet)]
    return RouterSeen(
        router=router,
        instance=state.instance,
        revision=state.revision,
        held=state.tables.get(fleet),
        draining=tuple(sorted(u.id for u in mine if u.withdrawn and u.in_flight > 0)),
        idle=tuple(sorted(u.id for u in mine if u.idle and not u.withdrawn)[:MAX_IDLE]),
        asked=tuple(sorted(a.model for a in state.asked)[:MAX_ASKED]),
    )
