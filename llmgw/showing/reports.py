"""What is known of nodes and routers and not carried over, page by page: with the carried state it is the whole world.

Whoever wants to decide on a copy of the world reads both (`llmgw.snapshot` puts them together).
"""

from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter

from llmgw.showing.paging import PAGE_SIZE, View, cut_page
from llmgw.world import Call, Seen, Silence, World


class ReportRow(View):
    """One record: `kind` names the map of the world it belongs to."""

    kind: str
    key: str
    value: Any


class ReportsPage(View):
    """`moment` is the same on pages, and on the carried state, of one unchanged world."""

    moment: str
    reports: tuple[ReportRow, ...]
    total: int
    next_page: int | None = None


KINDS: dict[str, TypeAdapter[Any]] = {
    "seen": TypeAdapter(Seen),
    "silence": TypeAdapter(Silence),
    "calls": TypeAdapter(Call),
    "troubles": TypeAdapter(str),
}
"""Maps of the world that are not carried over, and what they hold."""


def reports(world: World, moment: str, page: int = 0, page_size: int = PAGE_SIZE) -> ReportsPage:
    """Every record of those maps, by kind and key."""
    found = list(_keys(world))
    cut = cut_page(found, page, page_size, lambda of: _row(world, *of))
    return ReportsPage(moment=moment, reports=cut.rows, total=len(found), next_page=cut.next_page)


def _keys(world: World) -> Iterator[tuple[str, str]]:
    for kind in KINDS:
        yield from ((kind, str(key)) for key in sorted(getattr(world, kind)))


def _row(world: World, kind: str, key: str) -> ReportRow:
    value = KINDS[kind].dump_python(getattr(world, kind)[key], mode="json", exclude_defaults=True)
    return ReportRow(kind=kind, key=key, value=value)
