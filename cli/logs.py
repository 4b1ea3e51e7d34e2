"""`llmgw logs`: a replica's output, copied from the node that runs it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cli.agents import MOST_LINES, copy_logs
from cli.asking import Plane, ask
from cli.failures import REFUSED, CommandError
from cli.outside import Session

if TYPE_CHECKING:  # late, for a quick `llmgw --help`
    from llmgw import views

PREFIXES = ("replica/", "model/")


def logs(
    context: typer.Context,
    replica: Annotated[str, typer.Argument(metavar="REPLICA", help="Its id; or its model, when that has only one.")],
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, max=MOST_LINES, metavar="N", help="Last lines.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it writes, until Ctrl-C.")] = False,
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="NODE", help="The node to ask, for a replica that is gone: it keeps the log."),
    ] = None,
) -> None:
    """Print the output of a replica's engine, of its latest attempt.

    The fleet says which node it is on; that node's agent is asked directly, with the token of --token-file.
    """
    session: Session = context.obj
    id_, base = ask(session, lambda plane: _place(plane, replica, node))
    try:
        copy_logs(session, f"{base}/v1/replicas/{id_}/logs", lines=lines, follow=follow)
    except KeyboardInterrupt:
        return


async def _place(plane: Plane, asked: str, node: str | None) -> tuple[str, str]:
    """(replica, URL of its agent)."""
    from llmgw import views  # late, for a quick `llmgw --help`

    name = next((asked.removeprefix(p) for p in PREFIXES if asked.startswith(p)), asked)
    if node is None:
        name, node = _found(
            name, [row for p in await plane.pages("replicas", views.ReplicasPage) for row in p.replicas]
        )
    targets = [t for page in await plane.pages("targets", views.TargetsPage) for t in page.targets]
    url = next((t.url for t in targets if t.id == f"node/{node}"), None)
    if url is None:
        raise CommandError(REFUSED, f"there is no node {node}: `llmgw nodes` lists them")
    return name, url


def _found(name: str, rows: "Sequence[views.ReplicaRow]") -> tuple[str, str]:
    """(id, node) of the replica, or of the model's only one."""
    for row in rows:
        if row.id == name:
            return row.id, row.node
    mine = [row for row in rows if row.model == name]
    if len(mine) == 1:
        return mine[0].id, mine[0].node
    if mine:
        ids = ", ".join(row.id for row in mine)
        raise CommandError(REFUSED, f"{name} has {len(mine)} replicas: name one of {ids}")
    gone = "of one that is gone, its node may keep the log: add --node NODE"
    raise CommandError(REFUSED, f"there is no replica {name}: `llmgw replicas` lists them; {gone}")
