"""The catalog that a recorded input means, parsed once: judging and merging meet the same raw value, by reference.

A memo of a pure function by the identity of its argument, so it changes no outcome: what is not kept is parsed again.
"""

from collections import OrderedDict

from llmgw.catalog import Catalog
from llmgw.catalog_input import sent_catalog

_KEPT: OrderedDict[int, tuple[object, Catalog]] = OrderedDict()
_MAX_KEPT = 4


def keep(raw: object, catalog: Catalog) -> None:
    """`raw`, the arguments as they were recorded, means `catalog`."""
    _KEPT[id(raw)] = (raw, catalog)
    while len(_KEPT) > _MAX_KEPT:
        _KEPT.popitem(last=False)


def catalog_of(raw: object) -> Catalog:
    """The catalog in the recorded arguments. Raises ValueError where they hold none."""
    kept = _KEPT.get(id(raw))
    if kept is not None and kept[0] is raw:
        return kept[1]
    return Catalog.model_validate(dict(sent_catalog(raw).raw))


def sharing(new: Catalog, before: Catalog | None) -> Catalog:
    """`new` with every node and model that is as it was `before` the very same value, so that what is known of it is
    known again (`llmgw.memo`)."""
    if before is None:
        return new
    nodes, models = {n.id: n for n in before.nodes}, {m.name: m for m in before.models}
    same_nodes = tuple(known if (known := nodes.get(n.id)) == n and known is not None else n for n in new.nodes)
    same_models = tuple(was if (was := models.get(m.name)) == m and was is not None else m for m in new.models)
    return new.model_copy(update={"nodes": same_nodes, "models": same_models})
