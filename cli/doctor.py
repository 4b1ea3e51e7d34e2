"""`llmgw doctor`: is this machine, and the fleet, as they should be; and if not, what to do."""

import asyncio
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from cli.checkup import Checked, Health, is_sound
from cli.failures import REFUSED
from cli.output import AsJson, AsYaml, form_of, show
from cli.outside import Session


class Half(StrEnum):
    ALL = "all"
    MACHINE = "machine"
    FLEET = "fleet"


def doctor(
    context: typer.Context,
    what: Annotated[
        Half, typer.Argument(metavar="machine|fleet", help="Only this machine, or only the fleet.")
    ] = Half.ALL,
    as_json: AsJson = False,
    as_yaml: AsYaml = False,
) -> None:
    """Check this machine and the fleet, and say how to mend what is wrong.

    The machine: disk, ports for engines, the token file, engines on PATH. The fleet: Temporal, the namespace and its
    search attributes, workers, the workflow, and whether every agent and router is reached, takes our token and keeps
    the same time. Ends with 1 when something is wrong; doubts are only told.
    """
    session: Session = context.obj
    form = form_of(as_json, as_yaml)
    found = _found(session, what)
    show(found, form, _plain, _page)
    if not is_sound(found):
        raise typer.Exit(REFUSED)


def _found(session: Session, what: Half) -> list[Checked]:
    from cli.fleet_checks import fleet_checks  # late, for a quick `llmgw --help`
    from cli.machine_checks import machine_checks

    machine = [] if what is Half.FLEET else list(machine_checks(session.outside.environment))
    fleet = [] if what is Half.MACHINE else asyncio.run(fleet_checks(session))
    return [*machine, *fleet]


def _page(found: list[Checked]) -> RenderableType:
    return Group(*(_line(checked) for checked in found))


_STYLES = {Health.FINE: "green", Health.DOUBT: "yellow", Health.WRONG: "red"}


def _line(checked: Checked) -> Text:
    line = Text.assemble((f"{checked.health:<6}", _STYLES[checked.health]), f"{checked.subject}: {checked.what}")
    return line.append(f"\n      → {checked.mend}", "dim") if checked.mend else line


def _plain(found: list[Checked]) -> object:
    return {
        "sound": is_sound(found),
        "checks": [{"subject": c.subject, "health": str(c.health), "what": c.what, "mend": c.mend} for c in found],
    }
