"""`llmgw timeline`: what became of a replica, from the fleet's durable history, also long after it is gone."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from cli.asking import Plane, ask
from cli.durations import age
from cli.failures import REFUSED, CommandError
from cli.output import AsJson, AsYaml, form_of, show, warn
from cli.outside import Session
from cli.tables import Column, Rows
from llmgw.sentences import counted

if TYPE_CHECKING:  # late, for a quick `llmgw --help`
    from cli.timeline_rows import Moment, Timeline
    from workflows.client import Past


def timeline(
    context: typer.Context,
    replica: Annotated[
        str,
        typer.Argument(
            metavar="REPLICA", help="Its id; or a model, for all its replicas: its name or alias, or model/NAME."
        ),
    ],
    runs: Annotated[
        int, typer.Option("--runs", min=1, max=1000, metavar="N", help="Go back so many runs of the workflow at most.")
    ] = 10,
    as_json: AsJson = False,
    as_yaml: AsYaml = False,
) -> None:
    """Tell a replica's life: what was decided, told, answered and reported, and when.

    Read from Temporal's history of the fleet, so it is there after the replica is gone, and for as long as the
    namespace keeps histories. Ends with 1 when nothing is found.
    """
    session: Session = context.obj
    moments = ask(session, lambda plane: _told(plane, replica, runs))
    show(moments, form_of(as_json, as_yaml), _plain, _page)


async def _told(plane: Plane, asked: str, most: int) -> "list[Moment]":
    from cli.timeline_rows import lines  # late, as above

    past: list[tuple[Past, ...]] = []
    unread = 0
    found = _new(asked)
    async for run in plane.past(most):
        past.insert(0, run.moments)
        unread += run.unread
        found = _new(asked)
        for moment in (moment for moments in past for moment in moments):
            feed(found, moment)
        if found.has_begun and {moment.replica for moment in found.moments} == {asked.removeprefix("replica/")}:
            break
    if unread:
        warn(f"warning: {unread} events of the history are not understood here, and left out")
    if not found.moments:
        known, hints = await _known_as(plane, asked)
        if known != asked:
            return await _told(plane, known, most)
        gone = "its runs may be older: --runs goes further back" if len(past) == most else "nothing older is kept"
        runs = "run" if len(past) == 1 else counted(len(past), "run")
        raise CommandError(REFUSED, f"nothing is told of {asked} in the last {runs} of the workflow; {gone}", *hints)
    return lines(found.moments)


async def _known_as(plane: Plane, asked: str) -> tuple[str, Sequence[str]]:
    """The subject that the fleet knows by a plain name (of an alias its model), or what it knows that is near."""
    from llmgw import views  # late, as above

    if "/" in asked and asked.partition("/")[0] in ("model", "replica"):
        return asked, ()
    found = await plane.one("explain", views.Explanation, asked)
    return (found.subject, ()) if found.known else (asked, found.sentences)


def _new(asked: str) -> "Timeline":
    """A plain name may be a replica's or a model's."""
    from cli.timeline_rows import Timeline  # late, as above

    kind, _, name = asked.partition("/")
    if kind == "model":
        return Timeline(model=name)
    return Timeline(replica=name) if kind == "replica" else Timeline(replica=asked, model=asked)


def feed(found: "Timeline", moment: "Past") -> None:
    """One moment of the history into the timeline."""
    from llmgw.calls import DispatchAnswer, DispatchCall, PublishAnswer, PublishCall  # late, as above
    from llmgw.observation import Observation
    from llmgw.plan import Plan

    match moment.asked, moment.answer:
        case None, Plan() as plan:
            found.plan(moment.at_s, plan)
        case None, Observation() as observation:
            found.observed(moment.at_s, observation)
        case DispatchCall() as call, None if not moment.failed:
            found.told(moment.at_s, call)
        case DispatchCall() as call, answer:
            found.answered(moment.at_s, call, answer if isinstance(answer, DispatchAnswer) else None)
        case PublishCall() as call, answer if answer is not None or moment.failed:
            found.published(moment.at_s, call, answer if isinstance(answer, PublishAnswer) else None)
        case _:
            pass  # a table that was sent: its answer tells


def _clock(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC).astimezone()


def _page(moments: "Sequence[Moment]") -> RenderableType:
    """Times of the operator's own clock; how long after the one before."""
    many = len({moment.replica for moment in moments}) > 1
    before = [moments[0].at_s, *(moment.at_s for moment in moments[:-1])]
    rows = list(zip(moments, before, strict=True))
    columns: list[Column[tuple[Moment, float]]] = [
        Column("TIME", lambda row: f"{_clock(row[0].at_s):%H:%M:%S.%f}"[:-3]),
        Column("AFTER", lambda row: _after(row[0].at_s - row[1])),
        *((Column("REPLICA", lambda row: row[0].replica),) if many else ()),
        Column("WHO", lambda row: row[0].who),
        Column("WHAT", lambda row: row[0].what),
    ]
    head = Text(f"{_clock(moments[0].at_s):%Y-%m-%d %Z}", "dim")
    return Group(head, Rows(columns, rows, "nothing"))


def _after(seconds: float) -> str:
    return f"+{seconds:.3f}s" if seconds < 10 else f"+{age(seconds)}"


def _plain(moments: "Sequence[Moment]") -> object:
    return [
        {"at": _clock(m.at_s).isoformat(timespec="milliseconds"), "replica": m.replica, "who": m.who, "what": m.what}
        for m in moments
    ]
