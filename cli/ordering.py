"""Orders: one command per row of `llmgw.orders.ORDERS`, made from the order's fields.

Required fields are arguments in their order, the others options; a field in seconds takes a duration. `SHAPES` says
where an order reads better otherwise. Orders named `nodes-…` and `routers-…` belong to groups, which list by
themselves.
"""

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from pydantic.fields import FieldInfo

from cli.agents import node_at
from cli.asking import Plane, ask
from cli.durations import METAVAR, seconds
from cli.failures import OK, REFUSED, USAGE, CommandError
from cli.look import Watch
from cli.looking import PANEL as LOOK
from cli.looking import show_listing
from cli.output import AsJson, AsYaml, Form, form_of, text_of, warn
from cli.outside import Session
from cli.releasing import release
from cli.restoring import restore
from cli.teaching import told
from cli.verdicts import is_taken, print_verdict
from llmgw.order import Order
from llmgw.orders import ORDERS, parse_order

PANEL = "Change"
GROUPS: Mapping[str, str] = {
    "nodes": "List nodes; add, remove, confirm and release them.",
    "devices": "List devices: kind, memory, which replica holds them; take quarantined ones into use again.",
    "routers": "List routers; add and remove those that stand beside the catalog.",
}

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """How an order's command differs from what its fields alone would make."""

    arguments: tuple[str, ...] = ()
    """Fields given without names, in this order; none = the required ones."""
    asked: Mapping[str, Callable[[Session, Fields], Any]] = field(default_factory=dict)
    """Required fields that may be left out, and who is asked then."""
    note: str = ""
    """Said in the help, below the order's own line."""
    also: Mapping[str, str] = field(default_factory=dict)
    """A second flag for a field."""


SHAPES: Mapping[str, Shape] = {
    "nodes-add": Shape(
        ("url",),
        asked={"id": lambda session, given: node_at(session, given["url"])},
        note="Without --id the agent at that URL is asked which node it is.",
    ),
    "routers-add": Shape(("url",)),
    "scale": Shape(("model", "replicas"), also={"for_s": "--until"}),
    "pause": Shape(also={"for_s": "--until"}),
    "pull": Shape(note="The node fetches in the background; its answer in `llmgw status` says that it has begun."),
    "remove-weights": Shape(note="The node answers for each path; `llmgw status` shows what it answered."),
}


def add_to(app: typer.Typer) -> None:
    """Every order, and the groups."""
    groups = {name: typer.Typer(help=text, invoke_without_command=True) for name, text in GROUPS.items()}
    for name, group in groups.items():
        group.callback()(_listing(name))
        app.add_typer(group, name=name, rich_help_panel=LOOK)
    for name, order in ORDERS.items():
        head, _, rest = name.partition("-")
        home, command = (groups[head], rest) if head in groups else (app, name)
        text = "\n\n".join(part for part in (f"{order.description}.", SHAPES.get(name, Shape()).note) if part)
        home.command(command, help=text, rich_help_panel=PANEL if home is app else None)(_command(order))
    groups["nodes"].command("release", help=told(release))(release)
    groups["devices"].command("restore", help=told(restore))(restore)


def _listing(name: str) -> Callable[..., None]:
    def listing(context: typer.Context, watch: Watch = False, as_json: AsJson = False, as_yaml: AsYaml = False) -> None:
        if context.invoked_subcommand is None:
            show_listing(context, name, watch=watch, form=form_of(as_json, as_yaml))

    return listing


def _command(order: type[Order]) -> Callable[..., None]:
    shape = SHAPES.get(order.name, Shape())

    def run(context: typer.Context, as_json: bool, as_yaml: bool, **given: Any) -> None:
        session: Session = context.obj
        fields = {name: value for name, value in given.items() if value not in (None, [])}
        for name in order.model_fields.keys() & fields.keys():
            if _kind(order.model_fields[name]) is dict:
                fields[name] = dict(_pair(name, text) for text in fields[name])
        for name, answer in shape.asked.items():
            if name not in fields:
                fields[name] = answer(session, fields)
        give(session, order.name, fields, form_of(as_json, as_yaml))

    # How typer reads a command.
    run.__signature__ = inspect.Signature(_parameters(order, shape))  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in _parameters(order, shape)}
    return run


