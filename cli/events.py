"""`llmgw events`: what happened lately, and what happens from now on."""

from typing import Annotated, Any

import typer
from rich.text import Text

from cli.asking import Plane, ask
from cli.durations import age
from cli.failures import REFUSED, CommandError, meaning
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
    wanted = await _wanted(plane, subject)
    last = await _print_new(plane, 0, wanted, form)
    while follow:
        await session.outside.pause(FOLLOW_S)
        try:
            wanted |= await _replicas_of(plane, subject)
            last = await _print_new(plane, last, wanted, form)
        except Exception as error:  # it may pass: whoever follows goes on
            if (meant := meaning(error, session.target)) is None:
                raise
            warn(*meant.sentences)


async def _wanted(plane: Plane, subject: str) -> frozenset[str]:
    """Subjects whose events are asked for; none: all. Of a model also those of its replicas. What nobody knows of, and
    nothing happened to, is refused."""
    from llmgw import views  # late, for a quick `llmgw --help`

    if not subject:
        return frozenset()
    found = await plane.one("explain", views.Explanation, subject)
    if found.known:
        return frozenset((subject, found.subject)) | await _replicas_of(plane, found.subject)
    told = await plane.one("events", views.EventsPage, 0)
    if not any(subject in (event.subject, event.subject.partition("/")[2]) for event in told.events):
        raise CommandError(REFUSED, *found.sentences)
    return frozenset((subject,))


async def _replicas_of(plane: Plane, subject: str) -> frozenset[str]:
    """Those of a model that are there now."""
    from cli.listings import replica_rows  # late, as above

    kind, _, name = subject.partition("/")
    if kind != "model":
        return frozenset()
    return frozenset(f"replica/{row.id}" for row in await replica_rows(plane) if row.model == name)


async def _print_new(plane: Plane, after: int, wanted: frozenset[str], form: Form) -> int:
    """The number of the newest event. `wanted`: of these subjects alone, by kind and name or by name; none: of all."""
    from llmgw import views  # late, for a quick `llmgw --help`

    found = await plane.one("events", views.EventsPage, after)
    if found.newest < after:  # the fleet began anew, with numbers of its own
        return await _print_new(plane, 0, wanted, form)
    if found.missed:
        warn(f"{found.missed} events came faster than they are kept: `llmgw timeline` has what happened to a replica")
    models = tuple(f"{name}/" for kind, _, name in (subject.partition("/") for subject in wanted) if kind == "model")
    placed = {e.subject for e in found.events if models and e.text.startswith(models) and " goes to " in e.text}
    wanted |= placed
    for event in found.events:
        if wanted and not wanted & {event.subject, event.subject.partition("/")[2]}:
            continue
        if form is Form.PAGE:
            _print(event)
        else:
            print(text_of(event.model_dump(mode="json"), form, one_line=True), flush=True)
    return found.newest


def _print(event: Any) -> None:
    print_page(Text.assemble((f"{age(event.age_s):>4}  ", "dim"), (event.subject, "bold"), f"  {event.text}"))
