"""The command line itself: where options may stand, what help teaches, how processes are started, how it fails."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from temporalio.client import WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from cli.command_reference import commands, page_text
from cli.failures import REFUSED, TIMED_OUT, UNREACHABLE, USAGE
from cli.main import app, arranged
from cli.outside import Target
from cli.processes import PROCESSES
from llmgw.catalog import Catalog
from llmgw.world import World
from tests.cli.fleets import Command, Raising, WorldFleet
from tests.cli.scenes import troubled
from tests.core.test_any_catalog import NOT_OURS
from workflows.client import UnreachableError

ROOT = Path(__file__).parents[2]
EMPTY = World(fleet="main", installation="i", epoch=1, seq=0)
COMMANDS = dict(commands(get_command(app)))
OWN = sorted(words for words in COMMANDS if words[0] not in PROCESSES)

# --- where options may stand ---------------------------------------------------------------------------------------

VALUED = {"--fleet", "--address"}
LINES = {
    "before": ("--fleet prod status", "--fleet prod status"),
    "behind": ("status --fleet prod --watch", "--fleet prod status --watch"),
    "with an equals sign": ("status --fleet=prod", "--fleet=prod status"),
    "inside a group": ("nodes add URL --address a:1 --id x", "--address a:1 nodes add URL --id x"),
    "a form before the command": ("--json nodes --watch", "nodes --watch --json"),
    "a form behind it": ("nodes --json --watch", "nodes --json --watch"),
    "behind a double dash": ("explain --json -- --fleet", "explain --json -- --fleet"),
    "without its value": ("status --fleet", "--fleet status"),
    "a process's own": ("worker --fleet prod --json -x", "worker --fleet prod --json -x"),
    "before a process": ("--fleet prod worker --address a:1", "worker --fleet prod --address a:1"),
    "a form before a process": ("--json dev --check", "dev --json --check"),
    "a process's name as a subject": ("explain worker --fleet a", "--fleet a explain worker"),
    "help": ("--help", "--help"),
    "help of a command": ("help nodes add", "nodes add --help"),
    "help alone": ("help", "--help"),
}


@pytest.mark.parametrize("case", LINES)
def test_global_options_may_stand_anywhere(case: str) -> None:
    given, expected = LINES[case]
    assert arranged(given.split(), VALUED, PROCESSES) == expected.split()


def test_no_command_has_an_option_of_a_global_one_s_name() -> None:
    root: Any = get_command(app)
    ours = {flag for p in root.params for flag in p.opts}
    theirs = {flag for command in COMMANDS.values() for p in command.params for flag in p.opts}
    assert ours & theirs == set()


def test_the_target_is_what_options_and_variables_say(tmp_path: Path) -> None:
    file = tmp_path / "x"
    command = Command(WorldFleet(EMPTY))
    tls = ("--tls-ca", str(file), "--tls-cert", str(file), "--tls-key", str(file))
    reach = ("--address", "t:1", "--namespace", "n", "--profile", "p", "--api-key", "k", "--token-file", str(file))
    assert command("status", "--fleet", "prod", *tls, *reach).exit_code == 0
    assert command.targets == [Target("prod", "p", "t:1", "n", "k", file, file, file, file)]


def test_a_fleet_s_name_is_judged_before_anything_is_asked() -> None:
    done = Command()("status", "--fleet", "a b")
    assert done.exit_code == USAGE
    assert "'a b' is no name" in done.stderr.replace("\n", " ")


# --- help ----------------------------------------------------------------------------------------------------------


def help_of(*words: str) -> str:
    done = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}).invoke(app, [*words, "--help"])
    assert done.exit_code == 0
    return done.stdout


@pytest.mark.parametrize("words", OWN, ids=" ".join)
def test_every_command_tells_what_it_is_for_within_80_columns(words: tuple[str, ...]) -> None:
    told = help_of(*words)
    assert (COMMANDS[words].help or "-")[:30] in told
    assert max(len(line) for line in told.splitlines()) <= 80


def test_every_option_and_argument_is_described() -> None:
    bare = [(words, p.name) for words, c in COMMANDS.items() for p in c.params if not p.help]
    assert bare == []


def test_the_first_help_names_every_command_and_every_exit_code() -> None:
    told = help_of()
    assert [words[0] for words in COMMANDS if f" {words[0]} " not in told] == []
    assert "Exit codes: 0 done; 1 refused" in told


def test_groups_list_by_themselves() -> None:
    groups = {words[0] for words, command in COMMANDS.items() if isinstance(command, TyperGroup)}
    assert groups == {"nodes", "devices", "routers"}
    assert all(COMMANDS[(name,)].invoke_without_command for name in groups)


def test_the_page_of_commands_is_made_from_the_commands() -> None:
    assert (ROOT / "docs" / "cli.md").read_text() == page_text(), "python -m cli.command_reference writes it anew"


def test_the_page_names_every_command_and_each_of_its_options() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    for words, command in COMMANDS.items():
        section = page.split(f"\n## llmgw {' '.join(words)}\n")[1].split("\n## ")[0]
        flags = [flag for p in command.params if p.param_type_name == "option" for flag in p.opts]
        assert [flag for flag in flags if f"`{flag}" not in section] == []


def test_help_is_quick_because_it_loads_no_client() -> None:
    heavy = ("temporalio", "httpx", "aiohttp", "yaml", "llmgw.views", "llmgw.validation")
    script = f"import sys, cli.main; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"


# --- processes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_is_started_with_its_flags_unchanged(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = Command()
    flags = ("--help", "--x", "1", "-yz", "--fleet=b", "free", "--x", "1")
    assert command("--fleet", "a", name, *flags).exit_code == 0
    module = PROCESSES[name].module
    assert command.started == [[sys.executable, "-P", "-m", module, "--fleet", "a", *flags]]
    assert find_spec(module) is not None


def test_a_process_is_found_in_a_checkout_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    command = Command()
    command("worker")
    assert command.started == [[sys.executable, "-m", "workers.main"]]


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_s_help_is_its_own(name: str) -> None:
    done = run("--help", words=(name,))
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: llmgw {name} ")


def run(*args: str, words: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "cli.main", *words, *args]
    whole = {**os.environ, "COLUMNS": "200", **environment}
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT, env=whole, timeout=60)


# --- failures ------------------------------------------------------------------------------------------------------


def rpc(status: RPCStatusCode, message: str) -> RPCError:
    return RPCError(message, status, b"")


def invalid() -> ValidationError:
    with pytest.raises(ValidationError) as raised:
        Catalog.model_validate({"models": 1})
    return raised.value


FAILURES: dict[str, tuple[Exception, int, str]] = {
    "no server": (UnreachableError("Temporal is not reached at x: …"), UNREACHABLE, "not reached at x"),
    "bad settings": (ValueError("the profile cannot be used: 'p' not found"), USAGE, "'p' not found"),
    "no fleet": (rpc(RPCStatusCode.NOT_FOUND, "workflow not found for ID: fleet-main"), UNREACHABLE, "llmgw worker"),
    "no namespace": (rpc(RPCStatusCode.NOT_FOUND, "Namespace x is not found."), UNREACHABLE, "namespace create"),
    "ended": (rpc(RPCStatusCode.NOT_FOUND, "workflow execution already completed"), UNREACHABLE, "--fresh"),
    "credentials": (rpc(RPCStatusCode.PERMISSION_DENIED, "Request unauthorized."), UNREACHABLE, "--api-key"),
    "away": (rpc(RPCStatusCode.UNAVAILABLE, "tcp"), UNREACHABLE, "try again"),
    "slow": (rpc(RPCStatusCode.CANCELLED, "Timeout expired"), TIMED_OUT, "try again"),
    "something new": (rpc(RPCStatusCode.RESOURCE_EXHAUSTED, "too many"), UNREACHABLE, "too many"),
    "an old worker": (WorkflowQueryFailedError("no query 'devices'"), REFUSED, "another version"),
    "a strange answer": (invalid(), REFUSED, "another version"),
    "a mistake": (KeyError("x"), REFUSED, "a mistake of ours: KeyError: 'x'"),
}


@pytest.mark.parametrize("case", FAILURES)
@pytest.mark.parametrize("words", [("status",), ("models",), ("cordon", "a"), ("logs", "qwen-1")], ids=" ".join)
def test_each_failure_is_one_sentence_that_says_what_to_do(case: str, words: tuple[str, ...]) -> None:
    error, code, said = FAILURES[case]
    for command in (Command(Raising(error)), Command(error=error)):
        done = command(*words)
        assert (done.exit_code, done.stdout) == (code, "")
        assert len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith("llmgw: ")
        assert said in done.stderr


SILENCES: dict[str, tuple[dict[str, float], str]] = {
    "no worker ever": ({}, "no worker runs for fleet main: start one (`llmgw worker --fleet main`)"),
    "a worker long gone": ({"1@a": 120.0}, "no worker runs for fleet main"),
    "a worker just gone": ({"1@a": 12.0, "2@b": 300.0}, "a worker (1@a) asked for its work within the last minute"),
}


@pytest.mark.parametrize("case", SILENCES)
def test_a_fleet_that_does_not_answer_is_told_with_what_temporal_knows(case: str) -> None:
    polls, said = SILENCES[case]
    asked = Command(Raising(TimeoutError(), polls))("status")
    ordered = Command(Raising(TimeoutError(), polls))("wake", "qwen")
    assert asked.exit_code == ordered.exit_code == TIMED_OUT
    assert said in asked.stderr
    assert said in ordered.stderr
    assert "Whether it was taken is not known" in ordered.stderr


def test_a_mistake_of_ours_shows_its_traceback_when_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMGW_TRACEBACK", "1")
    with pytest.raises(KeyError):
        Command(error=KeyError("x"))("status")


@pytest.mark.parametrize(
    "line", ["nothing-like-this", "scale", "drain a b", "status --nope", "drain a --deadline soon"]
)
def test_wrong_usage_ends_with_2(line: str) -> None:
    assert Command()(*line.split()).exit_code == USAGE


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import lama-swap x", "there is no 'lama-swap': did you mean \"llama-swap\"?"),
        ("import nothing x", "there is no 'nothing': write one of gpustack, llama-swap, kubeai"),
        ("doctor nope", "there is no 'nope': write one of all, machine, fleet"),
        ("logs x -n many", "it must be a whole number, such as 2"),
        ("logs x -n -1", "it must be at least 0"),
        ("show 0", "it must be at least 1"),
        ("scale m x", "it must be a whole number, such as 2"),
    ],
)
def test_a_wrong_value_is_told_in_our_words(line: str, said: str) -> None:
    done = Command(columns=200)(*line.split())
    assert done.exit_code == USAGE
    assert said in " ".join(done.stderr.split())


def test_no_option_of_any_command_tells_the_checkers_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is not text, given something that it cannot be."""
    monkeypatch.chdir(tmp_path)  # one of them writes a file
    tried = 0
    for words in OWN:
        command = COMMANDS[words]
        needed = ["1" for p in command.params if p.param_type_name == "argument" and p.required]
        for option in (p for p in command.params if p.param_type_name == "option" and not getattr(p, "is_flag", False)):
            for value in ("z z", "-1", "1e999"):
                whole = Command(WorldFleet(troubled()), agent=lambda _: httpx.Response(404), columns=200)
                done = whole(*words, f"{option.opts[0]}={value}", *needed)
                tried += 1
                assert NOT_OURS.search(done.stderr) is None, (words, option.opts, done.stderr)
    assert tried > 50


