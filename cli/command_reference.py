"""The reference page of the command line, made from the commands: `python -m cli.command_reference > docs/cli.md`.

A test holds the committed page to what this makes.
"""

import sys
from collections.abc import Iterator
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from cli.main import app
from cli.processes import PROCESSES

INTRODUCTION = """# The command line

`llmgw --help` and `llmgw COMMAND --help` tell the same as this page.

* **Which fleet.** The options in the first table may stand anywhere on the line: `llmgw status --fleet prod` and
  `llmgw --fleet prod status` are one. Temporal's address, namespace and credentials come from its own client profile
  and variables (`TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, `TEMPORAL_API_KEY`, `TEMPORAL_TLS_*`, `temporal.toml`)
  where no option is given.
* **Output.** Tables fit the terminal; from 120 columns on they show everything. Piped, each row is one line without
  colours (`COLUMNS` sets another width; `NO_COLOR` is heeded). `--json` and `--yaml` print the same for programs, with
  ages and durations in seconds. What is wrong, or worth a look, goes to standard error.
* **Durations** are `90` (seconds), `90s`, `10m`, `1h30m` or `2d`; or the time at which they end, by your clock:
  `18:00`, `2027-01-31T18:00`.
* **Completion.** `llmgw --install-completion` installs it for your shell.

```console
$ llmgw status --watch                  # what is going on
$ llmgw explain qwen3-32b               # why it is so, what it waits for and until when
$ llmgw logs qwen3-32b --follow         # what its engine says
$ llmgw drain gpu-07 --deadline 10m     # empty a node; `uncordon gpu-07` takes it back
$ llmgw plan catalog.yaml               # what it would lead to, and the hash for `apply --plan`
$ llmgw apply catalog.yaml --timeout 15m
$ llmgw history; llmgw diff 3; llmgw rollback 3
```

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | refused, or problems were found; the sentences say which |
| 2 | wrong usage, or a file that cannot be read |
| 3 | Temporal or the fleet is not reached |
| 4 | no answer in time, or not where the catalog wants it in time |
| 5 | there are differences, where `--exit-code` asks for that |
| 130 | ended by Ctrl-C |

<!-- Made by `python -m cli.command_reference > docs/cli.md`: change the commands' own help instead. -->
"""

PROCESS_NOTE = "Its flags are its own: `llmgw {name} --help` tells them{page}.\n"


def page_text() -> str:
    """The whole page as Markdown."""
    root = get_command(app)
    head = f"\n## llmgw\n\n{_text(root)}\n\n{_options(root)}"
    return INTRODUCTION + head + "".join(_section(*found) for found in commands(root))


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below `group`, groups too, with the words that call it."""
    for name, command in group.commands.items():
        yield (*words, name), command
        if isinstance(command, TyperGroup):
            yield from commands(command, (*words, name))


def _section(words: tuple[str, ...], command: Any) -> str:
    name = " ".join(words)
    given = " ".join(_usage(p) for p in command.params if p.param_type_name == "argument")
    head = f"\n## llmgw {name}\n\n`{f'llmgw {name} {given}'.strip()}`\n\n{_text(command)}\n"
    if name in PROCESSES:
        page = "" if name == "dev" else ", and [processes.md](processes.md)"
        return f"{head}\n{PROCESS_NOTE.format(name=name, page=page)}"
    return f"{head}\n{_options(command)}"


def _usage(argument: Any) -> str:
    name = f"{argument.metavar}{'…' if argument.nargs == -1 else ''}"
    return name if argument.required else f"[{name}]"


def _text(command: Any) -> str:
    text, _, _ = (command.help or "").partition(" Flags: ")
    return text.strip()


def _options(command: Any) -> str:
    rows = "".join(_row(parameter) for parameter in command.params)
    return f"| given | meaning |\n|---|---|\n{rows}" if rows else ""


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        given = f"`{_usage(parameter)}`"
    else:
        value = "" if parameter.is_flag else f" {_metavar(parameter)}"
        given = ", ".join(f"`{flag}{value}`" for flag in (*parameter.opts, *parameter.secondary_opts))
    notes = [parameter.help or "", *_notes(parameter)]
    return f"| {given} | {' '.join(note for note in notes if note)} |\n"


def _metavar(option: Any) -> str:
    return str(option.metavar or option.name.upper())


def _notes(parameter: Any) -> Iterator[str]:
    default = parameter.show_default if isinstance(parameter.show_default, str) else parameter.default
    if default not in (None, False, True, (), "") and not callable(default):
        yield f"Default: {default}."
    if parameter.envvar:
        yield f"Variable: {parameter.envvar}."


if __name__ == "__main__":
    sys.stdout.write(page_text())
