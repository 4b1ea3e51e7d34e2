"""`llmgw nodes release`: have an agent forget whom it belongs to, so that another fleet may take it."""

from typing import Annotated

import typer

from cli.agents import Identity, identity_at, release_at
from cli.asking import Plane, ask
from cli.failures import REFUSED, USAGE, CommandError
from cli.output import AsJson, AsYaml, Form, form_of, text_of
from cli.outside import Session


def release(
    context: typer.Context,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Id of a node of this fleet, or the URL of an agent.")],
    owner: Annotated[
        str | None,
        typer.Option(metavar="INSTALLATION/FLEET", help="Whom it belongs to now. Without it, that is only told."),
    ] = None,
    as_json: AsJson = False,
    as_yaml: AsYaml = False,
) -> None:
    """Have an agent forget its owner, so that another installation or fleet may command it; engines go on running.

    The agent is asked directly, with the token of --token-file. Ends with 1 when --owner is not whom it belongs to.
    """
    session: Session = context.obj
    form = form_of(as_json, as_yaml)
    if owner is not None and owner.count("/") != 1:
        raise CommandError(USAGE, f"--owner: {owner!r} is not INSTALLATION/FLEET")
    url = node if "://" in node else ask(session, lambda plane: _url(plane, node))
    found = identity_at(session, url)
    if found.owner is None:
        _tell(form, found, False, f"{found.node} belongs to nobody: whoever commands it first has it")
        return
    if owner is None:
        again = f"to have it forget that: llmgw nodes release {node} --owner {found.owner}"
        raise CommandError(REFUSED, f"{found.node} belongs to {found.owner}; {again}")
    release_at(session, url, owner)
    _tell(form, found, True, f"{found.node} no longer belongs to {owner}; the first plane that commands it has it")


async def _url(plane: Plane, node: str) -> str:
    from llmgw import views  # late, for a quick `llmgw --help`

    targets = [t for page in await plane.pages("targets", views.TargetsPage) for t in page.targets]
    url = next((t.url for t in targets if t.id == f"node/{node}"), None)
    if url is None:
        raise CommandError(
            REFUSED, f"there is no node {node}: `llmgw nodes` lists them; of another, give its agent's URL"
        )
    return url


def _tell(form: Form, found: Identity, released: bool, text: str) -> None:
    if form is Form.PAGE:
        print(text)
    else:
        print(text_of({"node": found.node, "owner": found.owner, "released": released}, form))
