"""A snapshot that comes in several parts tells every node's inventory, whenever the node changed last."""

import aiohttp

from activities.pool import Pool, _Stream
from activities.settings import Outward
from bench.fleet.skins import node_report
from llmgw.ids import NodeId
from llmgw.observation import Target
from sim.node import SimNode, devices


def snapshot(pool: Pool) -> dict[NodeId, bool]:
    """Every node of a snapshot, and whether its inventory came with it."""
    told: dict[NodeId, bool] = {}
    cursor, more, parts = 0, True, 0
    while more:
        part = pool._part(cursor)
        assert [n.inventory is not None for n in pool._part(cursor).nodes] == [
            n.inventory is not None for n in part.nodes
        ], "a part that is asked for again, since its answer was lost, is the same"
        told |= {node.node: node.inventory is not None for node in part.nodes}
        cursor, more, parts = part.cursor, part.more, parts + 1
    assert parts > 1
    return told


async def test_every_inventory_is_told_to_each_reader_and_to_none_twice() -> None:
    pool = Pool("f", Outward(), aiohttp.ClientSession())
    nodes = [SimNode(NodeId(f"n{i}"), devices(f"n{i}", 8)) for i in range(120)]
    for node in nodes:
        pool._streams[f"node/{node.id}"] = stream = _Stream(Target(id=f"node/{node.id}", url="http://h"))
        pool._node(stream, node_report(node))
    for node in nodes[:80]:  # these are told last: their inventories are older than the parts before
        node.restart_agent()
        pool._node(pool._streams[f"node/{node.id}"], node_report(node))
    for _ in range(2):
        told = snapshot(pool)
        assert len(told) == len(nodes)
        assert [id_ for id_, whole in told.items() if not whole] == []
    end = pool._seq
    nodes[0].restart_agent()
    pool._node(pool._streams["node/n0"], node_report(nodes[0]))
    assert [node.inventory for node in pool._part(end).nodes] == [None]
    await pool.close()
