"""`llmgw devices restore`: lift the quarantine of a device, at its agent."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli.agents import restore_at
from cli.asking import Plane, ask
from cli.failures import REFUSED, CommandError
from cli.output import AsJson, AsYaml, Form, form_of, text_of
from cli.outside import Session

if TYPE_CHECKING:  # late, for a quick `llmgw --help`
    from llmgw import views


def restore(
    context: typer.Context,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Id of the node.")],
    device: Annotated[str, typer.Argument(metavar="DEVICE", help="Its id, or its index as `llmgw devices` shows it.")],
    as_json: AsJson = False,
    as_yaml: AsYaml = False,
) -> None:
    """Take a quarantined device into use again, once you have looked at it.

    A device is quarantined when its memory does not come back after an engine has ended, or a process outlives KILL.
    The agent is asked directly, with the token of --token-file; it refuses while a process of ours still lives there.
    """
    session: Session = context.obj
    form = form_of(as_json, as_yaml)
    url, id_, why = ask(session, lambda plane: _quarantined(plane, node, device))
    restore_at(session, url, id_)
    if form is Form.PAGE:
        print(f"{id_} on {node} is in use again; it was out of use because of this: {why}")
    else:
        print(text_of({"node": node, "device": id_, "was": why, "restored": True}, form))


async def _quarantined(plane: Plane, node: str, asked: str) -> tuple[str, str, str]:
    """(URL of the agent, id of the device, why it is quarantined)."""
    from cli.listings import node_rows  # late, as above

    found = next((row for row in await node_rows(plane) if row.id == node), None)
    if found is None:
        raise CommandError(REFUSED, f"there is no node {node}: `llmgw nodes` lists them")
    device = _named(found, asked)
    if not device.problem:
        raise CommandError(REFUSED, f"{device.id} on {node} is not out of use: there is nothing to lift")
    return found.url, device.id, device.problem


def _named(node: "views.NodeRow", asked: str) -> "views.DeviceRow":
    for device in node.devices:
        if asked in (device.id, str(device.index)):
            return device
    known = ", ".join(f"{d.index} ({d.id})" for d in node.devices[:8]) or "none"
    raise CommandError(REFUSED, f"{node.id} has no device {asked}; it has: {known}")