def _pair(field_name: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise CommandError(USAGE, f"--{field_name.removesuffix('s')}: {text!r} is not KEY=VALUE")
    return key, value


def give(session: Session, name: str, fields: Fields, form: Form) -> None:
    """Give an order and tell the verdict. What is wrong with it by itself is said without asking the fleet."""
    parsed = parse_order(name, [fields])
    if not isinstance(parsed, Order):
        raise CommandError(USAGE, *(p for p in parsed if not p.startswith("For example")))
    verdict = ask(session, lambda plane: plane.order(name, fields))
    if form is Form.PAGE:
        print_verdict(verdict)
        if is_taken(verdict) and name in STARTING:
            ask(session, lambda plane: _tell_what_waits(plane, str(fields.get("model") or fields.get("target"))))
    else:
        print(text_of(verdict.model_dump(mode="json"), form))
    raise typer.Exit(OK if is_taken(verdict) else REFUSED)


STARTING = ("wake", "restart", "scale")
"""Orders that may start something: what lacks a place says so at once."""


async def _tell_what_waits(plane: Plane, name: str) -> None:
    from cli.listings import model_rows  # late, for a quick `llmgw --help`
    from llmgw.showing.phases import LASTING

    for row in await model_rows(plane):
        is_meant = name in (row.name, *row.aliases)
        if is_meant and row.waiting is not None and row.waiting.code in LASTING:
            warn(f"{row.name} waits: {row.waiting.text}", f"  `llmgw explain {row.name}` says more")


# --- from fields to parameters -------------------------------------------------------------------------------------


def _parameters(order: type[Order], shape: Shape) -> list[inspect.Parameter]:
    fields = order.model_fields
    arguments = shape.arguments or tuple(name for name, info in fields.items() if info.is_required())
    options = (name for name in fields if name not in arguments)
    return [
        _parameter("context", typer.Context),
        *(_given(name, fields[name], typer.Argument, fields[name].is_required()) for name in arguments),
        *(_given(n, fields[n], typer.Option, _must(n, fields[n], shape), shape.also.get(n)) for n in options),
        _parameter("as_json", AsJson, False),
        _parameter("as_yaml", AsYaml, False),
    ]


def _must(name: str, info: FieldInfo, shape: Shape) -> bool:
    return info.is_required() and name not in shape.asked


def _given(
    name: str, info: FieldInfo, form: Callable[..., Any], required: bool, also: str | None = None
) -> inspect.Parameter:
    """The parameter for one field: an argument or an option, whichever `form` makes. `also`: a second flag."""
    kind = _kind(info)
    annotation: Any = list[str] if kind in (dict, tuple) else kind
    flag = f"--{name.removesuffix('_s').removesuffix('s' if kind is dict else '').replace('_', '-')}"
    metavar = METAVAR if name.endswith("_s") else "KEY=VALUE" if kind is dict else None
    told: dict[str, Any] = {"help": info.description, "metavar": metavar}
    if name.endswith("_s"):
        told |= {"parser": seconds, "help": f"{info.description} For example 10m or 18:00."}
    elif form is typer.Argument:
        told["metavar"] = name.upper()
    flags = (flag, also) if also is not None else (flag,)
    made = form(*flags, **told) if form is typer.Option else form(**told)
    if required:
        return _parameter(name, Annotated[annotation, made])
    if kind is bool:
        return _parameter(name, Annotated[bool, made], False)
    return _parameter(name, Annotated[annotation | None, made], None)


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _kind(info: FieldInfo) -> type:
    """What a field holds, without bounds and None: bool, int, float, str, tuple or dict."""
    return _bare(info.annotation)


def _bare(annotation: Any) -> type:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _bare(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return _bare(next(a for a in typing.get_args(annotation) if a is not type(None)))
    kind: type = origin or annotation
    return kind if kind in (bool, int, float, tuple, dict) else str
