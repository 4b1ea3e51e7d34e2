"""`llmgw logs`: a replica's output, copied from the node that runs it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cli.agents import MOST_LINES, copy_logs
from cli.asking import Plane, ask
from cli.durations import age
from cli.failures import REFUSED, CommandError
from cli.output import warn
from cli.outside import Session

if TYPE_CHECKING:  # late, for a quick `llmgw --help`
    from llmgw import views

PREFIXES = ("replica/", "model/")


def logs(
    context: typer.Context,
    replica: Annotated[
        str, typer.Argument(metavar="REPLICA", help="Its id; or its model or an alias, when that has only one.")
    ],
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, max=MOST_LINES, metavar="N", help="Last lines.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it writes, until Ctrl-C.")] = False,
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="NODE", help="The node to ask, for a replica that is gone: it keeps the log."),
    ] = None,
) -> None:
    """Print the output of a replica's engine, of its latest attempt.

    The fleet says which node it is on; that node's agent is asked directly, with the token of --token-file. Of a
    replica that failed and is gone, or of a model that has none now, it is the log of the last failed attempt: the node
    keeps it for a while, and the fleet remembers its last lines.
    """
    session: Session = context.obj
    place = ask(session, lambda plane: _place(plane, replica, node))
    if place.note:
        warn(place.note)
    try:
        copy_logs(session, f"{place.url}/v1/replicas/{place.replica}/logs", lines=lines, follow=follow)
    except KeyboardInterrupt:
        return
    except CommandError as error:
        if not place.tail:
            raise
        warn(*error.sentences, "the last lines that the fleet remembers:")
        print("\n".join(place.tail))


@dataclass(frozen=True, slots=True)
class Place:
    """Whose log is asked for, at which agent. `note` and `tail`: of a replica that is gone, what is known of it."""

    replica: str
    url: str
    note: str = ""
    tail: tuple[str, ...] = ()


async def _place(plane: Plane, asked: str, node: str | None) -> Place:
    from llmgw import views  # late, for a quick `llmgw --help`

    name = next((asked.removeprefix(p) for p in PREFIXES if asked.startswith(p)), asked)
    note: str = ""
    tail: tuple[str, ...] = ()
    if node is None:
        name, node, note, tail = await _found(plane, name)
    targets = [t for page in await plane.pages("targets", views.TargetsPage) for t in page.targets]
    url = next((t.url for t in targets if t.id == f"node/{node}"), None)
    if url is None:
        raise CommandError(REFUSED, f"there is no node {node}: `llmgw nodes` lists them")
    return Place(name, url, note, tail)


Found = tuple[str, str, str, tuple[str, ...]]
"""Replica, node, and what is told and remembered of one that is gone."""


async def _found(plane: Plane, name: str) -> Found:
    """The replica, or the model's only one, or the last that failed."""
    from llmgw import views  # late, as above

    rows = [row for page in await plane.pages("replicas", views.ReplicasPage) for row in page.replicas]
    if (row := next((row for row in rows if row.id == name), None)) is not None:
        return row.id, row.node, "", ()
    explained = await plane.one("explain", views.Explanation, name)
    kind, _, model = explained.subject.partition("/")
    mine = [row for row in rows if explained.known and kind == "model" and row.model == model]
    if len(mine) == 1:
        return mine[0].id, mine[0].node, "", ()
    if mine:
        ids = ", ".join(row.id for row in mine)
        raise CommandError(REFUSED, f"{model} has {len(mine)} replicas: name one of {ids}")
    return _gone(name, explained)


def _gone(name: str, explained: "views.Explanation") -> Found:
    last = explained.last_failure
    if last is not None:
        note = f"{last.replica} is gone; it failed on {last.node} {age(last.age_s)} ago: {last.text}"
        return last.replica, last.node, note, explained.log_tail
    if explained.known:
        what = f"{name} has no replica now, and no failed attempt of it is remembered"
        raise CommandError(REFUSED, f"{what}: `llmgw explain {name}` says why")
    gone = "of one that is gone, `llmgw timeline` tells its node, which may keep the log: add --node NODE"
    raise CommandError(REFUSED, f"there is no replica or model {name}: `llmgw replicas` lists them; {gone}")
