"""docs/coverage.md, row by row: each feature of other tools is expressed, or refused by name; and the known traps."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from cli import yaml_text
from llmgw.rendering import render
from llmgw.validation import Checked, check

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "coverage.md").read_text()


def of_profile(fields: str) -> str:
    return f"models: [{{name: m, profiles: [{{name: p, engine: vllm, weights: 'hf://o/r', {fields}}}]}}]"


def of_model(fields: str) -> str:
    return f"models: [{{name: m, weights: 'hf://o/r', profiles: [{{name: p, engine: vllm}}], {fields}}}]"


def of_engine(fields: str) -> str:
    return "models: [{name: m, profiles: [{name: p, engine: own}]}]\n" + f"engines: {{own: {{base: stub, {fields}}}}}"


EXPRESSED = {
    "ordered launch profiles": "models: [{name: m, weights: 'hf://o/r', profiles: [{name: h100, engine: vllm, "
    "accelerators: [{count: 1, kind: h100}]}, {name: awq, engine: sglang, weights: 'hf://o/awq'}]}]",
    "engine of one's own": of_engine("args: [-v], env: {A: b}, health_path: /up, lists_model: false"),
    "engine version": of_profile("executable: /opt/vllm-0.8/bin/vllm"),
    "container image": of_profile("image: 'vllm/vllm-openai:v0.32.0'"),
    "arguments as a list": of_profile('args: ["--x", "a b", \'{"k": [1]}\', "a;b", "", "模型", "$$"]'),
    "placeholders": of_profile('args: ["--x=${llmgw:host}:${llmgw:port}"]'),
    "environment per profile": of_profile('env: {A: "1", HTTP_PROXY: ""}'),
    "secrets by reference": of_profile("secrets: {HF_TOKEN: hub}"),
    "aliases": of_model("aliases: [chat, 'org/x:1']"),
    "names of any letters": "models: [{name: 'Org/模型:7b.Q4', profiles: [{name: p, engine: stub}]}]",
    "devices by count, kind and memory": of_profile("accelerators: [{count: 2, kind: h100, memory: 80GB}, {count: 1}]"),
    "fractions of a device": of_profile("accelerators: [{count: 1, memory: 80GB, claim: 20GiB}]"),
    "nodes and devices to run on": of_profile(
        "nodes: [n1, n2], labels: {rack: a}, prefer_labels: {disk: nvme}, "
        "accelerators: [{count: 2, aligned: true, devices: [GPU-1, GPU-2]}]"
    ),
    "replicas that keep apart": of_model("replicas: 3, max_per_node: 1, spread_zones: true"),
    "models that never share a node": of_model("exclusive_group: one-at-a-time"),
    "tensor and pipeline parallel": of_profile('args: ["-tp", "2", "-pp", "2"], accelerators: [{count: 4}]'),
    "bounds of replicas": of_model("replicas: {min: 1, max: 4}"),
    "scale to zero and wake": of_model("replicas: {min: 0}, idle_timeout_s: 600"),
    "sleep in place of a stop": of_model("replicas: {min: 0}, idle_timeout_s: 600, idle: sleep"),
    "idle limit never or inherited": of_model("replicas: {min: 0}"),
    "priority": of_model("priority: 9"),
    "pools": "pools: [{name: a}]\n" + of_profile("pool: a, priority: 1, weight: 50"),
    "health path": of_engine("health_path: /v1/models"),
    "start, stop and drain limits": of_profile("start_limit_s: 1200, stop_limit_s: 60, drain_limit_s: 300"),
    "further ports": of_profile('ports: [side], args: ["--kv", "${llmgw:port:side}"]'),
    "weights shared by entries": "models: [{name: a, weights: 'hf://o/r', profiles: [{name: p, engine: vllm}]}, "
    "{name: b, weights: 'hf://o/r', profiles: [{name: p, engine: vllm}]}]",
    "split weights files": "models: [{name: a, weights: 'hf://o/r/m-00001-of-00003.gguf', profiles: "
    "[{name: p, engine: llama.cpp}]}]",
    "replace strategy": of_model("replicas: 4, canary: {replicas: 1, hold_s: 600}"),
}

REFUSED = {
    "two spellings of an option": (of_profile('args: ["--served_model_name=x"]'), "args[0]", "--served-model-name"),
    "alias with parameters": (of_model("aliases: [{name: x, temperature: 0}]"), "aliases[0]", "text"),
    "devices pinned by UUID or index": (of_profile("env: {CUDA_VISIBLE_DEVICES: GPU-1}"), "env", "the plane chooses"),
    "halves of devices": (of_profile("accelerators: [{count: 0.5}]"), "count", "whole number"),
    "several nodes for one replica": (of_profile("num_nodes: 2"), "num_nodes", "a replica is on one node"),
    "roles of prefill and decode": (of_profile("role: prefill"), "role", "prefill and decode"),
    "replicas by load or schedule": (
        of_model("replicas: {min: 1, target_requests: 8}"),
        "target_requests",
        "neither load nor schedule",
    ),
    "co-residence, eviction cost": ("matrix: {}\n" + of_model("priority: 1"), "matrix", "side by side"),
    "adapters sharing a base": (of_model("adapters: [{name: a}]"), "adapters", "an engine loads them by its args"),
    "fixed port": (of_profile('args: ["--port", "8000"]'), "args[0]", "the node picks the port"),
    "outside endpoints": ("endpoints: []\n" + of_model("priority: 1"), "endpoints", "what the plane starts"),
    "fallback to another model": (of_model("fallbacks: [b]"), "fallbacks", "more profiles"),
}


def checked(text: str) -> Checked:
    source = yaml_text.parse(text)
    return check(source.raw, source.lines)


@pytest.mark.parametrize("feature", EXPRESSED)
def test_a_feature_that_is_expressed_is_accepted(feature: str) -> None:
    assert checked(EXPRESSED[feature]).problems == ()


@pytest.mark.parametrize("feature", REFUSED)
def test_a_feature_that_is_not_expressed_is_refused_by_name(feature: str) -> None:
    text, at, words = REFUSED[feature]
    (problem,) = checked(text).problems
    assert at in problem.path
    assert words in f"{problem.what}; {problem.mend}"
    assert problem.mend
    assert problem.line


def test_defaults_are_layered_without_surprises() -> None:
    source = yaml_text.parse(
        """
