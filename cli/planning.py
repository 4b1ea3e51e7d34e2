"""`llmgw plan`: what a catalog would lead to, by the deciding itself on a copy of the world. Changes nothing."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.asking import Plane, ask
from cli.failures import CHANGES, REFUSED, CommandError
from cli.output import AsJson, AsYaml, form_of, show, warn
from cli.outside import Session
from cli.versions import catalog_of

if TYPE_CHECKING:  # late, for a quick `llmgw --help`
    from llmgw.foresight import Foresight
    from llmgw.snapshot import Snapshot

READINGS = 4
"""How often the world is read anew when it changes while it is read."""

ExitCode = Annotated[bool, typer.Option("--exit-code", help=f"End with {CHANGES} when there is something to do.")]


def plan(
    context: typer.Context,
    catalog: Annotated[
        str, typer.Argument(metavar="FILE", help="A catalog, - for standard input, or the number of a kept catalog.")
    ],
    allow_removals: Annotated[
        bool, typer.Option("--allow-removals", help="Confirm that many running models leave.")
    ] = False,
    exit_code: ExitCode = False,
    as_json: AsJson = False,
    as_yaml: AsYaml = False,
) -> None:
    """Show what a catalog would lead to: starts, stops, moves, evictions, downtime, weights to fetch. Changes nothing.

    The plane's own deciding runs here, on a copy of what the fleet knows, until nothing is left to do. The hash names
    that world and that catalog: `llmgw apply FILE --plan HASH` is refused when either is another by then. Ends with 1
    when the catalog would be refused or held.
    """
    from cli.plan_page import plan_page  # late: deciding takes 0.3 s to import

    session: Session = context.obj
    found = ask(session, lambda plane: _foreseen(plane, catalog, allow_removals))
    verb = "rollback" if catalog.isdecimal() else "apply"
    command = f"llmgw {verb} {catalog}" + (" --allow-removals" if allow_removals else "")
    show(found, form_of(as_json, as_yaml), lambda f: f.model_dump(mode="json"), lambda f: plan_page(f, command))
    if found.judgement not in ("accepted", "unchanged"):
        raise typer.Exit(REFUSED)
    if exit_code and not (found.is_empty and found.judgement == "unchanged"):
        raise typer.Exit(CHANGES)


async def _foreseen(plane: Plane, given: str, allow_removals: bool) -> "Foresight":
    raw, _ = await catalog_of(plane, given)
    return await foreseen(plane, {**raw, "allow_removals": True} if allow_removals else raw)


async def foreseen(plane: Plane, raw: Mapping[str, Any]) -> "Foresight":
    """What `raw` leads to in the fleet as it is now."""
    from llmgw.foresight import foresee  # late, as above

    copy = await _snapshot(plane)
    if copy.unreadable:
        told = (f"{what}: {why}" for what, why in list(copy.unreadable.items())[:5])
        warn("warning: not all that the fleet knows is understood here, so the plan may be wrong:", *told)
    return foresee(copy.world, raw, time.time())


async def _snapshot(plane: Plane) -> "Snapshot":
    """The world as it was at one moment; with a warning when it never stood still."""
    from llmgw import views  # late, as above
    from llmgw.snapshot import snapshot

    for _ in range(READINGS):
        carried = await plane.raw("carried")
        if "moment" not in carried:
            raise CommandError(REFUSED, "the fleet's workers are of a version that cannot be asked for plans")
        pages = await plane.pages("reports", views.ReportsPage)
        if {page.moment for page in pages} == {carried["moment"]}:
            break
    else:
        warn("warning: the fleet changes all the time; the plan is of a picture that is not of one moment")
    return snapshot(carried, (row for page in pages for row in page.reports))
