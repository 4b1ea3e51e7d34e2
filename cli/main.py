"""`llmgw`: the operator's command. Starts processes by exec, and talks to fleets through Temporal.

Imports neither Temporal's SDK nor views before a command needs them: help and completion must be quick.
"""

import itertools
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cli import catalogs, importing, looking, ordering, planning, processes, versions
from cli.applying import apply
from cli.doctor import doctor
from cli.events import events
from cli.failures import INTERRUPTED, REFUSED, USAGE, CommandError
from cli.logs import logs
from cli.output import warn
from cli.outside import Outside, Session, Target
from cli.teaching import told
from cli.timeline import timeline

FLEET = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
TRACEBACK = "LLMGW_TRACEBACK"
"""Set to anything: a mistake of ours ends with its traceback."""


class Commands(TyperGroup):
    """The command's own group: global options may stand anywhere, and whatever fails ends with sentences."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        valued = {flag for p in self.params for flag in p.opts if not getattr(p, "is_flag", False)}
        return super().parse_args(ctx, arranged(args, valued, processes.PROCESSES))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CommandError as end:
            warn(*(s if s.startswith("  ") else f"llmgw: {s}" for s in end.sentences))
            raise typer.Exit(end.code) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except typer.BadParameter as error:
            from cli.wording import plain  # late: only a mistake needs it

            error.message = plain(error.message)
            raise
        except Exception as error:
            if os.environ.get(TRACEBACK) or type(error).__module__.startswith(("typer", "click")):
                raise
            if isinstance(error, BrokenPipeError):
                raise  # whoever read the output has enough of it
            text = f"a mistake of ours: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
            warn(f"llmgw: {text} (with {TRACEBACK}=1 its traceback is shown; please report it)")
            raise typer.Exit(REFUSED) from None


def arranged(args: Sequence[str], valued: Collection[str], apart: Collection[str]) -> list[str]:
    """`args` with the options named in `valued`, and their values, first; `FORMS` given before the command, last.

    Commands in `apart` have options of their own: theirs follow the command as they were, those before it included.
    `help COMMAND` is `COMMAND --help`.
    """
    front: list[str] = []
    rest: list[str] = []
    forms: list[str] = []
    left = iter(args)
    for arg in left:
        if arg == "--":
            return [*front, *rest, *forms, arg, *left]
        if arg.partition("=")[0] in valued:
            front += [arg] if "=" in arg else [arg, *itertools.islice(left, 1)]
        elif arg in apart and not rest:
            return [arg, *front, *forms, *left]
        elif arg in FORMS and not rest:
            forms.append(arg)
        else:
            rest.append(arg)
    if rest[:1] == ["help"]:
        rest = [*rest[1:], "--help"]
    return [*front, *rest, *forms]


FORMS = ("--json", "--yaml")

app = typer.Typer(
    cls=Commands,
    name="llmgw",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done; 1 refused, or problems found; 2 wrong usage, or a file that cannot be read; 3 Temporal "
    "or the fleet not reached; 4 no answer, or not there, in time; 5 differences, where asked for by --exit-code.",
)

REACH = "Which fleet, and how it is reached (anywhere on the line)"


def _version(asked: bool) -> None:
    if not asked:
        return
    try:
        print(f"llmgw {version('llmgw')}")
    except PackageNotFoundError:
        print("llmgw, not installed: run from its folder")
    raise typer.Exit


def _fleet(name: str) -> str:
    if re.fullmatch(FLEET, name) is None:
        raise typer.BadParameter(f"{name!r} is no name: use 1 to 63 letters, digits, dots, dashes and underscores")
    return name


@app.callback()
def llmgw(
    context: typer.Context,
    fleet: Annotated[
        str,
        typer.Option(envvar="LLMGW_FLEET", callback=_fleet, metavar="NAME", help="The fleet.", rich_help_panel=REACH),
    ] = "default",
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Temporal's address [TEMPORAL_ADDRESS].", rich_help_panel=REACH),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Temporal namespace [TEMPORAL_NAMESPACE].", rich_help_panel=REACH),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Temporal client profile [TEMPORAL_PROFILE].", rich_help_panel=REACH),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Temporal API key; better as [TEMPORAL_API_KEY].", rich_help_panel=REACH),
    ] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Authority of Temporal's certificate.", rich_help_panel=REACH)
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Client certificate, with --tls-key.", rich_help_panel=REACH)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Key of the client certificate.", rich_help_panel=REACH)
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="LLMGW_TOKEN_FILE", metavar="FILE", help="Bearer token for agents (logs).", rich_help_panel=REACH
        ),
    ] = None,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Control plane for self-hosted LLM fleets.

    Try `llmgw dev`: a whole fleet on this machine. Then `apply` a catalog, look at `status`, and `explain` why.
    """
    del show_version
    outside = context.obj if isinstance(context.obj, Outside) else Outside()
    target = Target(fleet, profile, address, namespace, api_key, tls_ca, tls_cert, tls_key, token_file)
    context.obj = Session(outside, target)


processes.add_to(app)
CATALOG_COMMANDS: Mapping[str, Callable[..., None]] = {
    "validate": catalogs.validate,
    "plan": planning.plan,
    "apply": apply,
    "diff": versions.diff,
    "history": versions.history,
    "show": versions.show_generation,
    "rollback": versions.rollback,
    "import": importing.import_file,
    "export": importing.export,
    "schema": catalogs.schema,
}
for _name, _command in CATALOG_COMMANDS.items():
    app.command(_name, help=told(_command), rich_help_panel="Catalog")(_command)
looking.add_to(app)
app.command("events", help=told(events), rich_help_panel=looking.PANEL)(events)
app.command("logs", help=told(logs), rich_help_panel=looking.PANEL)(logs)
app.command("doctor", help=told(doctor), rich_help_panel=looking.PANEL)(doctor)
app.command("timeline", help=told(timeline), rich_help_panel=looking.PANEL)(timeline)
ordering.add_to(app)


def main() -> None:
    """Run, and end at once: Temporal's native runtime aborts in about half of all ordinary exits."""
    code: object = 0
    try:
        app(prog_name="llmgw")
    except SystemExit as end:
        code = end.code
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = REFUSED
    os._exit(code if isinstance(code, int) else USAGE if code else 0)


if __name__ == "__main__":
    main()
