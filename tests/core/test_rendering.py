"""Launches as agents get them: one golden per engine row, and arguments that arrive byte for byte.

`LLMGW_GOLDENS=write python -m pytest tests/core/test_rendering.py` writes the goldens anew; look at what changed.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from llmgw.engines import ROWS
from llmgw.rendering import render, unnameable
from llmgw.validation import check
from llmgw.wire import ContainerSpec, DeviceNaming, LaunchSpec, MetricNames

GOLDENS = Path(__file__).parent / "goldens"
VENDORS = ("nvidia", "amd", "intel", "ascend", "declared")

Json = dict[str, Any]

PROFILES: dict[str, Json] = {
    "vllm": {"args": ["--max-model-len", "8192"], "secrets": {"HF_TOKEN": "hub"}},
    "sglang": {"args": ["--tp", "2"]},
    "llama.cpp": {"weights": "hf://org/repo/model.gguf@v1", "args": ["-c", "4096"], "stop_limit_s": 60.0},
    "command": {"command": ["/opt/serve", "--on", "${llmgw:host}:${llmgw:port}", "--as", "${llmgw:served_name}"]},
    "tensorrt-llm": {"args": ["--tp_size", "2"], "image": "nvcr.io/nvidia/tensorrt-llm/release:1"},
    "tgi": {"args": ["--num-shard", "2"], "image": "ghcr.io/huggingface/text-generation-inference:3"},
    "container": {"image": "acme/serve:1", "args": ["--port", "${llmgw:port}", "--as", "${llmgw:served_name}"]},
    "stub": {"args": ["--load-s", "1"], "env": {"NAME": "${llmgw:served_name}"}, "ports": ["side"]},
}


def launch(engine: str, vendor: str | None, **fields: object) -> LaunchSpec:
    asked = {"accelerators": [{"count": 2}]} if vendor else {}
    profile = {"name": "p", "engine": engine, **PROFILES.get(engine, {}), **asked, **fields}
    checked = check({"models": [{"name": "org/Model", "weights": "hf://org/repo@main", "profiles": [profile]}]})
    assert checked.catalog is not None, checked.problems
    model = checked.catalog.models[0]
    return render(model, model.profiles[0], checked.catalog, vendor)


def rendered(engine: str) -> Json:
    """Whole on the first vendor that can be named and without devices; of the other vendors the selection alone."""
    spec = launch(engine, "nvidia").model_dump(mode="json")
    bare = launch(engine, None).model_dump(mode="json")
    return {
        "on nvidia": spec,
        "without devices": {field: value for field, value in bare.items() if value != spec[field]},
        "devices by vendor": {
            vendor: selection.model_dump(mode="json")
            for vendor in VENDORS
            if (selection := ROWS[engine].devices.get(vendor)) is not None
        },
    }


@pytest.mark.parametrize("engine", ROWS)
def test_a_row_renders_as_its_golden_says(engine: str) -> None:
    file = GOLDENS / f"{engine}.json"
    text = json.dumps(rendered(engine), indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("LLMGW_GOLDENS") == "write":
        file.write_text(text)
    assert json.loads(file.read_text()) == json.loads(text)


def test_there_is_a_golden_for_every_row_and_no_other() -> None:
    assert {file.stem for file in GOLDENS.glob("*.json")} == set(ROWS)


ODD = ["", "", "a b", "'", '"', "$HOME", "`x`", "*", "\\", "\n", "模型", "-", "--x=", "--x="]


@pytest.mark.parametrize("engine", ROWS)
def test_arguments_arrive_item_for_item_and_byte_for_byte(engine: str) -> None:
    own = {"command": ["/opt/serve", "${llmgw:port}"]} if ROWS[engine].takes_command else {}
    argv = launch(engine, None, args=ODD, **own).argv
    starts = [i for i in range(len(argv)) if list(argv[i : i + len(ODD)]) == ODD]
    assert len(starts) == 1


@pytest.mark.parametrize("engine", sorted(name for name, row in ROWS.items() if not row.takes_command))
def test_what_the_plane_says_comes_last_so_that_it_wins(engine: str) -> None:
    argv = launch(engine, None, args=["--x", "y"]).argv
    assert argv[argv.index("y") + 1 :][-1] == "${llmgw:port}"
    assert "org/Model" in argv[argv.index("y") + 1 :] or engine == "tgi", "which answers to any name"


def test_an_image_runs_its_engines_program_and_a_container_its_own() -> None:
    within = launch("vllm", None, image="vllm/vllm-openai:v0.32.0")
    assert within.container == ContainerSpec(image="vllm/vllm-openai:v0.32.0")
    assert within.argv == launch("vllm", None).argv
    own = launch("container", None)
    assert own.container == ContainerSpec(image="acme/serve:1", own_entrypoint=True)
    assert own.argv == ("acme/serve:1", "--port", "${llmgw:port}", "--as", "org/Model")
    named = launch("container", None, command=["/opt/serve"])
    assert named.container == ContainerSpec(image="acme/serve:1")
    assert named.argv[0] == "/opt/serve"
    assert launch("vllm", None).container is None


def test_an_engine_that_sleeps_by_itself_is_not_kept_awake_by_reading_its_metrics() -> None:
    assert launch("llama.cpp", None, args=["--sleep-idle-seconds", "60"]).metrics == MetricNames()
    assert launch("llama.cpp", None, args=["--sleep-idle-seconds=60"]).metrics == MetricNames()
    assert launch("llama.cpp", None).metrics.running is not None


def test_a_profile_says_what_makes_its_engine_ready_and_when_it_is_hung() -> None:
    asked = launch("vllm", None, probe_completion=True, stall_limit_s=None)
    assert (asked.readiness.probe_completion, asked.stall_limit_s) == (True, None)
    assert (launch("vllm", None).readiness.probe_completion, launch("vllm", None).stall_limit_s) == (False, 120.0)


@pytest.mark.parametrize(
    ("engine", "source", "args"),
    [
        ("vllm", "hf://o/r@refs/pr/1", ("vllm", "serve", "${llmgw:weights}", "--revision", "refs/pr/1")),
        ("vllm", "hf://o/r", ("vllm", "serve", "${llmgw:weights}", "--served-model-name")),
        ("vllm", "file:///w/m@1", ("vllm", "serve", "${llmgw:weights}", "--served-model-name")),
        ("llama.cpp", "hf://o/r/q4/m.gguf", ("llama-server", "-hf", "o/r", "-hff", "q4/m.gguf")),
        ("llama.cpp", "hf://o/r", ("llama-server", "-hf", "o/r", "--metrics")),
        ("llama.cpp", "file:///w/m.gguf", ("llama-server", "-m", "${llmgw:weights}", "--metrics")),
    ],
)
def test_weights_are_told_in_the_engines_own_way(engine: str, source: str, args: tuple[str, ...]) -> None:
    assert launch(engine, None, weights=source, args=[]).argv[: len(args)] == args


def test_a_replica_that_asked_for_no_device_sees_none() -> None:
    spec = launch("vllm", None)
    assert spec.devices is None
    assert spec.env["CUDA_VISIBLE_DEVICES"] == "-1"


def test_devices_that_cannot_be_named_are_a_refusal() -> None:
    with pytest.raises(ValueError, match="no way to name devices of vendor apple"):
        launch("vllm", "apple")


def test_an_extension_replaces_facts_of_its_base_and_the_profile_wins_over_both() -> None:
    raw = {
        "engines": {
            "mine": {
                "base": "vllm",
                "executable": ["/opt/vllm", "serve"],
                "args": ["--seed", "1"],
                "env": {"A": "extension", "B": "extension"},
                "health_path": "/ready",
                "devices": {"naming": "uuid", "variables": ["CUDA_VISIBLE_DEVICES"]},
            }
        },
        "models": [
            {
                "name": "a",
                "weights": "hf://o/r",
                "profiles": [
                    {
                        "name": "p",
                        "engine": "mine",
                        "args": ["--x"],
                        "env": {"A": "profile"},
                        "accelerators": [{"count": 1}],
                    }
                ],
            }
        ],
    }
    catalog = check(raw).catalog
    assert catalog is not None
    profile = catalog.models[0].profiles[0]
    assert unnameable(profile, catalog, "nvidia") is None
    spec = render(catalog.models[0], profile, catalog, "nvidia")
    assert spec.argv[:6] == ("/opt/vllm", "serve", "${llmgw:weights}", "--seed", "1", "--x")
    assert (spec.env["A"], spec.env["B"]) == ("profile", "extension")
    assert spec.readiness.health_path == "/ready"
    assert spec.devices is not None
    assert spec.devices.naming is DeviceNaming.UUID
