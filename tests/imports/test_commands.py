"""`llmgw import` and `llmgw export` as commands: what is printed where, exit codes, and files that are no data."""

import json
from pathlib import Path

import pytest
import yaml

from cli.catalog_file import read
from cli.failures import REFUSED, USAGE
from cli.importing import Kind
from llmgw.catalog import catalog_digest
from llmgw.importing.kinds import SOURCES
from llmgw.kept_catalogs import keep
from llmgw.world import World
from tests.cli.fleets import Command, WorldFleet
from tests.core.catalogs import Raw, model
from tests.core.catalogs import accepted as accepted_catalog
from tests.imports.files import CASES, name_of

SWAP = str(CASES / "llama-swap" / "aider-qwq-coder.yaml")
NOT_DATA = {
    "serve_deepseek_r1.txt": "a program in Python",
    "ollama-gpu-traefik.nomad.hcl": "HCL, as Nomad writes it",
    "tandemn-vllm.yaml.tpl": "a template that was not filled in",
}
OF_OTHERS = {
    "llmisvc-pd-qwen2-7b-gpu.yaml": "this is a resource of KServe",
    "clusterservingruntime-vllmserver.yaml": "this is a runtime of KServe: it describes no models",
    "adapter-multi-lora.yaml": "this is a resource of AIBrix",
    "scheduled-bounds-apa.yaml": "this is a scaler of AIBrix: it describes no models",
    "skyserve-vllm.yaml": "this is a service of SkyPilot",
    "docker-compose-distributed.yml": "this is a docker-compose file",
}


def test_every_source_can_be_named() -> None:
    assert [str(kind) for kind in Kind] == list(SOURCES)


def test_the_catalog_goes_to_standard_output_and_the_losses_to_standard_error() -> None:
    done = Command()("import", "llama-swap", SWAP)
    assert done.exit_code == 0
    assert [model["name"] for model in yaml.safe_load(done.stdout)["models"]] == ["qwen-coder-32B", "QwQ"]
    assert "2 models carried over; 4 lost, 6 changed" in done.stderr
    assert "changed: models.QwQ.cmd (line 34): --port: the node picks the port" in done.stderr.splitlines()[-1].strip()


def test_the_catalog_may_go_to_a_file_that_validates(tmp_path: Path) -> None:
    file = tmp_path / "catalog.yaml"
    assert Command()("import", "llama-swap", SWAP, "-o", str(file)).exit_code == 0
    assert Command()("validate", str(file)).exit_code == 0
    assert read(file).raw == yaml.safe_load(file.read_text())


def test_programs_get_all_of_it_as_one_document() -> None:
    done = Command()("import", "kubeai", str(CASES / "kubeai" / "vllm-with-adapters.yaml"), "--json")
    told = json.loads(done.stdout)
    assert [loss["path"] for loss in told["lost"]] == ["spec.adapters"]
    assert told["lost"][0]["line"] == 9
    assert told["catalog"]["models"][0]["name"] == "tinyllama-chat-adapters"
    assert done.stderr == ""


def test_a_file_of_another_tool_is_told_by_its_name() -> None:
    done = Command()("import", "kubeai", SWAP)
    assert done.exit_code == REFUSED
    assert "this is a file of llama-swap: llmgw import llama-swap reads it" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("file", OF_OTHERS)
def test_a_file_that_no_importer_reads_is_refused_once_and_clearly(file: str) -> None:
    done = Command()("import", "kubeai", str(CASES / "others" / file))
    assert done.exit_code == REFUSED
    assert OF_OTHERS[file] in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("file", NOT_DATA)
def test_a_file_that_is_no_data_is_refused_with_its_place(file: str) -> None:
    done = Command()("import", "ray", str(CASES / "others" / file))
    assert done.exit_code == USAGE
    assert f"this looks like {NOT_DATA[file]}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_whose_configuration_is_elsewhere_is_told_with_its_file() -> None:
    done = Command()("import", "ray", str(CASES / "ray" / "rayservice-rayllm-eks.yaml"))
    assert done.exit_code == REFUSED
    assert "args.models (2 places, line 8): its configuration is a file of its own" in done.stderr


def test_a_key_given_twice_counts_once_and_is_told() -> None:
    text = "models:\n  m:\n    cmd: llama-server -m /a.gguf\n    cmd: llama-server -m /b.gguf\n"
    done = Command()("import", "llama-swap", "-", stdin=text)
    assert "file:///b.gguf" in done.stdout
    assert "the key is given twice, first in line 3: the last counts" in done.stderr


@pytest.mark.parametrize("text", ["", "---\n", "models: [", "a: b: c", "{{ .Values.x }}"], ids=name_of)
def test_a_broken_file_is_refused_without_a_traceback(text: str) -> None:
    done = Command()("import", "litellm", "-", stdin=text)
    assert done.exit_code in (USAGE, REFUSED)
    assert "Traceback" not in done.stderr
    assert done.stderr


# --- export --------------------------------------------------------------------------------------------------------


def test_the_catalog_in_force_is_exported_in_one_plain_form_that_means_the_same(tmp_path: Path) -> None:
    raw: Raw = {"models": [model("b", aliases=["z", "c"]), model("a", priority=0)], "policy": {"settle_s": 60.0}}
    fleet = WorldFleet(World(fleet="main", installation="i", epoch=1, seq=0, generation=1))
    fleet.kept = keep(fleet.kept, raw, 1, "1" * 32, None)
    command = Command(fleet)
    out = tmp_path / "out.yaml"
    assert command("export", "-o", str(out)).exit_code == 0
    again = accepted_catalog(yaml.safe_load(out.read_text()))
    assert catalog_digest(again) == catalog_digest(accepted_catalog(raw))
    assert [m.name for m in again.models] == ["a", "b"]
    assert "priority" not in out.read_text()


@pytest.mark.parametrize("form", ["--json", "--yaml"])
def test_a_file_is_exported_without_a_fleet_and_again_gives_the_same_text(tmp_path: Path, form: str) -> None:
    file = tmp_path / "catalog.yaml"
    file.write_text("models:\n- &m {name: '1e3', profiles: [{name: p, engine: stub, args: [no, '0o17', '~']}]}\n")
    first = Command()("export", str(file), form)
    assert first.exit_code == 0
    file.write_text(first.stdout)
    assert Command()("export", str(file), form).stdout == first.stdout
    found = read(file).raw
    assert found == {
        "models": [{"name": "1e3", "profiles": [{"name": "p", "engine": "stub", "args": ["no", "0o17", "~"]}]}]
    }
