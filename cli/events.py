"""`llmgw events`: what happened lately, and what happens from now on."""

from typing import Annotated, Any

import typer
from rich.text import Text

from cli.asking import Plane, ask
from cli.durations import age
from cli.failures import meaning
from cli.output import AsJson, AsYaml, Form, form_of, print_page, text_of, warn
from cli.outside import Session

FOLLOW_S = 1.0


def events(
    context: typer.Context,
    subject: Annotated[
        str,
        typer.Argument(metavar="SUBJECT", help="Only of this replica, model, node or router: its name, or KIND/NAME."),
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as things happen, until Ctrl-C.")] = False,
    as_json: AsJson = False,
    as_yaml: AsYaml = False,
) -> None:
    """Print what happened lately, oldest first: the last hundred events. `timeline` goes further back.

    For programs it prints one document a line (--json) or one after the other (--yaml), with the event's number.
    """
    session: Session = context.obj
    form = form_of(as_json, as_yaml)
    try:
        ask(session, lambda plane: _told(session, plane, subject, follow, form))
    except KeyboardInterrupt:
        return


async def _told(session: Session, plane: Plane, subject: str, follow: bool, form: Form) -> None:
    last = await _print_new(plane, 0, subject, form)
    while follow:
        await session.outside.pause(FOLLOW_S)
        try:
            last = await _print_new(plane, last, subject, form)
        except Exception as error:  # it may pass: whoever follows goes on
            if (meant := meaning(error, session.target)) is None:
                raise
            warn(*meant.sentences)


async def _print_new(plane: Plane, after: int, subject: str, form: Form) -> int:
    """The number of the newest event."""
    from llmgw import views  # late, for a quick `llmgw --help`

    found = await plane.one("events", views.EventsPage, after)
    if found.newest < after:  # the fleet began anew, with numbers of its own
        return await _print_new(plane, 0, subject, form)
    if found.missed:
        warn(f"{found.missed} events came faster than they are kept: `llmgw timeline` has what happened to a replica")
    for event in found.events:
        if subject and subject not in (event.subject, event.subject.partition("/")[2]):
            continue
        if form is Form.PAGE:
            _print(event)
        else:
            print(text_of(event.model_dump(mode="json"), form, one_line=True), flush=True)
    return found.newest


def _print(event: Any) -> None:
    print_page(Text.assemble((f"{age(event.age_s):>4}  ", "dim"), (event.subject, "bold"), f"  {event.text}"))
