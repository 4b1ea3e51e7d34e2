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
