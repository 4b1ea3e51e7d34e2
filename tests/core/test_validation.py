"""Every kind of bad catalog gets one clear answer: each problem, where it is, how to mend it; nothing is half taken."""

import json
from typing import Any

import pytest
from hypothesis import given

from cli.catalog_file import parse
from llmgw.problems import Position, Problem
from llmgw.validation import Checked, check

from .strategies import json_values

Json = dict[str, Any]


def profile(**fields: object) -> Json:
    return {"name": "p", "engine": "stub", **fields}


def model(name: str = "a", **fields: object) -> Json:
    return {"name": name, "profiles": [profile()], **fields}


def launched(**fields: object) -> Json:
    return {"models": [model(profiles=[profile(**fields)])]}


def named(name: str) -> Json:
    return {"models": [model(name)]}


def node(id_: str = "n1", **fields: object) -> Json:
    return {"id": id_, "url": f"http://{id_}:7070", **fields}


AT = "models[0].profiles[0]"

# What is sent, the path of the one problem, words of what is wrong, words of how to mend it.
REFUSED: dict[str, tuple[object, str, str, str]] = {
    # shape
    "no mapping": ([], "", "a catalog is a mapping", "models:"),
    "a field of the wrong name": ({"model": []}, "model", "no field", 'did you mean "models"'),
    "a field of another system": (launched(gpus=2), f"{AT}.gpus", "no field", "accelerators: ["),
    "no profiles": ({"models": [{"name": "a"}]}, "models[0].profiles", "is missing", "add `profiles`"),
    "an empty list of profiles": ({"models": [model(profiles=[])]}, "models[0].profiles", "too few", "at least 1"),
    "a number for text": (launched(args=[8192]), f"{AT}.args[0]", "must be text", "in quotes"),
    "text for a number": (launched(priority="1"), f"{AT}.priority", "whole number", "without quotes"),
    "text for a switch": ({"allow_removals": "yes"}, "allow_removals", "true or false", "without quotes"),
    "one text for arguments": (launched(args="--a --b"), f"{AT}.args", "must be a list", "no shell"),
    "min above max": (
        {"models": [model(replicas={"min": 3, "max": 1})]},
        "models[0].replicas",
        "min 3 is above max 1",
        "correct",
    ),
    "less than no replicas": ({"models": [model(replicas=-1)]}, "models[0].replicas", "out of range", "at least 0"),
    "a unit nobody knows": (launched(host_memory="80G"), f"{AT}.host_memory", "unknown unit 'G'", "GiB"),
    "a time that is no number": (launched(start_limit_s=float("nan")), f"{AT}.start_limit_s", "", ""),
    "a number of 5000 digits": (launched(priority=10**5000), f"{AT}.priority", "out of range", "at most"),
    "a URL without its scheme": ({"nodes": [node(url="gpu-07:7070")]}, "nodes[0].url", "http://", "correct"),
    "suspect after lost": ({"policy": {"suspect_after_s": 90}}, "policy", "above lost_after_s", "correct"),
    "a field of an extension": (
        {"engines": {"e": {"base": "vllm", "heath_path": "/x"}}},
        "engines.e.heath_path",
        "no field",
        'did you mean "health_path"',
    ),
    "a variable with a blank": (launched(env={"A B": "1"}), f'{AT}.env["A B"]', "cannot be a name", "letters, digits"),
    # twice
    "two pools of one name": ({"pools": [{"name": "x"}] * 2}, "pools[1].name", "first as pools[0].name", "take one"),
    "two nodes of one id": (
        {"nodes": [node(), node(url="http://b:1")]},
        "nodes[1].id",
        "first as nodes[0].id",
        "take one",
    ),
    "two nodes at one URL": (
        {"nodes": [node(), node("n2", url="http://N1:7070/")]},
        "nodes[1].url",
        "first as nodes[0].url",
        "take one",
    ),
    "two routers of one id": (
        {"routers": [{"id": "r", "url": "http://a"}, {"id": "r", "url": "http://b"}]},
        "routers[1].id",
        "first as routers[0].id",
        "take one",
    ),
    "two profiles of one name": (
        {"models": [model(profiles=[profile(), profile()])]},
        "models[0].profiles[1].name",
        "there twice",
        "take one",
    ),
    "two models of one name": (
        {"models": [model(), model()]},
        "models[1].name",
        'also the name of model "a" (models[0].name)',
        "belongs to one model",
    ),
    "an alias of two models": (
        {"models": [model(aliases=["x"]), model("b", aliases=["x"])]},
        "models[1].aliases[0]",
        'of model "b" is also an alias of model "a" (models[0].aliases[0])',
        "belongs to one model",
    ),
    "an alias that is a model's name": (
        {"models": [model(aliases=["b"]), model("b")]},
        "models[1].name",
        'also an alias of model "a"',
        "belongs to one model",
    ),
    "a name written with other characters": (
        {"models": [model("caf\u00e9"), model("cafe\u0301")]},
        "models[0].name",
        "looks the same as",
        "the same way",
    ),
    # names that cannot work all the way
    "an empty name": (named(""), "models[0].name", "empty", "another name"),
    "a name of 129 characters": (named("x" * 129), "models[0].name", "longer than 128", "another name"),
    "a name that climbs": (named("../x"), "models[0].name", "`..`", "another name"),
    "a name with an empty part": (named("a//b"), "models[0].name", "must not be empty", "another name"),
    "a name with a blank at its end": (named("a "), "models[0].name", "blank", "another name"),
    "a name with an invisible character": (named("a\u200bb"), "models[0].name", "invisible", "another name"),
    "a name that reads as an option": (named("--port"), "models[0].name", "option", "another name"),
    "a name with half a character": (named("a\ud800"), "models[0].name", "", ""),
    "a comma in a name for llama.cpp": (
        {"models": [model("a,b", weights="hf://o/r/m.gguf", profiles=[profile(engine="llama.cpp")])]},
        f"{AT}.engine",
        "cannot serve a name",
        "another name",
    ),
    # references
    "a pool nobody declared": (launched(pool="gpu"), f"{AT}.pool", 'no pool "gpu"', "declare it"),
    "a node in no pool": ({"nodes": [node(pool="gpu")]}, "nodes[0].pool", 'no pool "gpu"', "declare it"),
    "an engine nobody knows": (launched(engine="vlm"), f"{AT}.engine", 'no engine "vlm"', 'did you mean "vllm"'),
    "an extension of nothing": ({"engines": {"e": {"base": "vlm"}}}, "engines.e.base", "no engine", "vllm"),
    "an extension of an extension": (
        {"engines": {"e": {"base": "vllm"}, "f": {"base": "e"}}},
        "engines.f.base",
        "cannot stand on another",
        "",
    ),
    "an extension called as a row": ({"engines": {"vllm": {"base": "vllm"}}}, "engines.vllm", "built-in", "another"),
    "a kind of router nobody knows": (
        {"routers": [{"id": "r", "url": "http://a", "kind": "nativ"}]},
        "routers[0].kind",
        "no kind of router",
        '"native"',
    ),
    # launches
    "vllm without weights": (launched(engine="vllm"), AT, "no weights", "add `weights`"),
    "weights without a scheme": ({"models": [model(weights="o/r")]}, "models[0].weights", "no scheme", "hf://"),
    "weights that climb": ({"models": [model(weights="file:///w/../etc")]}, "models[0].weights", "`..`", "hf://"),
    "a relative file": ({"models": [model(weights="file://w")]}, "models[0].weights", "absolute", "file:///"),
    "a port of one's own": (launched(args=["--port", "1"]), f"{AT}.args[0]", "not yours", "leave it"),
    "a port in short": (launched(args=["--por=1"]), f"{AT}.args[0]", "short for --port", "leave it"),
    "a double dash": (launched(args=["--"]), f"{AT}.args[0]", "into text", "leave it out"),
    "NUL": (launched(args=["a\x00b"]), f"{AT}.args[0]", "NUL", "take it out"),
    "an unknown placeholder": (launched(args=["${llmgw:prt}"]), f"{AT}.args[0]", "no placeholder", "${llmgw:port}"),
    "an open placeholder": (launched(args=["${llmgw:port"]), f"{AT}.args[0]", "not closed", "${llmgw:port}"),
    "a port nobody declared": (launched(args=["${llmgw:port:x}"]), f"{AT}.args[0]", 'no port "x"', "ports: [x]"),
    "a shell's variable": (launched(env={"A": "${HOME}/x"}), f"{AT}.env.A", "no shell", "the value itself"),
    "devices chosen by hand": (
        launched(env={"CUDA_VISIBLE_DEVICES": "0"}),
        f"{AT}.env.CUDA_VISIBLE_DEVICES",
        "plane chooses",
        "accelerators",
    ),
    "a command for vllm": (
        {"models": [model(weights="hf://o/r", profiles=[profile(engine="vllm", command=["x"])])]},
        f"{AT}.command",
        "for engine command",
        "`args`",
    ),
    "a command without a port": (launched(engine="command", command=["x"]), AT, "its port", "${llmgw:port}"),
    "no command": (launched(engine="command"), AT, "needs a `command`", "list"),
    "no image": (launched(engine="container", args=["${llmgw:port}"]), AT, "needs an `image`", "image to run"),
    "an image that is a flag": (launched(image="--privileged"), f"{AT}.image", "is no image", "registry/name:tag"),
    "a container without a port": (launched(engine="container", image="x:1"), AT, "its port", "${llmgw:port}"),
    # shape, further
    "an exponent as text": (launched(start_limit_s="1e3"), f"{AT}.start_limit_s", "must be a number", "without quotes"),
    "a fraction for a whole number": (launched(weight=1.5), f"{AT}.weight", "whole number", "digits"),
    "a switch for a number": (launched(weight=True), f"{AT}.weight", "whole number", "digits"),
    "a switch for text": (launched(env={"A": True}), f"{AT}.env.A", "must be text", "quotes"),
    "no end": (launched(start_limit_s=float("inf")), f"{AT}.start_limit_s", "finite", "default"),
    "nothing for a list": ({"models": None}, "models", "must be a list", "list"),
    "text for a model": ({"models": ["a"]}, "models[0]", "must be a mapping", "profiles"),
    "a list for variables": (launched(env=["A=1"]), f"{AT}.env", "must be a mapping", "name: value"),
    "less than no memory": (launched(host_memory=-1), f"{AT}.host_memory", "above zero", "MiB"),
    "less than no devices": (
        launched(accelerators=[{"count": -1}]),
        f"{AT}.accelerators[0].count",
        "out of range",
        "at least 1",
    ),
    "devices without number": (
        launched(accelerators=[{"count": 10**30}]),
        f"{AT}.accelerators[0].count",
        "out of range",
        "1,024",
    ),
    "half a character": (launched(args=["\ud800"]), f"{AT}.args[0]", "half a character", "whole"),
    "half a character in a name": ({"models": [model(metadata={"\ud800": ""})]}, "models[0].metadata", "half", "whole"),
    "a URL with a port that is none": ({"nodes": [node(url="http://n:99999")]}, "nodes[0].url", "ort", ""),
    "a URL with a query": ({"nodes": [node(url="http://n/?a=1")]}, "nodes[0].url", "query", ""),
    "a port twice": (launched(ports=["a", "a"]), f"{AT}.ports[1]", "there twice", "take one"),
    # launches, further
    "an address in one item": (launched(args=["--host=::"]), f"{AT}.args[0]", "picks the address", "leave it"),
    "a name in the other spelling": (
        launched(args=["--served_model_name"]),
        f"{AT}.args[0]",
        "model's name",
        "leave it",
    ),
    "a name for llama.cpp": (
        launched(engine="llama.cpp", args=["-hf", "o/r", "-a", "x"]),
        f"{AT}.args[2]",
        "-a is not yours",
        "leave it",
    ),
    "a port in an extension": (
        {"engines": {"e": {"base": "vllm", "args": ["--port=1"]}}},
        "engines.e.args[0]",
        "picks the port",
        "leave it",
    ),
    "weights in args too": (
        launched(engine="vllm", weights="hf://o/r", args=["--model", "x"]),
        f"{AT}.args[0]",
        "already given by `weights`",
        "one of the two",
    ),
    "a revision in args too": (
        launched(engine="vllm", weights="hf://o/r@v1", args=["--revision=v2"]),
        f"{AT}.args[0]",
        "already given by `weights`",
        "one of the two",
    ),
    "weights of a strange scheme": (launched(weights="s3://b/k"), f"{AT}.weights", '"s3" is unknown', "hf://"),
    "weights without a repository": (launched(weights="hf://org"), f"{AT}.weights", "hf://org/repo", "hf://"),
    "weights at the root": (launched(weights="file:///"), f"{AT}.weights", "absolute", "file:///"),
    "NUL in a variable": (launched(env={"A": "\x00"}), f"{AT}.env.A", "NUL", "take it out"),
    "a placeholder in capitals": (launched(args=["${llmgw:PORT}"]), f"{AT}.args[0]", "no placeholder", "${llmgw:port}"),
    "an empty placeholder": (launched(args=["${llmgw:}"]), f"{AT}.args[0]", "no placeholder", ""),
    "weights that are not there": (launched(args=["${llmgw:weights}"]), f"{AT}.args[0]", "no weights", "`weights`"),
    "a shell's defaults": (launched(args=["${A:-${B:-c}}"]), f"{AT}.args[0]", "no shell", "the value itself"),
    "a command and an executable": (
        launched(engine="command", command=["x", "${llmgw:port}"], executable="y"),
        f"{AT}.executable",
        "no executable",
        "command",
    ),
    # secrets
    "a token in env": (launched(env={"HF_TOKEN": "C4NARY+/=7f3a"}), f"{AT}.env.HF_TOKEN", "secret in clear", "secrets"),
    "a key as a flag": (launched(args=["--api-key", "C4NARY7f3a"]), f"{AT}.args[1]", "secret in clear", "secrets"),
    "a key in a flag": (launched(args=["--api-key=C4NARY7f3a"]), f"{AT}.args[0]", "secret in clear", "secrets"),
    "a known token anywhere": (
        {"models": [model(metadata={"x": "hf_C4NARYC4NARYC4NARY"})]},
        "models[0].metadata.x",
        "Hugging Face",
        "secrets",
    ),
    "a secret twice": (
        launched(env={"A": "1"}, secrets={"A": "a"}),
        f"{AT}.env.A",
        "also among `secrets`",
        "one of the two",
    ),
    "a value for a secret's name": (launched(secrets={"A": "C4NARY+="}), f"{AT}.secrets.A", "", "name of a secret"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_catalog_is_refused_with_place_and_mend(case: str) -> None:
    raw, path, what, mend = REFUSED[case]
    checked = check(raw)
    assert checked.catalog is None
    assert [p.path for p in checked.problems] == [path], checked.problems
    assert what in checked.problems[0].what
    assert mend in checked.problems[0].mend


@pytest.mark.parametrize(
    "fields",
    [
        {"args": ["--portable", "-p", "--hostile=1"]},
        {"args": ["$HOME", "$$", "{{x}}", "${}", "a$"]},
        {"args": ["${llmgw:port:kv}"], "ports": ["kv"]},
        {"env": {"CUDA_VISIBLE_DEVICES": ""}},
        {"engine": "llama.cpp", "args": ["-hf", "org/repo:Q4"]},
        {"engine": "vllm", "args": ["--model", "org/repo"]},
        {"engine": "vllm", "weights": "hf://o/r", "args": ["--revision", "v2"]},
        {"engine": "command", "command": ["x"], "env": {"LISTEN": ":${llmgw:port}"}},
        {"weights": "hf://org/repo@refs/pr/1"},
        {"weights": "https://host/a/b.gguf"},
    ],
)
def test_what_only_looks_like_a_mistake_is_accepted(fields: Json) -> None:
    checked = check(launched(**fields))
    assert checked.catalog is not None, checked.problems


def told(checked: Checked) -> str:
    """Everything that is said, in small letters: a secret in another case is still told."""
    return "\n".join(map(str, (*checked.problems, *checked.warnings))).casefold()


@pytest.mark.parametrize("case", REFUSED)
def test_no_problem_quotes_what_could_be_a_secret(case: str) -> None:
    assert "c4nary" not in told(check(REFUSED[case][0]))


@pytest.mark.parametrize(
    "raw",
    [
        {"nodes": [node(url="http://u:C4NARY@h"), node("n2", url="http://u:C4NARY@h")]},
        launched(args=["${TOKEN:-C4NARY}"]),
        launched(env={"A": {"b": "C4NARY"}}, args="C4NARY"),
        launched(weights="https://u:C4NARY@h/x"),
    ],
    ids=["URL twice", "a shell's default", "wrong shapes", "weights"],
)
def test_no_way_of_being_refused_quotes_a_secret(raw: object) -> None:
    checked = check(raw)
    assert checked.problems
    assert "c4nary" not in told(checked)


USABLE = (
    "Qwen/Qwen3-30B-A3B-FP8",
    "qwen3:4b",
    "pair01.gemma-26b",
    "模型-7b",
    "γ-model",
    "x" * 120,
    "a--b",
    "a b",
    ".hidden",
    "con",
)


@pytest.mark.parametrize("name", USABLE)
def test_a_name_that_clients_use_is_kept_byte_for_byte(name: str) -> None:
    checked = check(named(name))
    assert checked.problems == ()
    assert checked.catalog is not None
    assert checked.catalog.models[0].name == name


WARNED: dict[str, tuple[Json, str, str]] = {
    "case alone": ({"models": [model("Llama-3.1"), model("llama-3.1")]}, "models[1].name", "only in case"),
    "own name as alias": ({"models": [model(aliases=["a"])]}, "models[0].aliases[0]", "already the name of model"),
    "no models": ({"models": []}, "models", "everything that runs is removed"),
    "idle without room": ({"models": [model(idle_timeout_s=60)]}, "models[0].idle_timeout_s", "nothing ever stops"),
    "too large for all nodes": (
        {
            "nodes": [node(devices=[{"count": 2, "kind": "H100", "memory": "80GB"}])],
            **launched(accelerators=[{"count": 4, "kind": "h100"}]),
        },
        AT,
        "it asks 4 × h100 on one node; the largest, n1, has 2 × H100",
    ),
    "two items that need the same devices": (
        {
            "nodes": [node(devices=[{"count": 2, "kind": "h100"}, {"count": 4, "kind": "l4"}])],
            **launched(accelerators=[{"count": 2, "kind": "h100"}, {"count": 1, "kind": "h100"}]),
        },
        AT,
        "no declared node could ever hold",
    ),
    "no node in the pool": (
        {"pools": [{"name": "g"}], "nodes": [node()], **launched(pool="g")},
        AT,
        "no node is in pool g",
    ),
    "a revision that cannot be told": (
        {"models": [model(weights="hf://o/r/m.gguf@v1", profiles=[profile(engine="llama.cpp")])]},
        AT,
        "cannot be told the revision v1",
    ),
    "weights that name no file": (
        {"models": [model(weights="hf://o/r", profiles=[profile(engine="llama.cpp")])]},
        AT,
        "loads one .gguf file",
    ),
    "a canary of more than all": (
        {"models": [model(canary={"replicas": 3}, replicas=2)]},
        "models[0].canary.replicas",
        "a canary of 3 replicas is more than the model ever has (2)",
    ),
    "a node listed twice": (
        {"nodes": [node()], **launched(nodes=["n1", "n1"])},
        f"{AT}.nodes[1]",
        '"n1" is there twice',
    ),
    "nodes listed in two cases": (
        {"nodes": [node("n1"), node("N2"), node("n3")], **launched(nodes=["n3", "N2", "n1", "n3"])},
        f"{AT}.nodes[3]",
        '"n3" is there twice',
    ),
    "devices listed in two cases": (
        launched(accelerators=[{"count": 1, "devices": ["GPU-1", "gpu-1"]}]),
        f"{AT}.accelerators[0].devices[1]",
        'differs only in case from "GPU-1"',
    ),
    "nodes that differ in case": (
        {"nodes": [node("n1"), node("N1", url="http://n2:1")], **launched()},
        "nodes[1].id",
        'differs only in case from "n1" (nodes[0].id): two of them',
    ),
    "routers that differ in case": (
        {"routers": [node("r"), node("R", url="http://n2:1")], **launched()},
        "routers[1].id",
        "differs only in case",
    ),
    "pools that differ in case": ({"pools": [{"name": "g"}, {"name": "G"}], **launched()}, "pools[1].name", "in case"),
    "a preference against what is required": (
        launched(labels={"t": "a"}, prefer_labels={"t": "b", "u": "c"}),
        f"{AT}.prefer_labels.t",
        "t=b is preferred, and t=a is required",
    ),
    "zones without any": (
        {"nodes": [node()], "models": [model(spread_zones=True)]},
        "models[0].spread_zones",
        "in a zone",
    ),
    "more than all devices": (
        {
            "nodes": [node(devices=[{"count": 2, "kind": "H100"}])],
            "models": [model(replicas=3, profiles=[profile(accelerators=[{"count": 1}])])],
        },
        "models[0].replicas",
        "3 replicas are wanted, of 1 device each, and all declared nodes have 2 together",
    ),
}

NOT_WARNED: dict[str, Json] = {
    "a canary of all": {"models": [model(canary={"replicas": 2}, replicas=2)]},
    "a canary of what is off": {"models": [model(canary={"replicas": 2}, replicas=0)]},
    "as many as there are devices": {
        "nodes": [node(devices=[{"count": 2, "kind": "H100"}])],
        "models": [model(replicas=2, profiles=[profile(accelerators=[{"count": 1}])])],
    },
    "more than the devices of nodes that say nothing of theirs": {
        "nodes": [node(devices=[{"count": 2, "kind": "H100"}]), node("n2")],
        "models": [model(replicas=9, profiles=[profile(accelerators=[{"count": 1}])])],
    },
    "more than all devices where they may be shared": {
        "nodes": [node(devices=[{"count": 2, "kind": "H100"}])],
        "models": [model(replicas=9, profiles=[profile(accelerators=[{"count": 1, "claim": "8GiB"}])])],
    },
    "zones where one node has one": {
        "nodes": [node(), node("n2", zone="z")],
        "models": [model(spread_zones=True)],
    },
    "a preference for what is required": launched(labels={"t": "a"}, prefer_labels={"t": "a"}),
}


@pytest.mark.parametrize("case", NOT_WARNED)
def test_what_may_well_be_meant_gives_no_warning(case: str) -> None:
    checked = check(NOT_WARNED[case])
    assert checked.catalog is not None, checked.problems
    assert checked.warnings == ()


@pytest.mark.parametrize(
    "url",
    ["http://n1:7070", "http://n1:7070/", "HTTP://N1:7070", "http://me:secret@n1:7070"],
)
@pytest.mark.parametrize("section", ["nodes", "routers"])
def test_one_address_is_one_node_or_router_however_it_is_written(section: str, url: str) -> None:
    others = [{"id": "other", "url": url}]
    raw = (
        {**launched(), "nodes": [node(), *others]}
        if section == "nodes"
        else {**launched(), "nodes": [node()], section: others}
    )
    found = [p for p in check(raw).problems if "is there twice" in p.what]
    assert [p.path for p in found] == [f"{section}[{1 if section == 'nodes' else 0}].url"]
    assert found[0].what == 'the URL "http://n1:7070" is there twice; first as nodes[0].url'


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://n1", "http://n1:80", True),
        ("https://n1:443/a", "https://N1/a/", True),
        ("http://n1:443", "https://n1:443", False),
        ("http://n1/a", "http://n1/A", False),
        ("http://n1:8080", "http://n1:80", False),
    ],
)
def test_default_ports_are_no_difference_and_paths_are(one: str, other: str, same: bool) -> None:
    raw = {**launched(), "nodes": [node("a", url=one), node("b", url=other)]}
    assert any("is there twice" in p.what for p in check(raw).problems) is same


