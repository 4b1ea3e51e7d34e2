"""Looking at a fleet once, or again and again: how a value is asked for and shown, and a screen that follows it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from cli.asking import Plane, ask
from cli.failures import meaning
from cli.output import Form, console, print_page, show, text_of
from cli.outside import Session

T = TypeVar("T")

WATCH_S = 1.0

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Look again every second, until Ctrl-C.")]


@dataclass(frozen=True, slots=True)
class Look(Generic[T]):
    """`fetch` asks for a value; `page` shows it to people, `plain` gives programs the same as JSON types."""

    fetch: Callable[[Plane], Awaitable[T]]
    page: Callable[[T], RenderableType]
    plain: Callable[[T], object]


def run(context: typer.Context, look: Look[T], form: Form, *, watch: bool) -> None:
    """Show `look` once; with `watch` every second until Ctrl-C, through silences of the fleet."""
    session: Session = context.obj
    if not watch:
        show(ask(session, look.fetch), form, look.plain, look.page)
        return
    try:
        ask(session, lambda plane: _watch(session, plane, look, form))
    except KeyboardInterrupt:
        return


async def _watch(session: Session, plane: Plane, look: Look[T], form: Form) -> None:
    with _screen(form) as draw:
        while True:
            draw(*await _seen(session, plane, look, form))
            await session.outside.pause(WATCH_S)


async def _seen(session: Session, plane: Plane, look: Look[T], form: Form) -> tuple[RenderableType, str]:
    """The page and its text form; what failed stands there instead, since it may pass."""
    try:
        value = await look.fetch(plane)
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except Exception as error:
        if (meant := meaning(error, session.target)) is None:
            raise
        text = "\n".join(meant.sentences)
        return Text(text, "red"), text_of({"problem": text}, form, one_line=True)
    if form is Form.PAGE:
        return look.page(value), ""
    return Text(), text_of(look.plain(value), form, one_line=True)


@contextmanager
def _screen(form: Form) -> Iterator[Callable[[RenderableType, str], None]]:
    """A way to draw: in place at a terminal, one after the other elsewhere, one document a line for programs."""
    if form is not Form.PAGE:
        yield lambda _, text: print(text, flush=True)
        return
    out = console()
    if not out.is_terminal:
        yield lambda page, _: print_page(Group(page, Text()))
        return
    with Live(console=out, screen=True, auto_refresh=False) as live:
        yield lambda page, _: live.update(page, refresh=True)
