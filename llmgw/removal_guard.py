"""The guard against a catalog that would empty the fleet by mistake (DESIGN §4, Edits)."""

from llmgw.catalog import Catalog
from llmgw.ids import ModelName
from llmgw.sentences import names_shown
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
    """A sentence about what `new` would remove, when that is at least three and more than a third of what runs."""
    running = running_models(world)
    removed = sorted(running - {m.name for m in new.models})
    if len(removed) < LEAST_REMOVED or 3 * len(removed) <= len(running):
        return ""
    return f"it removes {len(removed)} of the {len(running)} models that run ({names_shown(removed)})"


def is_confirmed(held: HeldCatalog | None, digest: str, at_s: float) -> bool:
    """Whether the catalog with `digest`, arriving now, was held long enough ago to be meant."""
    return held is not None and held.digest == digest and at_s - held.since_s >= CONFIRM_AFTER_S
