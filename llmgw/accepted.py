"""The catalog that a recorded input means, parsed once: judging and merging meet the same raw value, by reference.

A memo of a pure function by the identity of its argument, so it changes no outcome: what is not kept is parsed again.
"""

from collections import OrderedDict
from typing import TypeVar

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
    """`new` with every part that is as it was `before` the very same value, so that what is known of it is known again
    (`llmgw.memo`)."""
    if before is None:
        return new
    nodes, models = {n.id: n for n in before.nodes}, {m.name: m for m in before.models}
    shared = {
        "nodes": tuple(_same(n, nodes.get(n.id)) for n in new.nodes),
        "models": tuple(_same(m, models.get(m.name)) for m in new.models),
        "engines": _same(new.engines, before.engines),
        "policy": _same(new.policy, before.policy),
    }
    return new.model_copy(update=shared)


T = TypeVar("T")


def _same(new: T, before: T | None) -> T:
    return before if before is not None and (before is new or before == new) else new
