"""Commands that look: status, models, replicas, nodes, routers, endpoints, explain, logs."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from cli import tables
from cli.agents import print_logs
from cli.reach import OK, REFUSED, Options, fail, leave, show, with_fleet

PAGED: Mapping[str, tuple[str, Callable[[Any], None], str]] = {
    "models": ("models", tables.models, "Models: ready and wanted replicas, and what waits"),
    "replicas": ("replicas", tables.replicas, "Replicas: where, in which state, since when"),
    "endpoints": ("endpoints", tables.endpoints, "Endpoints that routers are told"),
}


def add_to(app: typer.Typer) -> None:
    app.command("status", help="The fleet on one page")(status)
    for name, (query, table, text) in PAGED.items():
        app.command(name, help=text)(_paged(query, name, table))
    app.command("explain", help="Why it is so: a model, replica or node")(explain)
    app.command("logs", help="A replica's output, from its node")(logs)


def status(
    context: typer.Context,
    watch: Annotated[bool, typer.Option(help="Again every second, until Ctrl-C")] = False,
) -> None:
    options: Options = context.obj
    while True:
        value = with_fleet(options, lambda fleet: fleet.query("status"))
        if watch and options.output == "table":
            tables.console.clear()
        show(options, value, tables.status)
        if not watch:
            leave(OK)
        try:
            time.sleep(1)
        except KeyboardInterrupt:
            leave(OK)


def rows(options: Options, query: str, key: str) -> list[Any]:
    pages: Sequence[Mapping[str, Any]] = with_fleet(options, lambda fleet: fleet.pages(query))
    return [row for page in pages for row in page[key]]


def _paged(query: str, key: str, table: Callable[[Any], None]) -> Callable[[typer.Context], None]:
    def command(context: typer.Context) -> None:
        show(context.obj, rows(context.obj, query, key), table)
        leave(OK)

    return command


def explain(
    context: typer.Context,
    subject: Annotated[str, typer.Argument(help="model/NAME, replica/ID, node/ID or a name")],
) -> None:
    options: Options = context.obj
    value = with_fleet(options, lambda fleet: fleet.query("explain", subject))
    show(options, value, _sentences)
    leave(OK if value["known"] else REFUSED)


def _sentences(value: Mapping[str, Any]) -> None:
    print(value["subject"])
    for sentence in value["sentences"]:
        print(f"  {sentence}")
    for line in value.get("log_tail", ()):
        print(f"  | {line}")


def logs(
    context: typer.Context,
    replica: Annotated[str, typer.Argument(help="Id of the replica")],
    lines: Annotated[int, typer.Option(help="Last lines to show")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it writes")] = False,
) -> None:
    options: Options = context.obj
    found = next((r for r in rows(options, "replicas", "replicas") if r.get("id") == replica), None)
    if found is None:
        fail(REFUSED, f"there is no replica {replica}: `llmgw replicas` lists them")
    node = next((n for n in rows(options, "nodes", "nodes") if n["id"] == found["node"]), None)
    if node is None:
        fail(REFUSED, f"node {found['node']} is not known")
    print_logs(f"{node['url']}/v1/replicas/{replica}/logs", lines, options.token_file, follow=follow)
    leave(OK)
