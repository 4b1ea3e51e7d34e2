"""Orders at the command line: each has a command made from its fields, and what is typed is what is sent."""

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import httpx
import pytest
import typer
from typer.main import get_command

from cli.command_reference import commands
from cli.durations import age, seconds, seconds_until
from cli.main import app
from cli.ordering import SHAPES, Shape
from llmgw.orders import ORDERS, parse_order
from llmgw.world import Waiting
from tests.cli.fleets import Command, WorldFleet
from tests.core.worlds import serving, world

COMMANDS = dict(commands(get_command(app)))


def words_of(name: str) -> tuple[str, ...]:
    head, _, rest = name.partition("-")
    return (head, rest) if head in ("nodes", "routers") else (name,)


def typed(name: str) -> list[str]:
    """The order's own example, as an operator types it."""
    order, given = ORDERS[name], dict(ORDERS[name].example)
    shape = SHAPES.get(name, Shape())
    arguments = shape.arguments or [n for n, info in order.model_fields.items() if info.is_required()]
    line = [*words_of(name)]
    for value in (given.pop(field) for field in arguments if field in given):
        line += value if isinstance(value, list) else [str(value)]
    for field, value in given.items():
        flag = f"--{field.removesuffix('_s').replace('_', '-')}"
        line += ([flag] if value else []) if isinstance(value, bool) else [flag, str(value)]
    return line


@pytest.mark.parametrize("name", ORDERS)
def test_every_order_has_a_command_that_sends_what_is_typed(name: str) -> None:
    fleet = WorldFleet(serving("qwen3-32b"))
    done = Command(fleet)(*typed(name))
    assert done.exit_code in (0, 1), done.output
    ((sent, fields),) = fleet.sent
    assert sent == name
    assert parse_order(name, [fields]) == parse_order(name, [dict(ORDERS[name].example)])


def test_an_order_that_starts_what_has_no_place_says_so() -> None:
    lacking = Waiting("model/m", "no_place", "needs 2 × h100: 1 node with 1 free", 0.0)
    for words in (("wake", "m"), ("restart", "m"), ("scale", "m", "1")):
        fleet = WorldFleet(replace(serving("m"), waiting={"model/m": lacking}))
        done = Command(fleet)(*words)
        assert done.exit_code == 0, done.output
        assert "m waits: needs 2 × h100: 1 node with 1 free" in done.stderr
        assert "waits" not in Command(WorldFleet(serving("m")))(*words).stderr


@pytest.mark.parametrize("name", ORDERS)
def test_every_field_can_be_given_and_is_described_by_the_order(name: str) -> None:
    command = COMMANDS[words_of(name)]
    assert ORDERS[name].description in command.help
    told = {p.name: p.help for p in command.params}
    assert told.keys() - {"as_json", "as_yaml"} == set(ORDERS[name].model_fields)
    bare = [n for n, info in ORDERS[name].model_fields.items() if (info.description or "-") not in (told[n] or "")]
    assert bare == []


def test_every_shape_is_of_an_order_and_names_its_fields() -> None:
    for name, shape in SHAPES.items():
        assert {*shape.arguments, *shape.asked} <= set(ORDERS[name].model_fields)


LINES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a deadline": ("drain node-a --deadline 1h30m", "drain", {"node": "node-a", "deadline_s": 5400.0}),
    "a count": ("scale qwen 3 --for 2d", "scale", {"model": "qwen", "replicas": 3, "for_s": 172_800.0}),
    "an end": ("scale qwen 3 --until 1h", "scale", {"model": "qwen", "replicas": 3, "for_s": 3600.0}),
    "no count": ("scale qwen", "scale", {"model": "qwen"}),
    "none at all": ("scale qwen 0", "scale", {"model": "qwen", "replicas": 0}),
    "paths": ("remove-weights n a b/c", "remove-weights", {"node": "n", "paths": ["a", "b/c"], "dry_run": False}),
    "labels": (
        "nodes add http://n:1 --id n --label a=b --label c=d=e",
        "nodes-add",
        {"id": "n", "url": "http://n:1", "labels": {"a": "b", "c": "d=e"}},
    ),
    "force": ("nodes remove n --force", "nodes-remove", {"node": "n", "force": True}),
    "a router": ("routers add http://r:1 --id r", "routers-add", {"id": "r", "url": "http://r:1"}),
    "no fields": ("takeover", "takeover", {}),
}


@pytest.mark.parametrize("case", LINES)
def test_a_line_is_sent_as(case: str) -> None:
    line, name, fields = LINES[case]
    fleet = WorldFleet(world("qwen"))
    Command(fleet)(*line.split())
    assert fleet.sent == [(name, fields)]


