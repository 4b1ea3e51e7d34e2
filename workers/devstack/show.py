"""What a dev stack shows of itself: a live table while it comes up on a terminal, plain lines everywhere else.

It only shows. Rows come in order and are never taken back.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table

from llmgw.views import ModelRow, Status
from llmgw.wire import ModelState
from workers.devstack.supervisor import Change, PartState


class Show(Protocol):
    """Where a stack's story is told."""

    def part(self, change: Change) -> None: ...

    def models(self, rows: Iterable[ModelRow]) -> None: ...

    def status(self, status: Status) -> None: ...

    def settle(self) -> None:
        """Everything is up: from now on, only what changes."""

    def say(self, text: str) -> None: ...

    def page(self, text: str) -> None:
        """A text of its own, as it is."""


WORDS = {
    PartState.STARTING: "starts",
    PartState.READY: "is ready",
    PartState.DIED: "died; another one is started",
    PartState.TROUBLED: "does not become ready",
    PartState.ENDED: "has ended",
}


def change_line(change: Change) -> str:
    """What became of a part, on one line."""
    took = f" after {change.took_ms} ms" if change.state in (PartState.READY, PartState.TROUBLED) else ""
    return f"{change.part} {WORDS[change.state]}{took}" + (f" ({change.text})" if change.text else "")


def model_words(row: ModelRow) -> str:
    """How a model stands: ready of wanted, what its replicas do, why it waits."""
    doing = ", ".join(f"{count} {state}" for state, count in sorted(row.replicas.items()) if state != "ready")
    waits = row.waiting.text if row.waiting is not None else ""
    return "; ".join(text for text in (f"{row.ready} of {row.wanted} ready", doing, waits) if text)


class Lines:
    """Plain lines, each with the seconds since the start."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._start = time.monotonic()
        self._models: dict[str, str] = {}
        self._refused: tuple[str, ...] = ()

    def part(self, change: Change) -> None:
        if change.state is not PartState.STARTING:
            self.say(change_line(change))

    def models(self, rows: Iterable[ModelRow]) -> None:
        now: dict[str, str] = {row.name: model_words(row) for row in rows}
        for name, words in now.items():
            if self._models.get(name) != words:
                self.say(f"model {name}: {words}")
        for name in self._models.keys() - now.keys():
            self.say(f"model {name} left the catalog")
        self._models = now

    def status(self, status: Status) -> None:
        problems = status.last_catalog.problems if status.last_catalog is not None else ()
        if problems and problems != self._refused:
            self.say("the catalog was refused, nothing changed:\n" + "\n".join(f"    {text}" for text in problems))
        self._refused = problems

    def settle(self) -> None:
        """Lines are always only what changes."""

    def say(self, text: str) -> None:
        with suppress(OSError):  # the terminal is closed: the stack still has to end in order
            print(f"{self.stamp()}  {text}", file=self._out, flush=True)

    def page(self, text: str) -> None:
        with suppress(OSError):
            print(text, file=self._out, flush=True)

    def stamp(self) -> str:
        return f"{self.since_start_s():6.1f} s"

    def since_start_s(self) -> float:
        return time.monotonic() - self._start


class Screen(Lines):
    """A live table until everything is up, then lines."""

    def __init__(self, console: Console) -> None:
        super().__init__(console.file)
        self._parts: dict[str, Change] = {}
        self._rows: dict[str, ModelRow] = {}
        self._live: Live | None = Live(self._table(), console=console, refresh_per_second=8)
        self._live.start()

    def part(self, change: Change) -> None:
        self._parts[change.part] = change
        if not self._refresh():
            super().part(change)

    def models(self, rows: Iterable[ModelRow]) -> None:
        rows = tuple(rows)
        self._rows = {row.name: row for row in rows}
        if self._refresh():
            self._models = {row.name: model_words(row) for row in rows}
        else:
            super().models(rows)

    def settle(self) -> None:
        self._refresh()
        if self._live is not None:
            with suppress(OSError):
                self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            super().say(text)

    def _refresh(self) -> bool:
        """Whether there still is a live table."""
        if self._live is None:
            return False
        self._live.update(self._table())
        return True

    def _table(self) -> Table:
        table = Table(box=None, show_header=False, pad_edge=False)
        for change in self._parts.values():
            is_ready = change.state is PartState.READY
            took = f"{change.took_ms} ms" if is_ready else ""
            table.add_row(_light(is_ready), change.part, WORDS[change.state], took, change.text)
        for row in self._rows.values():
            is_ready = row.state is ModelState.READY and row.ready >= row.wanted
            table.add_row(_light(is_ready), f"model {row.name}", model_words(row), "", " ".join(row.aliases))
        return table


def _light(is_ready: bool) -> str:
    return "[green]●[/]" if is_ready else "[yellow]○[/]"
