"""Earlier catalogs: `history`, `show`, `diff` and `rollback`. The fleet keeps the last ten different ones."""

import base64
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.applying import AllowRemovals, Plan, Timeout, Wait, put_in_force
from cli.asking import Plane, ask
from cli.catalogs import checked
from cli.failures import CHANGES, REFUSED, USAGE, CommandError
from cli.look import Look, Watch, run
from cli.output import AsJson, AsYaml, Form, form_of, show, text_of
from cli.outside import Session

if TYPE_CHECKING:  # late, for a quick `llmgw --help`
    from llmgw.catalog import Catalog
    from llmgw.diff import Difference

CONFIRMATION = "allow_removals"
"""Was said about another change than the one at hand: it is not taken along."""

Generation = Annotated[
    int, typer.Argument(metavar="GENERATION", min=1, help="Number of a catalog, as `llmgw history` lists them.")
]


def history(context: typer.Context, watch: Watch = False, as_json: AsJson = False, as_yaml: AsYaml = False) -> None:
    """List the catalogs that are kept: the last ten different ones, newest first.

    One that came again, as by `rollback`, is listed under its newest number, with the earlier ones that it also had:
    `show`, `diff`, `plan` and `rollback` take any of them.
    """
    from cli.version_pages import history_page  # late, as above
    from llmgw import views

    look = Look(
        lambda plane: plane.one("history", views.HistoryPage), history_page, lambda h: h.model_dump(mode="json")
    )
    run(context, look, form_of(as_json, as_yaml), watch=watch)


def show_generation(context: typer.Context, generation: Generation, as_json: AsJson = False) -> None:
    """Print one of the kept catalogs, as YAML that `apply` takes."""
    session: Session = context.obj
    raw = ask(session, lambda plane: kept_catalog(plane, generation))
    print(text_of(raw, Form.JSON if as_json else Form.YAML))


def diff(
    context: typer.Context,
    first: Annotated[
        str,
        typer.Argument(
            metavar="CATALOG",
            help="The old one: a file, or the number of a kept catalog. Alone it is the new one, and the old one is "
            "what is in force.",
        ),
    ],
    second: Annotated[
        str | None, typer.Argument(metavar="CATALOG", help="The new one: a file, or the number of a kept catalog.")
    ] = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help=f"End with {CHANGES} when they differ.")] = False,
    as_json: AsJson = False,
    as_yaml: AsYaml = False,
) -> None:
    """Show what a new catalog changes in an old one, always from old to new: `+` is only in the new one.

    Each is a file or a kept generation; with one alone, what it would change in the catalog in force. Two files need no
    fleet. Only what has an effect counts: order and form of writing do not. `plan` shows what it leads to.
    """
    from cli.version_pages import diff_page  # late, as above
    from llmgw.diff import differences

    form = form_of(as_json, as_yaml)
    if (first, second) == ("-", "-"):
        raise CommandError(USAGE, "standard input can be read once: give one of the two as a file or a number")
    if second is None or first.isdecimal() or second.isdecimal():
        found = ask(context.obj, lambda plane: _differences(plane, first, second))
    else:
        found = differences(checked(Path(first))[1], checked(Path(second))[1])
    old, new = ("the catalog in force", first) if second is None else (first, second)
    head = f"{_said(old)} → {_said(new)}"
    show(found, form, lambda some: [_plain(d) for d in some], lambda some: diff_page(some, head))
    if exit_code and found:
        raise typer.Exit(CHANGES)


def rollback(
    context: typer.Context,
    generation: Generation,
    wait: Wait = True,
    timeout: Timeout = 600.0,
    allow_removals: AllowRemovals = False,
    plan: Plan = "",
    as_json: AsJson = False,
    as_yaml: AsYaml = False,
) -> None:
    """Put a kept catalog in force again, as a new generation, and wait until the fleet is where it wants it.

    It is judged like any other: `llmgw plan` and `diff` take the same number. Ends like `apply`.
    """
    session: Session = context.obj
    raw, catalog = ask(session, lambda plane: _kept(plane, generation))
    put_in_force(session, raw, catalog, form_of(as_json, as_yaml), wait, timeout, allow_removals, plan)


async def kept_catalog(plane: Plane, generation: int = 0) -> dict[str, Any]:
    """A kept catalog as it was sent; 0: the one in force. `CommandError` when it is not kept."""
    from llmgw import views  # late, as above

    parts = await plane.pages("catalog", views.CatalogPart, generation)
    if not all(part.known for part in parts) or len({part.digest for part in parts}) != 1:
        kept = ", ".join(str(number) for number in reversed(parts[0].kept)) or "none yet"
        what = f"generation {generation}" if generation else "the catalog in force"
        raise CommandError(REFUSED, f"{what} is not kept; kept are: {kept}. `llmgw history` lists them")
    raw: dict[str, Any] = json.loads(zlib.decompress(b"".join(base64.b64decode(part.part) for part in parts)))
    return {key: value for key, value in raw.items() if key != CONFIRMATION}


async def _kept(plane: Plane, generation: int) -> tuple[dict[str, Any], "Catalog"]:
    raw = await kept_catalog(plane, generation)
    return raw, understood(raw, f"generation {generation}")


def understood(raw: Mapping[str, Any], name: str) -> "Catalog":
    """The catalog that `raw` means. `CommandError` when this version no longer takes it."""
    from llmgw.catalog import MAX_COMPRESSED_BYTES  # late, as above
    from llmgw.validation import check

    found = check(raw, limit_bytes=MAX_COMPRESSED_BYTES)
    if found.catalog is None:
        said = (f"  {problem.sentence()}" for problem in found.problems)
        raise CommandError(REFUSED, f"{name} is no longer a valid catalog:", *said)
    return found.catalog


async def catalog_of(plane: Plane, given: str) -> tuple[dict[str, Any], "Catalog"]:
    """What `given` names: the number of a kept catalog, else a file (`./3` where a file has such a name)."""
    if given.isdecimal():
        return await _kept(plane, int(given))
    return checked(Path(given))


def _said(given: str) -> str:
    """A catalog as the head of a difference names it."""
    return f"generation {given}" if given.isdecimal() else "standard input" if given == "-" else given


async def _differences(plane: Plane, first: str, second: str | None) -> tuple["Difference", ...]:
    from llmgw.diff import differences  # late, as above

    _, one = await catalog_of(plane, first)
    if second is not None:
        _, other = await catalog_of(plane, second)
        return differences(one, other)
    return differences(await _in_force(plane), one)


async def _in_force(plane: Plane) -> "Catalog | None":
    """None before there is any."""
    from llmgw import views  # late, as above

    if not (await plane.one("status", views.Status)).digest:
        return None
    return understood(await kept_catalog(plane), "the catalog in force")


def _plain(difference: "Difference") -> dict[str, str]:
    names = ("change", "kind", "name", "field", "before", "after")
    return {name: str(getattr(difference, name)) for name in names}