WRONG: dict[str, tuple[str, str]] = {
    "a name with blanks": ("cordon", "a b"),
    "a path of nothing": ("remove-weights", "n|"),
    "too long": ("scale", "qwen|1|--for|400d"),
    "labels without a sign": ("nodes", "add|http://n:1|--id|n|--label|team"),
    "no URL": ("nodes", "add|n:1|--id|n"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_by_itself_is_said_without_asking_the_fleet(case: str) -> None:
    word, rest = WRONG[case]
    done = Command()(word, *rest.split("|"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("llmgw: ")


# --- verdicts ------------------------------------------------------------------------------------------------------


def test_an_accepted_order_is_told_and_given_twice_is_unchanged() -> None:
    command = Command(WorldFleet(world("qwen")))
    first, second = command("cordon", "node-a"), command("cordon", "node-a")
    assert (first.exit_code, first.stdout) == (0, "accepted: cordon node-a; `llmgw uncordon node-a` takes it back\n")
    assert (second.exit_code, second.stdout) == (0, "unchanged: cordon node-a: already so\n")


def test_a_refused_order_names_every_problem_and_ends_with_1() -> None:
    done = Command(WorldFleet(world("qwen")))("scale", "qwen", "7")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "outside its bounds (exactly 1)" in done.stderr


def test_warnings_go_to_standard_error() -> None:
    done = Command(WorldFleet(world("qwen")))("takeover")
    assert done.exit_code == 0
    assert done.stderr.startswith("warning: nobody else commands this fleet")


def test_a_verdict_is_json_too() -> None:
    done = Command(WorldFleet(world("qwen")))("wake", "qwne", "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["judgement"]) == (1, "refused")
    assert "did you mean qwen" in told["problems"][0]


# --- nodes add -----------------------------------------------------------------------------------------------------


def test_a_node_is_added_by_its_url_alone(tmp_path: Any) -> None:
    token = tmp_path / "token"
    token.write_text("# rotated in May\nsecret\nolder\n")
    asked: list[httpx.Request] = []

    def agent(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, text='\n{"node": "gpu-07", "revision": 1}\n')

    fleet = WorldFleet(world("qwen"))
    done = Command(fleet, agent)("nodes", "add", "http://gpu-07:7811/", "--token-file", str(token))
    assert done.exit_code == 0
    assert fleet.sent == [("nodes-add", {"url": "http://gpu-07:7811/", "id": "gpu-07"})]
    assert [(str(r.url), r.headers["authorization"]) for r in asked] == [
        ("http://gpu-07:7811/v1/state", "Bearer secret")
    ]


def refused(_: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("connection refused")


AGENTS: dict[str, tuple[Any, int, str]] = {
    "away": (refused, 3, "no agent answers at http://n:1/v1/state: nothing listens there. Is it running"),
    "something else": (lambda _: httpx.Response(200, text="<html>"), 3, "is no agent"),
    "another token": (lambda _: httpx.Response(401, json={"message": "who?"}), 1, "give --token-file"),
    "a refusal": (lambda _: httpx.Response(503, json={"message": "not yet"}), 1, "the agent answers 503: not yet"),
}


@pytest.mark.parametrize("case", AGENTS)
def test_a_node_whose_agent_does_not_say_who_it_is_is_not_added(case: str) -> None:
    agent, code, said = AGENTS[case]
    fleet = WorldFleet(world("qwen"))
    done = Command(fleet, agent)("nodes", "add", "http://n:1")
    assert (done.exit_code, fleet.sent) == (code, [])
    assert said in done.stderr


# --- durations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90.0), ("0.5", 0.5), ("90s", 90.0), ("10m", 600.0), ("1h30m", 5400.0), ("2d", 172_800.0)],
)
def test_durations_are_read(text: str, expected: float) -> None:
    assert seconds(text) == expected


NOW = datetime(2030, 5, 1, 17, 30, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("18:00", 1800.0),
        ("17:30", 86_400.0),
        ("9:05", 56_100.0),
        ("2030-05-01T18:00", 1800.0),
        ("2030-05-01T16:00Z", 1800.0),
        ("24:00", None),
        ("18:0", None),
        ("2030-13-01", None),
        ("soon", None),
    ],
)
def test_a_time_of_the_clock_is_the_seconds_until_then(text: str, expected: float | None) -> None:
    assert seconds_until(text, NOW) == expected


def test_a_time_that_is_over_is_wrong_usage() -> None:
    with pytest.raises(typer.BadParameter, match="is over"):
        seconds_until("2030-05-01T17:00", NOW)


@pytest.mark.parametrize("text", ["", "soon", "-1", "10 m", "1m x", "1e9", "m", "nan"])
def test_what_is_no_duration_is_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="1h30m"):
        seconds(text)


@pytest.mark.parametrize(
    ("duration_s", "expected"),
    [(None, ""), (-3.0, "0s"), (0.4, "0s"), (59.9, "59s"), (60.0, "1m"), (7199.0, "1h"), (90_000.0, "1d")],
)
def test_ages_are_short(duration_s: float | None, expected: str) -> None:
    assert age(duration_s) == expected
