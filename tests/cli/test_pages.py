"""What the looking commands print: pages that were looked at, within the terminal's width, the same for programs."""

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from cli.looking import LISTED
from llmgw.ids import NodeId
from llmgw.plan import Judgement, Verdict
from llmgw.recent import Recent
from llmgw.world import HeldCatalog, InputKind, Pause, Waiting, Wishes, World
from tests.cli.fleets import QUERIES, Command, Raising, WorldFleet
from tests.cli.scenes import LONG, PAGES, WIDTHS, golden, golden_file, page, recent, troubled
from tests.core.worlds import NOW, serving

EMPTY = World(fleet="main", installation="i", epoch=1, seq=0)
AGAIN = "python -m tests.cli.scenes writes the pages anew: look at them"


@pytest.mark.parametrize("columns", WIDTHS)
def test_pages_look_as_they_did_when_they_were_looked_at(columns: int) -> None:
    assert golden(columns) == golden_file(columns).read_text(), AGAIN


@pytest.mark.parametrize("columns", [60, *WIDTHS])
@pytest.mark.parametrize("words", PAGES)
def test_no_line_is_wider_than_the_terminal_or_ends_in_blanks(words: str, columns: int) -> None:
    lines = page(words, columns).splitlines()
    assert [line for line in lines if len(line) > columns or line != line.rstrip()] == []


@pytest.mark.parametrize("words", PAGES)
def test_piped_pages_have_no_colours_and_fold_nothing(words: str) -> None:
    piped = page(words, None)
    assert "\x1b" not in piped
    assert len(piped.splitlines()) <= len(page(words, 80).splitlines())


def test_piped_rows_are_one_line_each() -> None:
    assert len(page("models", None).splitlines()) == 1 + 3


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    assert "[bold]odd[/bold]" in page("models", 80)


def test_every_name_is_whole_however_narrow_the_terminal() -> None:
    first_cells = [line.split("  ")[0] for line in page("models", 60).splitlines()]
    assert LONG in "".join(first_cells)


@pytest.mark.parametrize("words", PAGES)
def test_json_and_yaml_say_the_same(words: str) -> None:
    command = Command(WorldFleet(troubled(), recent=recent()))
    as_json = command(*words.split(" "), "--json")
    as_yaml = command(*words.split(" "), "--yaml")
    assert (as_json.exit_code, as_yaml.exit_code) == (0, 0)
    assert json.loads(as_json.stdout) == yaml.safe_load(as_yaml.stdout)


@pytest.mark.parametrize(("words", "query"), [("models", "models"), ("replicas", "replicas"), ("nodes", "nodes")])
def test_json_has_every_row_of_every_page(words: str, query: str) -> None:
    fleet = WorldFleet(troubled())
    rows = json.loads(Command(fleet)(words, "--json").stdout)
    first = QUERIES[query](fleet).model_dump(mode="json")
    assert len(rows) == first["total"]
    assert rows[: len(first[query])] == first[query]


def test_a_device_of_a_node_that_takes_nothing_is_not_called_free() -> None:
    fleet = troubled()
    assert page("devices", None).count("free") == 2
    closed = replace(fleet, wishes=Wishes(cordoned={NodeId("gpu-rack1-07"): NOW}))
    told = Command(WorldFleet(closed))("devices").stdout
    assert "free" not in told
    assert told.count("unused") == 2


HELD = "held: it removes 3 of the 4 models that run (b, c, d). To confirm, send it again after 30 s"


def test_a_held_catalog_is_told_once() -> None:
    held = HeldCatalog("d" * 32, {}, NOW - 20, HELD)
    fleet = replace(serving("a", "b", "c", "d"), held=held, waiting={"fleet": Waiting("fleet", "held", HELD, NOW - 20)})
    last = Verdict(arrival=1, kind=InputKind.CATALOG, name="apply-catalog", judgement=Judgement.HELD, text=HELD)
    told = Command(WorldFleet(fleet, recent=Recent(last_catalog=last)))("status").stdout
    assert told.count("it removes 3 of the 4 models") == 1
    assert told.count("confirm it with --allow-removals") == 1
    assert "send it again after" not in told, "that is how signals confirm it"


def test_what_the_whole_fleet_waits_for_is_told_once() -> None:
    paused = replace(
        serving("a"),
        wishes=Wishes(pause=Pause(NOW - 60, reason="maintenance")),
        waiting={"fleet": Waiting("fleet", "hold", "paused by an operator (maintenance)", NOW - 60)},
    )
    told = Command(WorldFleet(paused))("status").stdout
    assert told.count("maintenance") == 1
    assert told.count("`llmgw resume`") == 1


@pytest.mark.parametrize("words", ["status", *LISTED, "nodes", "routers"])
def test_an_empty_fleet_has_pages_too(words: str) -> None:
    done = Command(WorldFleet(EMPTY))(words)
    assert done.exit_code == 0
    assert done.stdout.strip()


def test_json_and_yaml_exclude_each_other() -> None:
    done = Command(WorldFleet(EMPTY))("status", "--json", "--yaml")
    assert done.exit_code == 2
    assert "--json and --yaml exclude each other" in done.stderr


def test_an_unknown_subject_is_told_with_the_nearest_names_and_ends_with_1() -> None:
    done = Command(WorldFleet(troubled()))("explain", "lama")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "did you mean llama" in done.stderr


def test_an_unknown_subject_is_json_too() -> None:
    done = Command(WorldFleet(troubled()))("explain", "lama", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["known"] is False


# --- again and again -----------------------------------------------------------------------------------------------


def test_watching_shows_each_look_until_ctrl_c_and_ends_well() -> None:
    command = Command(WorldFleet(EMPTY, troubled()), pauses=2)
    done = command("status", "--watch", "--json")
    assert done.exit_code == 0
    looks: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert [look["generation"] for look in looks] == [0, 7, 7]


def test_watching_goes_on_through_a_silence() -> None:
    command = Command(Raising(TimeoutError()), pauses=1)
    done = command("models", "--watch")
    assert done.exit_code == 0
    assert done.stdout.count("no worker runs for fleet main") == 2


def test_a_watched_page_is_a_document_each_in_yaml() -> None:
    done = Command(WorldFleet(EMPTY), pauses=1)("nodes", "-w", "--yaml")
    assert list(yaml.safe_load_all(done.stdout)) == [[], []]


def test_columns_of_less_weight_are_shown_where_there_is_room() -> None:
    assert [("BOUNDS" in page("models", columns)) for columns in (119, 120, None)] == [False, True, True]