models:
  - name: one
    profiles:
      - &common {name: p, engine: stub, args: [-a, -b], env: {A: "1", B: "2"}, start_limit_s: 900}
  - name: two
    profiles:
      - <<: *common
        args: [-c]
        env: {B: "3"}
"""
    )
    found = check(source.raw, source.lines)
    assert found.catalog is not None
    profile = found.catalog.models[1].profiles[0]
    assert profile.args == ("-c",)
    assert profile.env == {"B": "3"}
    assert profile.start_limit_s == 900
    assert found.catalog.models[0].profiles[0].args == ("-a", "-b")


# --- the page ------------------------------------------------------------------------------------------------------


def test_the_page_has_a_row_for_every_feature_that_is_tried_and_no_other() -> None:
    features, _, _ = PAGE.partition("## The traps")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", features, re.MULTILINE)[1:]
    assert {name for name, _ in rows} == {*EXPRESSED, *REFUSED, "layered defaults"}


def test_every_trap_names_a_test_that_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) == 10
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text())
        found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in found, f"{file} has no {name}"


# --- the traps -----------------------------------------------------------------------------------------------------


def test_every_alias_with_two_owners_is_named_with_both() -> None:
    aliases = [f"agent-{number}" for number in range(8)]
    raw: Any = {
        "models": [
            {"name": name, "aliases": aliases, "profiles": [{"name": "p", "engine": "stub"}]} for name in ("one", "two")
        ]
    }
    said = [str(problem) for problem in check(raw).problems]
    assert len(said) == 8
    for alias, sentence in zip(aliases, said, strict=True):
        assert f'"{alias}"' in sentence
        assert '"one"' in sentence
        assert '"two"' in sentence


def test_a_token_in_clear_text_is_refused_and_not_quoted() -> None:
    token = "hf_" + "Ab1" * 8
    problems = checked(of_profile(f"env: {{HF_TOKEN: {token}}}")).problems
    assert problems
    assert token not in str(problems)
    assert "secret" in str(problems)


def test_an_empty_argument_stays_where_it_is() -> None:
    found = checked(of_profile('args: ["--a", "", "--b"]'))
    assert found.catalog is not None
    model = found.catalog.models[0]
    argv = render(model, model.profiles[0], found.catalog, None).argv
    assert argv[argv.index("--a") : argv.index("--b") + 1] == ("--a", "", "--b")


def test_a_nested_default_is_refused_with_its_place() -> None:
    (problem,) = checked(of_profile('env: {A: "${A:-${B:-secret-default}}"}')).problems
    assert "${A}" in problem.what
    assert "secret-default" not in str(problem)
    assert (problem.line, problem.column) > (0, 1)
