"""What a newcomer is handed: catalogs that hold by our own rules, commands that are what they say, lines that tell."""

import io
import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from llmgw.ids import ModelName
from llmgw.replica_state import ReplicaState
from llmgw.validation import check
from llmgw.views import ModelRow, WaitingRow
from llmgw.wire import ModelState
from workers.devstack import example
from workers.devstack.example import ALIAS, FIRST, MODELS, SECOND, STORY
from workers.devstack.guide import curl, guide, signal_argv, typed
from workers.devstack.layout import Layout, choose_ports
from workers.devstack.parts import DEVICE_KIND, DEVICES, Programs
from workers.devstack.show import Lines, model_words
from workers.devstack.supervisor import Change, PartState

LLAMA = "/opt/llama-server"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path, choose_ports(None, 25_000, lambda _: True))


@pytest.mark.parametrize("llama", [LLAMA, None], ids=["llama.cpp", "stub"])
@pytest.mark.parametrize("make", [example.first_catalog, example.second_catalog])
def test_example_catalogs_have_neither_problems_nor_warnings(layout: Layout, make: object, llama: str | None) -> None:
    assert callable(make)
    checked = check(make(layout, llama))
    assert (checked.problems, checked.warnings) == ((), ())
    assert checked.catalog is not None
    engines = {profile.engine for model in checked.catalog.models for profile in model.profiles}
    assert engines == {"stub" if llama is None else example.ENGINE}


def test_the_second_catalog_adds_one_model_and_changes_nothing_else(layout: Layout) -> None:
    first, second = example.first_catalog(layout, LLAMA), example.second_catalog(layout, LLAMA)
    assert second["models"][:-1] == first["models"]
    assert second["models"][-1]["name"] == SECOND
    assert {k: v for k, v in second.items() if k != "models"} == {k: v for k, v in first.items() if k != "models"}


def test_profiles_ask_for_the_devices_that_the_agents_declare() -> None:
    assert DEVICES.startswith(f"4x{DEVICE_KIND}:")


def test_every_model_answers_a_sentence_of_its_own(tmp_path: Path) -> None:
    assert len({model.text for model in MODELS.values()}) == len(MODELS)
    example.write_models(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.gguf" for name in (FIRST, SECOND, STORY)}


def test_a_model_file_that_is_there_is_kept(tmp_path: Path) -> None:
    """Engines may have it open."""
    kept = example.weights_path(tmp_path, MODELS[FIRST])
    kept.write_bytes(b"mine")
    example.write_models(tmp_path)
    assert kept.read_bytes() == b"mine"


def test_a_catalog_is_written_as_the_json_that_a_signal_carries(layout: Layout) -> None:
    content = example.first_catalog(layout, LLAMA)
    example.write_catalog(layout.catalog, content)
    assert json.loads(layout.catalog.read_text()) == content


def test_the_guide_names_each_command_whole(layout: Layout) -> None:
    programs = Programs(sys.executable, "/opt/temporal", LLAMA)
    page = guide(layout, programs, 4711, is_example=True)
    assert shlex.join(signal_argv(layout, "/opt/temporal", layout.next_catalog)) in page
    for line in (curl(layout, FIRST), curl(layout, STORY, stream=True), curl(layout, SECOND)):
        assert line in page
    for said in (
        layout.url("router"),
        layout.url("ui"),
        "/metrics",
        "kill -9 4711",
        ALIAS,
        "--address 127.0.0.1:25000",
    ):
        assert said in page


def test_a_curl_line_is_what_a_shell_takes(layout: Layout) -> None:
    words = shlex.split(curl(layout, "it's"))
    assert json.loads(words[-1])["model"] == "it's"
    assert f"{layout.url('router')}/v1/chat/completions" in words


def test_a_program_is_typed_by_name_where_a_shell_finds_that_very_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        shutil.copy("/bin/true", folder / "temporal")
    monkeypatch.setenv("PATH", str(here))
    assert typed(str(here / "temporal")) == "temporal"
    monkeypatch.chdir(tmp_path)
    assert typed(str(there / "temporal")) == "there/temporal"
    monkeypatch.chdir(here)
    assert typed(str(there / "temporal")) == str(there / "temporal")


def row(ready: int, **more: object) -> ModelRow:
    given = {"state": ModelState.STARTING, "wanted": 2, "replicas": {}, "min": 2, "max": 2, **more}
    return ModelRow.model_validate({"name": ModelName("hello"), "ready": ready, **given})


def test_a_model_says_what_it_does_and_why_it_waits() -> None:
    waiting = WaitingRow(subject="model/hello", code="no_place", text="no device is free", age_s=1.0)
    doing = {ReplicaState.READY: 1, ReplicaState.LOADING: 1}
    assert model_words(row(1, replicas=doing, waiting=waiting)) == "1 of 2 ready; 1 loading; no device is free"


def test_lines_tell_only_what_changes() -> None:
    out = io.StringIO()
    show = Lines(out)
    for ready in (0, 0, 2, 2):
        show.models([row(ready)])
    show.models([])
    said = [line.split("  ", 1)[1] for line in out.getvalue().splitlines()]
    said = [line.split("model ")[1] for line in said]
    assert said == ["hello: 0 of 2 ready", "hello: 2 of 2 ready", "hello left the catalog"]


def test_a_part_that_died_is_told_with_its_end() -> None:
    out = io.StringIO()
    Lines(out).part(Change("worker", PartState.DIED, 12, "signal 9"))
    assert out.getvalue().strip().endswith("worker died; another one is started (signal 9)")


def test_a_closed_terminal_does_not_keep_a_stack_from_ending() -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    Lines(Closed()).say("ending everything")
