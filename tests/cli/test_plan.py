"""`plan`, and the catalogs one can go back to: what is shown, how it ends, what is sent."""

import json
from pathlib import Path

import pytest
import yaml

from llmgw.catalog import plain
from llmgw.kept_catalogs import keep
from tests.cli.fleets import Command, WorldFleet
from tests.core.fleets import catalog, model, running

MODELS = (model("big", 3), model("single", devices=2), model("llama"))
EDITED = (
    model("big", 3, args=["--new"], weights="hf://org/big"),
    model("single", devices=2, args=["--x"]),
    model("new"),
    model("huge", devices=4),
)


@pytest.fixture
def fleet() -> WorldFleet:
    """Generation 1 had only llama; generation 2, which is in force, has three models that are ready."""
    sim = running(*MODELS, nodes="abcd")
    made = WorldFleet(sim.world)
    assert sim.world.catalog is not None
    first = {**catalog(sim, model("llama")), "allow_removals": True}
    made.kept = keep(keep(made.kept, first, 1, "1" * 32, None), plain(sim.world.catalog), 2, sim.world.digest, 1.0)
    from dataclasses import replace

    made.world = replace(sim.world, generation=2)
    return made


@pytest.fixture
def edited(tmp_path: Path, fleet: WorldFleet) -> str:
    file = tmp_path / "catalog.yaml"
    file.write_text(yaml.safe_dump(catalog(running(*MODELS, nodes="abcd"), *EDITED)))
    return str(file)


def test_a_plan_is_a_tree_with_its_hash(fleet: WorldFleet, edited: str) -> None:
    done = Command(fleet, columns=140)("plan", edited)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == (
        "What it leads to: 1 to start, 1 to stop, 3 to move, 1 to replace. "
        "1 model would wait for want of a place: huge."
    )
    assert "├── llama  leaves; 1 endpoint withdrawn at once" in done.stdout
    assert "big  3 → 3 endpoints, never fewer than 2" in done.stdout
    assert "hf://org/big on " in done.stdout
    assert "huge  0 → 0 endpoints of 1 wanted" in done.stdout
    assert fleet.sent == []
    found = json.loads(Command(fleet)("plan", edited, "--json").stdout)
    told = " ".join(done.stdout.split())  # a long path may take a line of its own
    assert told.endswith(f"As it is shown here: llmgw apply {edited} --plan {found['hash']}")


def test_what_would_wait_is_told_first_though_nothing_else_would_be_done(fleet: WorldFleet, tmp_path: Path) -> None:
    """Two that are too large, and an edit that finds no room: what is there goes on as it was."""
    file = tmp_path / "catalog.yaml"
    large = (model("huge", devices=4), model("vast", devices=9))
    file.write_text(yaml.safe_dump(catalog(running(*MODELS, nodes="abcd"), *MODELS, *large)))
    lines = Command(fleet, columns=140)("plan", str(file)).stdout.splitlines()
    assert lines[0] == "Nothing would be started or stopped. 2 models would wait for want of a place: huge, vast."
    edit = (*MODELS[:1], model("single", devices=5), MODELS[2])
    file.write_text(yaml.safe_dump(catalog(running(*MODELS, nodes="abcd"), *edit)))
    done = Command(fleet, columns=140)("plan", str(file))
    assert done.stdout.splitlines()[0].endswith("1 model would wait for want of a place: single.")
    assert "single  1 → 1 endpoint, 1 of them still as before the edit" in done.stdout


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_it_fits_the_terminal(fleet: WorldFleet, edited: str, columns: int) -> None:
    for words in (("plan", edited), ("history",), ("diff", edited)):
        lines = Command(fleet, columns=columns)(*words).stdout.splitlines()
        assert [line for line in lines if len(line) > columns or line != line.rstrip()] == []


def test_it_ends_with_five_only_where_that_is_asked_for(fleet: WorldFleet, edited: str) -> None:
    command = Command(fleet)
    assert command("plan", edited, "--exit-code").exit_code == 5
    assert command("plan", "2", "--exit-code").exit_code == 0
    assert command("diff", edited).exit_code == 0
    assert command("diff", edited, "--exit-code").exit_code == 5
    assert command("diff", "2", "--exit-code").exit_code == 0


