"""`llmgw`: the operator's command. Starts processes by exec and talks to fleets through Temporal.

Exit codes: 0 done, 1 refused or problems found, 2 wrong usage, 3 Temporal or the fleet is not reached, 4 timed out.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cli import catalogs, looking, ordering
from cli.reach import Options

app = typer.Typer(
    name="llmgw",
    no_args_is_help=True,
    help="Control plane for self-hosted LLM fleets. Try `llmgw dev` for a whole fleet on this machine.",
    epilog="Exit codes: 0 done, 1 refused or problems found, 2 wrong usage, 3 not reached, 4 timed out.",
    pretty_exceptions_enable=False,
)

PROCESSES = {
    "dev": ("workers.devstack.main", "Run a whole fleet on this machine: Temporal, worker, agents, router, engines"),
    "worker": ("workers.main", "Run a control worker for a fleet"),
    "agent": ("agent.main", "Run the node agent of this machine"),
    "router": ("router.main", "Run the reference router"),
}


def _output(json_: bool, yaml_: bool) -> str:
    return "json" if json_ else "yaml" if yaml_ else "table"


@app.callback()
def options(
    context: typer.Context,
    fleet: Annotated[str, typer.Option(envvar="LLMGW_FLEET", help="Name of the fleet")] = "default",
    profile: Annotated[str | None, typer.Option(help="Temporal client profile [TEMPORAL_PROFILE]")] = None,
    address: Annotated[str | None, typer.Option(help="Temporal HOST:PORT [TEMPORAL_ADDRESS]")] = None,
    namespace: Annotated[str | None, typer.Option(help="Temporal namespace [TEMPORAL_NAMESPACE]")] = None,
    api_key: Annotated[str | None, typer.Option(help="Temporal API key [TEMPORAL_API_KEY]")] = None,
    tls_ca: Annotated[Path | None, typer.Option(help="Server CA file")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Client certificate file")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Client key file")] = None,
    token_file: Annotated[Path | None, typer.Option(envvar="LLMGW_TOKEN_FILE", help="Agents' bearer token")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
    yaml_: Annotated[bool, typer.Option("--yaml", help="Print YAML")] = False,
) -> None:
    context.obj = Options(
        fleet, profile, address, namespace, api_key, tls_ca, tls_cert, tls_key, token_file, _output(json_, yaml_)
    )


def _process_command(name: str, module: str, text: str) -> None:
    settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

    @app.command(name, help=f"{text} (flags: llmgw {name} --help)", context_settings=settings, add_help_option=False)
    def start(context: typer.Context) -> None:
        sys.stdout.flush()
        environment = dict(os.environ)
        options: Options = context.obj
        if name == "worker":
            environment.setdefault("LLMGW_FLEET", options.fleet)
        os.execve(sys.executable, [sys.executable, "-m", module, *context.args], environment)  # noqa: S606


for _name, (_module, _text) in PROCESSES.items():
    _process_command(_name, _module, _text)

catalogs.add_to(app)
looking.add_to(app)
ordering.add_to(app)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
