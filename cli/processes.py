"""Commands that become another process: worker, agent, router, dev. Their flags are their own, passed on unchanged."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import typer

from cli.outside import Session

PANEL = "Run"


class Process(NamedTuple):
    module: str
    help: str


PROCESSES: Mapping[str, Process] = {
    "dev": Process(
        "workers.devstack.main", "Run a whole fleet on this machine: Temporal, worker, agents, router, real engines."
    ),
    "worker": Process("workers.main", "Run a control worker: decides for a fleet, tells its agents and routers."),
    "agent": Process("agent.main", "Run this machine's node agent: starts, watches and stops engines."),
    "router": Process("router.main", "Run the router: OpenAI-compatible, sends requests to ready endpoints."),
}

PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def add_to(app: typer.Typer) -> None:
    for name, process in PROCESSES.items():
        text = f"{process.help} Flags: `llmgw {name} --help`."
        command = app.command(name, help=text, rich_help_panel=PANEL, add_help_option=False, context_settings=PASSED_ON)
        command(_become(process))


def _become(process: Process) -> Callable[[typer.Context], None]:
    def start(context: typer.Context) -> None:
        session: Session = context.obj
        session.outside.start([sys.executable, *_isolation(), "-m", process.module, *context.args])

    return start


def _isolation() -> list[str]:
    """Keeps a folder named `workers` or `agent` in the current directory from being imported instead of ours."""
    ours = Path(__file__).parent.parent
    return [] if Path.cwd() == ours else ["-P"]