@pytest.mark.parametrize("case", WARNED)
def test_a_doubtful_catalog_is_accepted_with_a_warning(case: str) -> None:
    raw, path, what = WARNED[case]
    checked = check(raw)
    assert checked.catalog is not None, checked.problems
    assert [w.path for w in checked.warnings] == [path], checked.warnings
    assert what in checked.warnings[0].what


BROKEN = """\
pools:
  - name: gpu
nodes:
  - {id: n1, url: "http://n1:7070", pool: gpus}
models:
  - name: qwen
    aliases: [chat, fast]
    profiles:
      - name: tp2
        engine: vlm
  - name: llama
    aliases:
      - fast
      - chat
    replica: 2
    profiles:
      - name: tp1
        engine: stub
        env:
          HF_TOKEN: C4NARY7f3a
"""


def test_every_problem_is_told_at_once_in_the_order_of_the_document() -> None:
    source = parse(BROKEN)
    checked = check(source.raw, source.lines)
    assert checked.catalog is None
    assert [(p.path, p.line) for p in checked.problems] == [
        ("nodes[0].pool", 4),
        ("models[0].profiles[0].engine", 10),
        ("models[1].aliases[0]", 13),
        ("models[1].aliases[1]", 14),
        ("models[1].replica", 15),
        ("models[1].profiles[0].env.HF_TOKEN", 20),
    ]
    assert 'an alias of model "qwen" (models[0].aliases[1], line 7)' in checked.problems[2].what
    assert checked.problems[4].mend == 'did you mean "replicas"?'


