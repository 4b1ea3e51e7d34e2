"""Who belongs to the fleet: what the catalog declares and what operators added beside it."""

from collections.abc import Mapping

from llmgw.catalog import DEFAULT_POOL, Model, Node, Router
from llmgw.ids import ModelName, NodeId, PoolName, RouterId
from llmgw.world import SilenceLevel, World


def declared_nodes(world: World) -> Mapping[NodeId, Node]:
    return {} if world.catalog is None else {n.id: n for n in world.catalog.nodes}


def declared_routers(world: World) -> Mapping[RouterId, Router]:
    return {} if world.catalog is None else {r.id: r for r in world.catalog.routers}


def nodes(world: World) -> dict[NodeId, Node]:
    """Every node that is observed, by id. The catalog's word wins over an added node; a leaving one stays observed."""
    return {**world.wishes.leaving, **world.wishes.added_nodes, **declared_nodes(world)}


def routers(world: World) -> dict[RouterId, Router]:
    """Every router that is told the table, by id."""
    return {**world.wishes.added_routers, **declared_routers(world)}


def node(world: World, id_: NodeId) -> Node | None:
    """One node, without building the map of all."""
    declared = () if world.catalog is None else world.catalog.nodes
    found = next((n for n in declared if n.id == id_), None)
    return found or world.wishes.added_nodes.get(id_) or world.wishes.leaving.get(id_)


def router(world: World, id_: RouterId) -> Router | None:
    declared = () if world.catalog is None else world.catalog.routers
    return next((r for r in declared if r.id == id_), None) or world.wishes.added_routers.get(id_)


def pools(world: World) -> frozenset[PoolName]:
    declared = () if world.catalog is None else world.catalog.pools
    return frozenset({DEFAULT_POOL, *(p.name for p in declared)})


def model_of(world: World, name: str) -> Model | None:
    """The model that `name` means, as a name or as an alias."""
    if world.catalog is None:
        return None
    by_alias = (m for m in world.catalog.models if name in m.aliases)
    return world.catalog.model(name) or next(by_alias, None)


def model_names(world: World) -> tuple[ModelName, ...]:
    return () if world.catalog is None else tuple(m.name for m in world.catalog.models)


def holds_anything(world: World, node: NodeId) -> bool:
    """Whether something of ours is assigned to the node or was seen there: then it leaves, it is not forgotten. What
    is assigned to another node is not held here, though seen: one machine has two names."""
    if any(part.node == node for a in world.assignments.values() for part in a.parts):
        return True
    seen = world.seen.get(node)
    ours = (world.installation, world.fleet)
    rows = () if seen is None else (r for r in seen.replicas if r.replica not in world.assignments)
    return any((r.mark.installation, r.mark.fleet) == ours for r in rows)


def node_level(world: World, node: NodeId) -> SilenceLevel | None:
    """What is known of a node: None = not heard in this run, and not silent for long enough to say more."""
    silence = world.silence.get(f"node/{node}")
    if silence is not None and silence.level is not SilenceLevel.HEARD:
        return silence.level
    return SilenceLevel.HEARD if node in world.seen else None
