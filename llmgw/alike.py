"""One instance of what a node says again and again: of its inventory, and of each of its engines.

The pool that has heard a report, the run that is told of it and each run after it would keep values of their own
otherwise, and of 8,000 replicas these are most of a worker's memory. Values are frozen and what is given back equals
what was given, so it changes no outcome; memos by identity (`llmgw.memo`) then last beyond a run as well.
"""

from llmgw.ids import NodeId
from llmgw.wire import Inventory, ReplicaReport

MOST = 20_000
"""Nodes; beyond that all are forgotten, so that those which are gone go too."""

_ROWS: dict[NodeId, tuple[ReplicaReport, ...]] = {}
_INVENTORIES: dict[NodeId, Inventory] = {}


def rows(node: NodeId, told: tuple[ReplicaReport, ...]) -> tuple[ReplicaReport, ...]:
    """`told`, with the rows that the node has told before where they are equal."""
    known = _ROWS.get(node, ())
    if known == told:
        return known
    before = {row.replica: row for row in known}
    made = tuple(was if (was := before.get(row.replica)) == row and was is not None else row for row in told)
    if len(_ROWS) >= MOST:
        _ROWS.clear()
    _ROWS[node] = made
    return made


def inventory(node: NodeId, told: Inventory) -> Inventory:
    """`told`, or what the node has told before where that is equal."""
    known = _INVENTORIES.get(node)
    if known == told and known is not None:
        return known
    if len(_INVENTORIES) >= MOST:
        _INVENTORIES.clear()
    _INVENTORIES[node] = told
    return told
