"""Who belongs to the fleet: what the catalog declares and what operators added beside it."""

from llmgw.catalog import Node, Router
from llmgw.ids import NodeId, RouterId
from llmgw.world import World


def nodes(world: World) -> dict[NodeId, Node]:
    """Every node that is observed, by id. The catalog's word wins over an added node; a leaving one stays observed."""
    declared = {} if world.catalog is None else {n.id: n for n in world.catalog.nodes}
    return {**world.wishes.leaving, **world.wishes.added_nodes, **declared}


def routers(world: World) -> dict[RouterId, Router]:
    """Every router that is told the table, by id."""
    declared = {} if world.catalog is None else {r.id: r for r in world.catalog.routers}
    return {**world.wishes.added_routers, **declared}


def node(world: World, id_: NodeId) -> Node | None:
    """One node, without building the map of all."""
    declared = () if world.catalog is None else world.catalog.nodes
    found = next((n for n in declared if n.id == id_), None)
    return found or world.wishes.added_nodes.get(id_) or world.wishes.leaving.get(id_)


def router(world: World, id_: RouterId) -> Router | None:
    declared = () if world.catalog is None else world.catalog.routers
    return next((r for r in declared if r.id == id_), None) or world.wishes.added_routers.get(id_)
