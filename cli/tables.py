"""Rows as tables that fit the terminal: the most important columns first, the rest where there is room."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

R = TypeVar("R")

WIDE = 120
"""Columns from which on nothing is left out."""

STYLES: Mapping[str, str] = {
    **dict.fromkeys(("ready", "healthy", "steady", "accepted"), "green"),
    **dict.fromkeys(("waiting", "starting", "loading", "draining", "stopping", "suspect", "settling"), "yellow"),
    **dict.fromkeys(("converging", "degraded", "held", "overtaken", "ending", "cordoned", "paused"), "yellow"),
    **dict.fromkeys(("failed", "lost", "fenced", "safe mode", "unavailable", "set aside", "foreign"), "red"),
    **dict.fromkeys(("refused", "behind", "silent"), "red"),
    **dict.fromkeys(("asleep", "unknown", "unchanged"), "dim"),
}
"""Colour of a state, by its word as shown."""


def word(state: str) -> Text:
    """A state as people read it, coloured."""
    shown = state.replace("_", " ")
    return Text(shown, STYLES.get(shown, ""))


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    title: str
    cell: Callable[[R], str | Text]
    wide: bool = False
    """Only shown where there is room."""
    whole: int = 0
    """Cells of up to so many characters are not folded: ids that are copied."""


@dataclass(frozen=True, slots=True)
class Rows(Generic[R]):
    """A table; `empty` is said when there are no rows."""

    columns: Sequence[Column[R]]
    rows: Iterable[R]
    empty: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = list(self.rows)
        if not rows:
            yield Text(self.empty, "dim")
            return
        shown = [column for column in self.columns if not column.wide or options.max_width >= WIDE]
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        cells = [[_text(column.cell(row)) for column in shown] for row in rows]
        for number, column in enumerate(shown):
            longest = max(cell[number].cell_len for cell in cells)
            table.add_column(column.title, overflow="fold", min_width=min(longest, column.whole) or None)
        for cell in cells:
            table.add_row(*cell)
        yield table


def _text(cell: str | Text) -> Text:
    return cell if isinstance(cell, Text) else Text(cell)


def counts(found: Mapping[Any, int]) -> Text:
    """`2 ready, 1 loading`; `none` when there are none. Keys are states."""
    parts = [Text.assemble(f"{number} ", word(state)) for state, number in found.items() if number]
    return Text(", ").join(parts) if parts else Text("none", "dim")
