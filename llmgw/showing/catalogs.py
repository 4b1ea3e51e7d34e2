"""The catalogs that are kept, as a list and one by one."""

import base64

from llmgw.kept_catalogs import KeptCatalogs
from llmgw.showing.paging import View

PART_BYTES = 40_000
"""Of a compressed catalog on one page: 54 KB as text."""


class CatalogVersionRow(View):
    """A catalog that can be shown, compared and put in force again."""

    generation: int
    digest: str
    age_s: float | None = None
    """Since it came into force; None when that is no longer known."""
    in_force: bool
    packed_bytes: int
    also: tuple[int, ...] = ()
    """Earlier generations that were the same."""


class HistoryPage(View):
    """Newest first. `note`: which are missing and why."""

    catalogs: tuple[CatalogVersionRow, ...]
    note: str = ""


class CatalogPart(View):
    """A piece of one kept catalog: zlib, then Base64; the pieces' bytes together are its canonical JSON compressed.

    `known` false: it is not kept (any more); then `kept` says which are.
    """

    generation: int
    digest: str = ""
    known: bool
    kept: tuple[int, ...]
    part: str = ""
    next_page: int | None = None


def history(kept: KeptCatalogs, generation: int, now_s: float) -> HistoryPage:
    """All kept catalogs; `generation` is in force."""
    rows = (
        CatalogVersionRow(
            generation=item.generation,
            digest=item.digest,
            age_s=None if item.at_s is None else round(max(0.0, now_s - item.at_s), 1),
            in_force=item.generation == generation,
            packed_bytes=len(item.packed),
            also=item.also,
        )
        for item in reversed(kept.catalogs)
    )
    return HistoryPage(catalogs=tuple(rows), note=kept.note())


def catalog_part(kept: KeptCatalogs, generation: int, page: int = 0) -> CatalogPart:
    """The piece that begins at byte `page` of what is kept of `generation`."""
    numbers = tuple(item.generation for item in kept.catalogs)
    if (found := kept.of(generation)) is None:
        return CatalogPart(generation=generation, known=False, kept=numbers)
    end = max(page, 0) + PART_BYTES
    return CatalogPart(
        generation=generation,
        digest=found.digest,
        known=True,
        kept=numbers,
        part=base64.b64encode(found.packed[max(page, 0) : end]).decode(),
        next_page=end if end < len(found.packed) else None,
    )
