"""Orders: one command per row of `llmgw.orders.ORDERS`, made from its fields. `nodes` and `routers` group theirs."""

import json
from typing import Any

import typer
from pydantic.fields import FieldInfo
from typer import _click as click  # typer brings its own; its groups take no other
from typer.core import TyperGroup

from cli import tables
from cli.looking import rows
from cli.reach import OK, REFUSED, Options, leave, show, with_fleet
from llmgw.order import Order
from llmgw.orders import ORDERS

GROUPS = {"nodes": "Nodes: list, add, remove", "routers": "Routers: list, add, remove"}


def add_to(app: typer.Typer) -> None:
    """Every order; those named `nodes-…` and `routers-…` become commands of a group that lists by itself."""
    for group, text in GROUPS.items():
        made = typer.Typer(help=text, invoke_without_command=True, cls=_orders_of(group))
        made.callback()(_listing(group))
        app.add_typer(made, name=group)
    app.info.cls = _orders_of("")


def _orders_of(group: str) -> type[TyperGroup]:
    """A group that also has the orders of `group` (the ungrouped ones for an empty name)."""

    class WithOrders(TyperGroup):
        def list_commands(self, ctx: click.Context) -> list[str]:
            return [*super().list_commands(ctx), *_names(group)]

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            order = ORDERS.get(f"{group}-{cmd_name}" if group else cmd_name)
            if order is not None and cmd_name in _names(group):
                return _command(cmd_name, order)
            return super().get_command(ctx, cmd_name)

    return WithOrders


def _names(group: str) -> list[str]:
    if group:
        return sorted(name.removeprefix(f"{group}-") for name in ORDERS if name.startswith(f"{group}-"))
    return sorted(name for name in ORDERS if name.partition("-")[0] not in GROUPS)


def _command(name: str, order: type[Order]) -> click.Command:
    """Required fields are arguments in order, the others options."""
    parameters: list[click.Parameter] = []
    for field, info in order.model_fields.items():
        many = str(info.annotation).startswith("tuple") or "tuple[" in str(info.annotation)
        if info.is_required():
            parameters.append(click.Argument([field], nargs=-1 if many else 1, required=True, type=_type(info)))
        elif info.annotation is bool or "bool" in str(info.annotation):
            parameters.append(click.Option([f"--{field.replace('_', '-')}"], is_flag=True, help=info.description))
        else:
            flag = f"--{field.replace('_', '-')}"
            parameters.append(click.Option([flag], default=None, help=info.description, type=_type(info)))

    @click.pass_context
    def run(context: click.Context, /, **given: Any) -> None:
        options: Options = context.find_root().obj
        fields = {k: list(v) if isinstance(v, tuple) else _value(k, v) for k, v in given.items() if v not in (None, ())}
        leave(with_fleet(options, lambda fleet: _give(options, fleet, order.name, fields)))

    return click.Command(name, params=parameters, help=order.description, callback=run)


def _type(info: FieldInfo) -> Any:
    text = str(info.annotation)
    if "int" in text and "str" not in text:
        return click.INT
    return click.FLOAT if "float" in text else click.STRING


def _value(field: str, value: Any) -> Any:
    """Labels are given as JSON, or as A=B,C=D."""
    if field != "labels" or not isinstance(value, str):
        return value
    return json.loads(value) if value.startswith("{") else dict(pair.split("=", 1) for pair in value.split(","))


async def _give(options: Options, fleet: Any, name: str, fields: dict[str, Any]) -> int:
    verdict = await fleet.order(name, fields)
    if options.output == "json":
        print(json.dumps(verdict.model_dump(mode="json"), indent=2))
    else:
        print(f"{verdict.judgement}: {verdict.text}")
        for line in (*verdict.problems, *(f"warning: {w}" for w in verdict.warnings)):
            print(f"  {line}")
    return OK if verdict.judgement in ("accepted", "unchanged") else REFUSED


def _listing(group: str) -> Any:
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
