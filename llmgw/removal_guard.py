"""The guard against a catalog that would empty the fleet by mistake (DESIGN §4, Edits)."""

from collections.abc import Iterator

from llmgw.catalog import Catalog
from llmgw.ids import ModelName
from llmgw.sentences import are, names_shown
from llmgw.world import HeldCatalog, World

LEAST_REMOVED = 3
CONFIRM_AFTER_S = 30.0
"""The same catalog sent again after this long is meant."""


def running_models(world: World) -> frozenset[ModelName]:
    """Models in force that have a replica or an endpoint. Without a catalog in memory: all that have one."""
    running = {a.model for a in world.assignments.values()}
    running |= {ModelName(e.models[0]) for e in world.table.endpoints.values() if e.models}
    return frozenset(running if world.catalog is None else running & {m.name for m in world.catalog.models})


def too_many_removed(world: World, new: Catalog) -> str:
    """A sentence about what `new` would remove, when it is much or all: a file cut short must not empty a fleet.

    Much is at least three, and more than a third, of the models that run. All is every model, declared node or router
    of a fleet that runs something, with nothing in their place.
    """
    running = running_models(world)
    removed = sorted(running - {m.name for m in new.models})
    if removed and not new.models:
        return f"it has no models, and {are(len(running), 'model')} running ({names_shown(sorted(running))})"
    if len(removed) >= LEAST_REMOVED and 3 * len(removed) > len(running):
        return f"it removes {len(removed)} of the {len(running)} models that run ({names_shown(removed)})"
    if running and (gone := tuple(_emptied(world, new))):
        return f"it takes out {' and '.join(gone)}, and names none in their place"
    return ""


def _emptied(world: World, new: Catalog) -> Iterator[str]:
    """Lists of which nothing is left, orders counted."""
    was = world.catalog
    if was is None:
        return
    if was.nodes and not new.nodes and not world.wishes.added_nodes:
        yield f"all nodes ({names_shown([n.id for n in was.nodes])})"
    if was.routers and not new.routers and not world.wishes.added_routers:
        yield f"all routers ({names_shown([r.id for r in was.routers])})"


def is_confirmed(held: HeldCatalog | None, digest: str, at_s: float) -> bool:
    """Whether the catalog with `digest`, arriving now, was held long enough ago to be meant."""
    return held is not None and held.digest == digest and at_s - held.since_s >= CONFIRM_AFTER_S
