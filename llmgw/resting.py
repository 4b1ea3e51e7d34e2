"""Ports of replicas that are gone: they rest on their node until no router can send to them any more.

A request that a router still sends to a port must not meet another model there. So a port is named as let go, in the
node's next batch, only when every declared router has acknowledged a table without it, a silent one too: that one may
still serve its old table. It is named until the node's token shows that the batch was taken. What is lost from this
memory rests an hour by the agent's own clock, so forgetting is always safe. Never gives a batch a reason to be sent.
"""

from collections import defaultdict
from dataclasses import replace

from llmgw import members, stopping
from llmgw.draft import Draft
from llmgw.ids import NodeId
from llmgw.nodes import NodeView
from llmgw.router_kinds import kind_of
from llmgw.world import RestingPort, RouterFacts

REST_S = 3600.0
"""After this time the agent ends the rest by itself."""
MAX_PER_NODE = 128
"""More are not remembered: the oldest rest out their hour."""


def rest(draft: Draft, revision: int) -> None:
    """Bring the resting ports up to date. `revision`: of the table after this pass, which names none of the gone."""
    found: defaultdict[NodeId, list[RestingPort]] = defaultdict(list)
    for node, before in draft.resting.items():
        found[node] += before
    for assignment in draft.ended:
        stop, port = assignment.stop, draft.port_of(assignment)
        port = stop.port if stop is not None and stop.port is not None else port
        if port is not None:
            withdrawn_at = stop.withdrawn_at if stop is not None and stop.withdrawn_at >= 0 else revision
            found[assignment.node].append(RestingPort(port, draft.now_s, withdrawn_at))
    oldest_ack = _oldest_ack(draft)
    for node, ports in found.items():
        view = draft.survey.of(node)
        kept = [_weighed(p, oldest_ack) for p in ports if view is not None and not _is_over(draft, view, p)]
        if kept:
            draft.wake(kept[0].since_s + REST_S)
            draft.resting[node] = tuple(kept[-MAX_PER_NODE:])
        else:
            draft.resting.pop(node, None)


def _oldest_ack(draft: Draft) -> int | None:
    """The revision that every router that carries traffic has acknowledged and still holds; None without any."""
    routers = members.routers(draft.world).items()
    carrying = [id_ for id_, router in routers if kind_of(router.kind).carries_traffic]
    told = (stopping.told_revision(draft.world.routers.get(id_, RouterFacts())) for id_ in carrying)
    return min(told, default=None)


def _weighed(port: RestingPort, oldest_ack: int | None) -> RestingPort:
    if port.let_go or (oldest_ack is not None and oldest_ack < port.withdrawn_at):
        return port
    return replace(port, let_go=True)


def _is_over(draft: Draft, view: NodeView, port: RestingPort) -> bool:
    """The agent was told, rests it no longer, or has it in use again."""
    in_use = any(row.port == port.port for row in view.rows.values())
    token = view.seen.token if view.judges and view.seen is not None else None
    ours = token is not None and (token.installation, token.epoch) == (draft.world.installation, draft.world.epoch)
    told = token is not None and ours and 0 <= port.named_seq <= token.seq
    return in_use or told or draft.now_s >= port.since_s + REST_S