@pytest.mark.parametrize("words", ["", "apply", "nodes", "nodes add", "status"])
def test_help_has_a_short_flag_too(words: str) -> None:
    short, long = Command()(*words.split(), "-h"), Command()(*words.split(), "--help")
    assert (short.exit_code, short.stdout) == (0, long.stdout)


def test_a_mistyped_command_is_answered_with_the_nearest() -> None:
    assert "Did you mean 'replicas'" in Command()("replics").stderr


def test_the_real_thing_ends_with_its_code_and_without_a_traceback() -> None:
    done = run("status", "--address", "127.0.0.1:1")
    assert done.returncode == UNREACHABLE
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "llmgw: Temporal is not reached at 127.0.0.1:1: nothing listens there. Start it (`llmgw dev` brings its own), "
        "or say where it is: --address, TEMPORAL_ADDRESS or a client profile"
    ]


def test_a_reader_that_has_enough_is_no_mistake_of_ours() -> None:
    read, write = os.pipe()
    os.close(read)
    argv = [sys.executable, "-m", "cli.main", "schema"]
    done = subprocess.run(argv, stdout=write, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT, timeout=60)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_the_version_is_told() -> None:
    done = Command()("--version")
    assert done.exit_code == 0
    assert done.stdout.startswith("llmgw")


def test_completion_knows_the_commands() -> None:
    done = run(_LLMGW_COMPLETE="complete_bash", COMP_WORDS="llmgw no", COMP_CWORD="1")
    assert done.stdout.split() == ["nodes"]
