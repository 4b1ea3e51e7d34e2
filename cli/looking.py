"""Commands that look at a fleet: status, listings, explanations. They change nothing."""

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from cli.asking import ask
from cli.failures import REFUSED, CommandError
from cli.look import Watch, run
from cli.output import AsJson, AsYaml, Form, form_of, show
from cli.outside import Session
from cli.teaching import told

PANEL = "Look"

LISTED: Mapping[str, str] = {
    "models": "List models: state, ready and wanted replicas, what they wait for.",
    "replicas": "List replicas: state and since when, node, profile, why.",
    "weights": "List weights on the nodes' disks: size, whether complete, which models need them.",
    "endpoints": "Show what routers are told: models, aliases in force, endpoints.",
}
"""Listing commands beside `nodes`, `devices` and `routers`, which are groups; what they show is in `cli.listings`."""


def add_to(app: typer.Typer) -> None:
    app.command("status", help=told(status), rich_help_panel=PANEL)(status)
    for name, text in LISTED.items():
        app.command(name, help=text, rich_help_panel=PANEL)(listing(name))
    app.command("explain", help=told(explain), rich_help_panel=PANEL)(explain)


def status(context: typer.Context, watch: Watch = False, as_json: AsJson = False, as_yaml: AsYaml = False) -> None:
    """Show the fleet on one page: what it does, what it has, what waits and why, what happened lately."""
    from cli.status_page import STATUS  # late: views take 0.1 s

    run(context, STATUS, form_of(as_json, as_yaml), watch=watch)


def listing(name: str) -> Callable[..., None]:
    """The command that lists what `cli.listings` names so."""

    def command(context: typer.Context, watch: Watch = False, as_json: AsJson = False, as_yaml: AsYaml = False) -> None:
        show_listing(context, name, watch=watch, form=form_of(as_json, as_yaml))

    return command


def show_listing(context: typer.Context, name: str, *, watch: bool, form: Form) -> None:
    from cli.listings import LISTINGS  # late, as above

    run(context, LISTINGS[name], form, watch=watch)


def explain(
    context: typer.Context,
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SUBJECT",
            help="A model (name or alias), replica, node or router; or KIND/NAME, such as node/gpu-07.",
        ),
    ],
    as_json: AsJson = False,
    as_yaml: AsYaml = False,
) -> None:
    """Explain why it is so: what is wanted, what is there, what waits for what and until when, what would change it.

    Ends with 1 when nothing is known of the subject.
    """
    from cli.explanation import explanation_page  # late, as above
    from llmgw import views

    session: Session = context.obj
    found = ask(session, lambda plane: plane.one("explain", views.Explanation, subject))
    form = form_of(as_json, as_yaml)
    if form is Form.PAGE and not found.known:
        raise CommandError(REFUSED, *found.sentences)
    show(found, form, lambda value: value.model_dump(mode="json"), explanation_page)
    if not found.known:
        raise typer.Exit(REFUSED)
