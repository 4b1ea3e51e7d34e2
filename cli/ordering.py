"""Orders: one command per row of `llmgw.orders.ORDERS`, made from its fields. `nodes` and `routers` group theirs."""

import inspect
import json
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any

import typer
from pydantic.fields import FieldInfo

from cli import tables
from cli.agents import node_at
from cli.looking import rows
from cli.reach import OK, REFUSED, USAGE, Options, fail, leave, show, with_fleet
from llmgw.node_orders import NodesAdd
from llmgw.order import Order
from llmgw.orders import ORDERS

GROUPS = {"nodes": "Nodes: list, add, remove", "routers": "Routers: list, add, remove"}


def add_to(app: typer.Typer) -> None:
    """Every order; those named `nodes-…` and `routers-…` become commands of a group that lists by itself."""
    groups = {name: typer.Typer(help=text, invoke_without_command=True) for name, text in GROUPS.items()}
    for name, group in groups.items():
        group.callback()(_listing(name))
        app.add_typer(group, name=name)
    for name, order in sorted(ORDERS.items()):
        head, _, rest = name.partition("-")
        home, command = (groups[head], rest) if head in groups else (app, name)
        made = add_node if name == NodesAdd.name else _command(order)
        home.command(command, help=order.description)(made)


def add_node(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="Base URL of its agent")],
    id_: Annotated[str | None, typer.Option("--id", help="Its id; asked from the agent when left out")] = None,
    pool: Annotated[str | None, typer.Option(help="The pool it belongs to")] = None,
    zone: Annotated[str | None, typer.Option(help="Failure domain: rack, room")] = None,
    labels: Annotated[str | None, typer.Option(help="A=B,C=D")] = None,
) -> None:
    """By URL alone: the agent itself says which node it is."""
    options: Options = context.find_root().obj
    given = {"id": id_ or node_at(url, options.token_file), "url": url, "pool": pool, "zone": zone, "labels": labels}
    fields = {name: _value(name, value) for name, value in given.items() if value is not None}
    leave(with_fleet(options, lambda fleet: _give(options, fleet, NodesAdd.name, fields)))


def _command(order: type[Order]) -> Callable[..., None]:
    """A function whose parameters are the order's fields: required ones are arguments in order, the others options."""
    parameters = [inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
    parameters += [_parameter(name, info) for name, info in order.model_fields.items()]

    def run(**given: Any) -> None:
        context: typer.Context = given.pop("context")
        options: Options = context.find_root().obj
        fields = {name: _value(name, value) for name, value in given.items() if value not in (None, [])}
        leave(with_fleet(options, lambda fleet: _give(options, fleet, order.name, fields)))

    # How typer reads a command.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _parameter(name: str, info: FieldInfo) -> inspect.Parameter:
    kind = _plain(info.annotation)
    flag = f"--{name.replace('_', '-')}"
    if info.is_required():
        return _of(name, Annotated[kind, typer.Argument(help=info.description)], inspect.Parameter.empty)
    if kind is bool:
        return _of(name, Annotated[bool, typer.Option(flag, help=info.description)], False)
    return _of(name, Annotated[kind | None, typer.Option(flag, help=info.description)], None)


def _of(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _plain(annotation: Any) -> Any:
    """The command line's type for a field's: text, number, flag, or a list of texts."""
    if typing.get_origin(annotation) is Annotated:
        return _plain(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return _plain(next(a for a in typing.get_args(annotation) if a is not type(None)))
    if typing.get_origin(annotation) is tuple:
        return list[str]
    return annotation if annotation in (int, float, bool) else str


def _value(field: str, value: Any) -> Any:
    """Labels are given as JSON, or as A=B,C=D; anything else is wrong usage."""
    if field != "labels" or not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.startswith("{") else dict(pair.split("=", 1) for pair in value.split(","))
    except ValueError:
        fail(USAGE, f"--labels takes A=B,C=D or a JSON object, not {value[:100]!r}")


async def _give(options: Options, fleet: Any, name: str, fields: dict[str, Any]) -> int:
    verdict = await fleet.order(name, fields)
    if options.output == "json":
        print(json.dumps(verdict.model_dump(mode="json"), indent=2))
    else:
        print(f"{verdict.judgement}: {verdict.text}")
        for line in (*verdict.problems, *(f"warning: {w}" for w in verdict.warnings)):
            print(f"  {line}")
    return OK if verdict.judgement in ("accepted", "unchanged") else REFUSED


def _listing(group: str) -> Callable[[typer.Context], None]:
    def listing(context: typer.Context) -> None:
        if context.invoked_subcommand is not None:
            return
        options: Options = context.find_root().obj
        if group == "nodes":
            show(options, rows(options, "nodes", "nodes"), tables.nodes)
        else:
            show(options, with_fleet(options, lambda fleet: fleet.query("status"))["routers"], tables.routers)
        leave(OK)

    return listing