def test_without_positions_problems_are_in_the_order_of_their_paths() -> None:
    checked = check({"models": [model(f"m{i}", bad=1) for i in range(11)]})
    assert [p.path for p in checked.problems] == [f"models[{i}].bad" for i in range(11)]


def test_what_is_missing_is_placed_at_what_it_is_missing_from() -> None:
    checked = check({"models": [{"name": "a"}]}, {(): Position(1, 1), ("models", 0): Position(2, 5)})
    assert checked.problems == (
        Problem("models[0].profiles", "`profiles` is missing", "add `profiles`", line=2, column=5),
    )


@pytest.mark.parametrize(("limit", "accepted"), [(10_000, True), (50, False)])
def test_a_catalog_over_its_limit_is_refused(limit: int, accepted: bool) -> None:
    checked = check({"models": [model()]}, limit_bytes=limit)
    assert (checked.catalog is not None) == accepted
    assert accepted or "send it compressed" in checked.problems[0].mend


@given(json_values())
def test_no_json_makes_the_verdict_raise(raw: object) -> None:
    checked = check(raw)
    assert (checked.catalog is None) == bool(checked.problems)
    assert all(p.what for p in checked.problems)


@given(json_values(), json_values())
def test_no_json_inside_a_model_makes_the_verdict_raise(one: object, other: object) -> None:
    raw = {"models": [model(aliases=one, profiles=[profile(args=other, env=one, weights=other)])], "nodes": [one]}
    json.dumps([str(p) for p in check(raw).problems])
