"""The command line without a fleet: each command teaches, each order has its command, bad files and usage are told."""

import asyncio
import importlib.util
import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner, Result

from cli.main import PROCESSES, app
from cli.reach import OK, REFUSED, USAGE, Options
from llmgw.node_orders import NodesAdd
from llmgw.orders import ORDERS, parse_order
from llmgw.plan import Judgement, Verdict
from llmgw.world import InputKind

ROOT = Path(__file__).parents[2]


def run(*args: str) -> Result:
    return CliRunner().invoke(app, list(args), env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that call it; groups too."""
    if words:
        yield words, command
    if isinstance(command, TyperGroup):
        for name, below in command.commands.items():
            yield from commands(below, (*words, name))


COMMANDS = dict(commands(get_command(app)))
OWN = sorted(words for words in COMMANDS if words[0] not in PROCESSES)


# --- help ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", OWN, ids=" ".join)
def test_every_command_tells_what_it_is_for(words: tuple[str, ...]) -> None:
    told = run(*words, "--help")
    assert told.exit_code == OK
    assert f"llmgw {' '.join(words)}" in told.stdout.replace("root", "llmgw")
    assert (COMMANDS[words].help or "")[:40] in told.stdout


def test_the_first_help_names_every_command_and_the_exit_codes() -> None:
    told = run("--help")
    assert told.exit_code == OK
    assert all(words[0] in told.stdout for words in COMMANDS)
    assert "Exit codes" in told.stdout


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_is_started_by_exec_with_its_own_flags(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def execve(_: str, argv: list[str], environment: Mapping[str, str]) -> None:
        started.append([*argv[1:], environment.get("LLMGW_FLEET", "")])

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.delenv("LLMGW_FLEET", raising=False)
    assert run("--fleet", "prod", name, "--help", "--x", "1").exit_code == OK
    module = PROCESSES[name][0]
    assert started == [["-m", module, "--help", "--x", "1", "prod" if name == "worker" else ""]]
    assert importlib.util.find_spec(module) is not None


def test_the_page_of_commands_names_every_command_with_its_line() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `llmgw ")]
    named = {row.split("`")[1]: row for row in rows}
    assert named.keys() == {f"llmgw {' '.join(words)}" for words in COMMANDS}
    for words, command in COMMANDS.items():
        line = (command.help or "").partition(" (flags:")[0]
        assert line in named[f"llmgw {' '.join(words)}"]


# --- catalogs ------------------------------------------------------------------------------------------------------

BAD = "models:\n  - name: a\n    profiles:\n      - {name: p, engine: vlm}\n  - name: a\n    profiles: []\n"


def test_a_valid_file_is_told_so() -> None:
    done = run("validate", str(ROOT / "examples" / "catalog.yaml"))
    assert done.exit_code == OK
    assert done.stderr.endswith("catalog.yaml: valid, 2 model(s)\n")


def test_every_problem_of_a_bad_file_is_one_line_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    done = run("validate", str(file))
    assert done.exit_code == REFUSED
    lines = [line.removeprefix(f"{file}: ") for line in done.stderr.splitlines()]
    assert [line.partition(":")[0] for line in lines[:-1]] == [
        "models[0].profiles[0].engine (line 4, column 19)",
        "models[1].name (line 5, column 5)",
        "models[1].profiles (line 6, column 5)",
    ]
    assert lines[-1] == "refused, 3 problem(s); nothing was changed"


def test_warnings_are_told_and_accepted(tmp_path: Path) -> None:
    file = tmp_path / "none.json"
    file.write_text('{"models": []}')
    done = run("validate", str(file))
    assert done.exit_code == OK
    assert "warning: models (line 1, column 2): there are no models" in done.stderr


def test_a_file_that_is_no_document_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "tab.yaml"
    file.write_text("models:\n\t- name: a\n")
    done = run("validate", str(file))
    assert done.exit_code == REFUSED
    assert f"{file}: catalog (line 2, column 1)" in done.stderr


def test_a_file_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    done = run("validate", str(tmp_path / "absent.yaml"))
    assert done.exit_code == USAGE
    assert "cannot read" in done.stderr
    assert "No such file" in done.stderr


@pytest.mark.parametrize("words", [("validate",), ("apply",), ("scale",), ("nothing-like-this",), ("drain", "a", "b")])
def test_wrong_usage_has_its_exit_code(words: tuple[str, ...]) -> None:
    assert run(*words).exit_code == USAGE


def test_a_bad_file_is_never_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[object] = []
    monkeypatch.setattr("cli.catalogs.with_fleet", lambda *given: reached.append(given))
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    assert run("apply", str(file)).exit_code == REFUSED
    assert reached == []


def test_the_schema_is_printed_as_it_is_committed() -> None:
    done = run("schema")
    assert done.exit_code == OK
    assert done.stdout == (ROOT / "docs" / "catalog.schema.json").read_text()


# --- orders --------------------------------------------------------------------------------------------------------


class Fleet:
    """Takes orders and answers with one verdict."""

    def __init__(self, judgement: Judgement) -> None:
        self.judgement = judgement
        self.given: list[tuple[str, Mapping[str, object]]] = []

    async def order(self, name: str, fields: Mapping[str, object]) -> Verdict:
        self.given.append((name, fields))
        return Verdict(
            arrival=1, kind=InputKind.ORDER, name=name, judgement=self.judgement, text="so it is", problems=("because",)
        )


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Callable[[Judgement], Fleet]:
    def reached(judgement: Judgement) -> Fleet:
        fleet = Fleet(judgement)

        def with_fleet(_: Options, work: Callable[[Any], Awaitable[int]]) -> int:
            async def working() -> int:
                return await work(fleet)

            return asyncio.run(working())

        monkeypatch.setattr("cli.ordering.with_fleet", with_fleet)
        return fleet

    return reached


def words_of(name: str) -> tuple[str, ...]:
    head, _, rest = name.partition("-")
    return (head, rest) if (head,) in COMMANDS and head in ("nodes", "routers") else (name,)


def example_line(name: str) -> list[str]:
    """The order's own example as an operator would type it."""
    order, line = ORDERS[name], list(words_of(name))
    for field, value in order.example.items():
        flag = f"--{field.replace('_', '-')}"
        required = order.model_fields[field].is_required() and (name, field) != (NodesAdd.name, "id")
        if isinstance(value, bool):
            line += [flag] if value else []
        elif isinstance(value, list):
            line += value
        else:
            line += [str(value)] if required else [flag, str(value)]
    return line


@pytest.mark.parametrize("name", ORDERS)
def test_every_order_has_a_command_that_gives_it(name: str, reach: Callable[[Judgement], Fleet]) -> None:
    fleet = reach(Judgement.ACCEPTED)
    done = run(*example_line(name))
    assert done.exit_code == OK, done.output
    assert COMMANDS[words_of(name)].help == ORDERS[name].description
    ((sent, fields),) = fleet.given
    assert sent == name
    assert parse_order(name, [fields]) == parse_order(name, [dict(ORDERS[name].example)])


@pytest.mark.parametrize(
    ("judgement", "code"),
    [
        (Judgement.ACCEPTED, OK),
        (Judgement.UNCHANGED, OK),
        (Judgement.HELD, REFUSED),
        (Judgement.REFUSED, REFUSED),
    ],
)
def test_the_verdict_is_told_and_decides_the_exit_code(
    judgement: Judgement, code: int, reach: Callable[[Judgement], Fleet]
) -> None:
    reach(judgement)
    done = run("wake", "qwen")
    assert done.exit_code == code
    assert done.stdout == f"{judgement}: so it is\n  because\n"
    told = json.loads(run("--json", "wake", "qwen").stdout)
    assert told["judgement"] == judgement


@pytest.mark.parametrize("labels", ["team", "{team"])
def test_labels_that_cannot_be_read_are_wrong_usage(labels: str, reach: Callable[[Judgement], Fleet]) -> None:
    fleet = reach(Judgement.ACCEPTED)
    done = run("nodes", "add", "http://a:1", "--id", "a", "--labels", labels)
    assert done.exit_code == USAGE
    assert "A=B,C=D" in done.stderr
    assert fleet.given == []
