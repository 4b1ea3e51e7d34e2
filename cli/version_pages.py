"""Kept catalogs as a table, and the differences of two as coloured lines."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from cli.durations import age
from cli.tables import Column, Rows
from llmgw import views
from llmgw.diff import Change, Difference

COLUMNS: Sequence[Column[views.CatalogVersionRow]] = (
    Column("GENERATION", lambda row: str(row.generation)),
    Column("AGE", lambda row: age(row.age_s) or "unknown"),
    Column("DIGEST", lambda row: row.digest[:12]),
    Column("", lambda row: Text("in force", "green") if row.in_force else ""),
    Column("SAME AS", lambda row: ", ".join(map(str, row.also))),
    Column("BYTES KEPT", lambda row: str(row.packed_bytes), wide=True),
)


def history_page(found: views.HistoryPage) -> RenderableType:
    rows = Rows(COLUMNS, found.catalogs, "no catalog yet: `llmgw apply FILE` gives the fleet one")
    return Group(rows, *((Text(found.note, "dim"),) if found.note else ()))


STYLES = {Change.ADDED: ("+", "green"), Change.REMOVED: ("-", "red"), Change.CHANGED: ("~", "yellow")}


def diff_page(found: Sequence[Difference], head: str) -> RenderableType:
    """`head` says from which catalog to which."""
    lines = [_line(difference) for difference in found] or [Text("no difference", "dim")]
    return Group(Text(head, "dim"), *lines)


def _line(difference: Difference) -> Text:
    sign, style = STYLES.get(difference.change, ("~", "yellow"))
    return Text.assemble((f"{sign} ", style), str(difference))