def test_what_would_be_held_ends_with_one(fleet: WorldFleet, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump({"nodes": catalog(running(), model("a"))["nodes"], "models": []}))
    done = Command(fleet)("plan", str(file))
    assert done.exit_code == 1
    assert "It would be held: it has no models" in done.stdout
    assert "send it again" not in done.stdout, "that is how signals confirm it"
    assert "leaves; " in done.stdout, "what it would do once it is confirmed"
    assert "--allow-removals --plan " in done.stdout
    assert Command(fleet)("plan", str(file), "--allow-removals").exit_code == 0


def test_apply_takes_the_hash_and_is_refused_once_the_world_has_moved(fleet: WorldFleet, edited: str) -> None:
    found = json.loads(Command(fleet)("plan", edited, "--json").stdout)
    done = Command(fleet)("apply", edited, "--no-wait", "--plan", found["hash"])
    assert (done.exit_code, fleet.plans) == (0, [{"plan": found["hash"]}])
    done = Command(fleet)("apply", edited, "--no-wait", "--plan", found["hash"])
    assert done.exit_code == 1
    assert "look at it again with `llmgw plan`" in done.stderr


def test_a_world_that_does_not_stand_still_is_read_again_and_at_last_taken_as_it_is(
    fleet: WorldFleet, edited: str
) -> None:
    fleet.restless = 5
    done = Command(fleet)("plan", edited)
    assert (done.exit_code, done.stderr) == (0, "")
    fleet.restless = 1000
    done = Command(fleet)("plan", edited)
    assert done.exit_code == 0
    assert "the fleet changes all the time" in done.stderr


def test_kept_catalogs_are_listed_shown_and_compared(fleet: WorldFleet) -> None:
    command = Command(fleet, columns=100)
    lines = command("history").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["GENERATION", "2", "1"]
    assert "in force" in lines[1]
    shown = yaml.safe_load(command("show", "1").stdout)
    assert [m["name"] for m in shown["models"]] == ["llama"]
    assert list(shown) == ["nodes", "routers", "models"]  # as it was written, without the confirmation
    assert json.loads(command("show", "1", "--json").stdout) == shown
    assert command("diff", "1", "2").stdout == "generation 1 → generation 2\n+ model big added\n+ model single added\n"
    assert command("diff", "1").stdout == (
        "the catalog in force → generation 1\n- model big removed\n- model single removed\n"
    )
    assert command("diff", "2").stdout == "the catalog in force → generation 2\nno difference\n"
    done = command("show", "7")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "generation 7 is not kept; kept are: 2, 1" in done.stderr


def test_two_files_are_compared_without_a_fleet_from_old_to_new(tmp_path: Path) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(yaml.safe_dump({"models": [model("llama"), model("qwen")]}))
    new.write_text(yaml.safe_dump({"models": [model("llama", 2)]}))
    nowhere = Command(fleet=None)
    assert nowhere("diff", str(old), str(new)).stdout.splitlines() == [
        f"{old} → {new}",
        "~ model llama: replicas 1 → 2",
        "- model qwen removed",
    ]
    assert nowhere("diff", str(new), str(old)).stdout.splitlines()[1:] == [
        "~ model llama: replicas 2 → 1",
        "+ model qwen added",
    ]
    assert nowhere("diff", str(old), "-", stdin=old.read_text()).stdout.endswith("→ standard input\nno difference\n")
    assert nowhere.targets == []


def test_every_form_of_a_difference_goes_the_same_way(fleet: WorldFleet, edited: str) -> None:
    """In force → file says what `apply` would change, generation → file and in force → generation alike."""
    command = Command(fleet)
    assert "+ model huge added" in command("diff", edited).stdout
    assert "+ model huge added" in command("diff", "2", edited).stdout
    assert "- model huge removed" in command("diff", edited, "2").stdout
    assert "- model single removed" in command("diff", "1").stdout


def test_going_back_is_a_new_catalog_and_takes_no_old_confirmation_along(fleet: WorldFleet) -> None:
    done = Command(fleet)("rollback", "1", "--no-wait")
    assert done.exit_code == 0, done.stderr
    assert "generation 3 is in force" in done.stdout
    [(name, sent)] = fleet.sent
    assert name == "apply-catalog"
    assert isinstance(sent, dict)
    assert "allow_removals" not in sent
    assert Command(fleet)("rollback", "9").exit_code == 1


def test_standard_input_cannot_be_both_sides(fleet: WorldFleet) -> None:
    assert Command(fleet)("diff", "-", "-", stdin="{}").exit_code == 2
