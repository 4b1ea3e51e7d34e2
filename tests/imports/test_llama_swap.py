"""llama-swap's commands, macros, names and limits, as they become profiles."""

import pytest

from llmgw.importing.account import Fate
from llmgw.importing.importer import Imported, Refused, imported
from tests.imports.files import PORT, accepted, changed, lost, models, of, profile


def test_llama_swap_s_commands_become_engines_with_their_arguments_in_order() -> None:
    found = accepted("llama-swap", "aider-qwq-coder.yaml")
    coder = profile(found, "qwen-coder-32B")
    assert coder["engine"] == "llama.cpp"
    assert coder["executable"] == "/path/to/llama-server"
    assert coder["weights"] == "file:///path/to/Qwen2.5-Coder-32B-Instruct-Q4_K_M.gguf"
    assert coder["accelerators"] == [{"count": 1}]
    assert coder["start_limit_s"] == 300
    assert coder["args"][:4] == ["--flash-attn", "--slots", "--ctx-size", "16000"]
    samplers = profile(found, "QwQ")["args"]
    assert samplers[samplers.index("--samplers") + 1] == "top_k;top_p;min_p;temperature;dry;typ_p;xtc"
    assert models(found)["qwen-coder-32B"]["aliases"] == ["coder"]
    assert changed(found, "--port", "the node picks the port")
    assert changed(found, "CUDA_VISIBLE_DEVICES", "the plane chooses the devices")


def test_llama_swap_s_macros_are_put_in_and_nested_ones_too() -> None:
    found = of(
        "llama-swap",
        """
        macros: {server: "llama-server --port ${PORT}", args: "-c ${ctx} ${kind}", kind: "-ctk q8_0", ctx: 4096}
        models:
          a: {macros: {ctx: 16384}, cmd: "${server} -m /m/a.gguf ${args}", ttl: 60}
          b: {cmd: "${server} -m /m/b.gguf ${args} -a ${MODEL_ID}-name", ttl: 0}
        globalTTL: 900
        """,
    )
    assert profile(found, "a")["args"] == ["-c", "16384", "-ctk", "q8_0"]
    assert profile(found, "b")["args"] == ["-c", "4096", "-ctk", "q8_0"]
    assert models(found)["a"]["idle_timeout_s"] == 60
    assert "idle_timeout_s" not in models(found)["b"]
    assert models(found)["b"]["aliases"] == ["b-name"]


@pytest.mark.parametrize(
    ("ttl", "expected"), [("ttl: -1", 900), ("ttl: 30", 30), ("ttl: 0", None), ("name: x", 900)], ids=str
)
def test_llama_swap_s_ttl_of_minus_one_inherits_and_of_zero_is_never(ttl: str, expected: int | None) -> None:
    found = of("llama-swap", f"{{globalTTL: 900, models: {{m: {{cmd: llama-server -m /m.gguf, {ttl}}}}}}}")
    assert models(found)["m"].get("idle_timeout_s") == expected


def test_sleep_in_place_of_a_stop_is_carried_over_for_what_can_sleep_and_is_idle_for_a_time() -> None:
    found = of(
        "llama-swap",
        """
        models:
          deep:
            cmd: vllm serve org/m --port ${PORT} --enable-sleep-mode
            ttl: 60
            sleepMode: enable
            sleepEndpoints: [{endpoint: "/sleep?level=2", method: POST}]
            wakeEndpoints: [{endpoint: /wake_up}, {endpoint: /collective_rpc, body: '{"method": "reload_weights"}'}]
          light: {cmd: "vllm serve org/n --port ${PORT}", ttl: 60, sleepEndpoints: [{endpoint: "/sleep?level=1"}]}
          ever: {cmd: "vllm serve org/o --port ${PORT}", sleepEndpoints: [{endpoint: "/sleep?level=1"}]}
          other: {cmd: llama-server -m /m.gguf, ttl: 60, sleepEndpoints: [{endpoint: /sleep}]}
          plain: {cmd: "vllm serve org/p --port ${PORT}", ttl: 60, wakeEndpoints: [{endpoint: /wake_up}]}
        """,
    )
    told = {name: (model.get("idle"), model.get("sleep_level")) for name, model in models(found).items()}
    assert told == {
        "deep": ("sleep", 2),
        "light": ("sleep", None),
        "ever": (None, None),
        "other": (None, None),
        "plain": (None, None),
    }
    assert changed(found, "sleepEndpoints", "`idle: sleep`")
    assert changed(found, "--enable-sleep-mode", "only where its model says `idle: sleep`")
    assert lost(found, "sleepEndpoints", "what is idle for its ttl")
    assert lost(found, "wakeEndpoints", "no endpoint")


def test_a_name_that_two_models_claim_stays_with_the_first_and_each_loss_names_both() -> None:
    aliases = ["hermes-agent", "agent-primary", "qwen36-agent"]
    found = of(
        "llama-swap",
        f"""
        models:
          one: {{cmd: llama-server -m /a.gguf, aliases: {aliases}}}
          two: {{cmd: llama-server -m /b.gguf, aliases: {[*aliases, "own"]}}}
        """,
    )
    assert models(found)["one"]["aliases"] == aliases
    assert models(found)["two"]["aliases"] == ["own"]
    for alias in aliases:
        assert lost(found, f'"{alias}"', '"one"', '"two"')


def test_a_fixed_port_that_a_command_shares_with_its_proxy_becomes_the_node_s() -> None:
    found = of(
        "llama-swap",
        'models: {m: {cmd: "/opt/serve --listen 127.0.0.1:9001 x9001", proxy: "http://127.0.0.1:9001"}}',
    )
    assert profile(found, "m")["command"] == ["/opt/serve", "--listen", f"127.0.0.1:{PORT}", "x9001"]


def test_a_command_that_nothing_tells_its_port_does_not_run_before_somebody_looks() -> None:
    found = of("llama-swap", "models: {m: {cmd: some-upstream-server}}")
    assert models(found)["m"]["replicas"] == 0
    assert profile(found, "m")["command"] == ["some-upstream-server", "--port", PORT]
    assert lost(found, "models.m.cmd", "port")


def test_a_container_of_a_known_engine_is_that_engine_in_its_image() -> None:
    key = "hf_" + "a1B2" * 6
    found = of(
        "llama-swap",
        f"""
        models:
          m:
            cmd: |
              docker run --rm --gpus '"device=0,1"' -e HF_TOKEN={key} -e OTHER_TOKEN=${{env.OTHER_TOKEN}} -e A=b
              # --ipc=host
              --shm-size 8g -p ${{PORT}}:8000 -v ${{HOME}}/.cache:/root/.cache -it
              nvcr.io/nvidia/vllm@sha256:ab vllm serve org/m --port 8000 --hf-overrides '{{"a": "b c"}}' --empty ""
        """,
    )
    launched = profile(found, "m")
    assert (launched["engine"], launched["image"]) == ("vllm", "nvcr.io/nvidia/vllm@sha256:ab")
    assert launched["args"] == ["--hf-overrides", '{"a": "b c"}', "--empty", ""]
    assert launched["weights"] == "hf://org/m"
    assert launched["accelerators"] == [{"count": 2}]
    assert launched["env"] == {"A": "b"}
    assert launched["secrets"] == {"HF_TOKEN": "hf-token", "OTHER_TOKEN": "other-token"}
    assert key not in str(found)
    for flag in ("--gpus", "--shm-size", "-p", "-v"):
        assert lost(found, f"{flag}: ", "flags of docker")


def test_an_image_is_known_by_its_name_and_weights_by_where_they_are_mounted_from() -> None:
    found = accepted("llama-swap", "config.example.yaml")
    launched = profile(found, "docker-llama")
    assert (launched["engine"], launched["executable"]) == ("llama.cpp", "/app/llama-server")
    assert launched["image"] == "ghcr.io/ggml-org/llama.cpp:server"
    assert launched["weights"] == "file:///mnt/nvme/models/Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf"


def test_an_image_of_another_kind_is_told_the_port_that_was_published() -> None:
    found = of("llama-swap", "models: {m: {cmd: 'podman run --rm -p ${PORT}:8080/tcp acme/serve:1 --listen 8080 -v'}}")
    launched = profile(found, "m")
    assert (launched["engine"], launched["image"]) == ("container", "acme/serve:1")
    assert launched["args"] == ["--listen", PORT, "-v"]


def test_a_container_that_cannot_be_told_its_port_stays_a_command_and_its_secrets_are_named_only() -> None:
    key = "hf_" + "a1B2" * 6
    found = of("llama-swap", f"models: {{m: {{cmd: 'docker run -e HF_TOKEN={key} -p ${{PORT}}:80 acme/serve:1'}}}}")
    launched = profile(found, "m")
    assert launched["command"] == ["docker", "run", "-e", "HF_TOKEN", "-p", f"{PORT}:80", "acme/serve:1"]
    assert launched["secrets"] == {"HF_TOKEN": "hf-token"}
    assert key not in str(found)


def test_what_nobody_would_expand_is_lost_and_said() -> None:
    found = of("llama-swap", 'models: {m: {cmd: "llama-server -m /m.gguf --lora ${env.HOME}/l.gguf -c 1"}}')
    assert profile(found, "m")["args"] == ["-c", "1"]
    assert lost(found, "--lora", "nothing would expand it")


def test_devices_pinned_by_uuid_are_counted() -> None:
    found = of(
        "llama-swap",
        "models: {m: {env: ['CUDA_VISIBLE_DEVICES=GPU-1,GPU-2,GPU-3', 'A=b c'], cmd: vllm serve org/m -tp 3}}",
    )
    assert profile(found, "m")["accelerators"] == [{"count": 3}]
    assert profile(found, "m")["weights"] == "hf://org/m"
    assert profile(found, "m")["env"] == {"A": "b c"}


def test_a_health_path_of_its_own_makes_an_engine_of_its_own() -> None:
    found = accepted("llama-swap", "config.example.yaml")
    name = profile(found, "gpt-oss-120b")["engine"]
    assert found.catalog["engines"] == {name: {"base": "llama.cpp", "health_path": "/custom-endpoint"}}
    assert models(found)["gpt-oss-120b"]["idle_timeout_s"] == 60
    assert "sk-hunter2" not in str(found)


def test_a_preloaded_model_is_kept_and_the_queue_s_priority_counts() -> None:
    found = of(
        "llama-swap",
        """
        hooks: {on_startup: {preload: [b-alias]}}
        routing: {scheduler: {use: fifo, settings: {fifo: {priority: {a: 10, gone: 3}}}}}
        models: {a: {cmd: llama-server -m /a.gguf}, b: {cmd: llama-server -m /b.gguf, aliases: [b-alias]}}
        """,
    )
    assert models(found)["a"]["priority"] == 10
    assert models(found)["a"]["replicas"] == {"min": 0, "max": 1}
    assert "replicas" not in models(found)["b"]
    assert lost(found, "gone", "no model of that name")


def test_an_empty_argument_and_a_server_of_another_kind_are_kept() -> None:
    found = of(
        "llama-swap",
        """
        models:
          whisper:
            checkEndpoint: /v1/audio/transcriptions/
            cmd: >
              whisper-server --port ${PORT} -m /models/whisper.bin --inference-path ""
        """,
    )
    command = profile(found, "whisper")["command"]
    assert command[-2:] == ["--inference-path", ""]
    assert PORT in command


@pytest.mark.parametrize(
    ("cmd", "engine", "weights"),
    [
        ("/opt/v/bin/vllm serve o/m --max-model-len 1", "vllm", "hf://o/m"),
        ("python3 -m vllm.entrypoints.openai.api_server --model o/m --port 1", "vllm", "hf://o/m"),
        ("python -m sglang.launch_server --model-path o/m --port 1 --host 0.0.0.0", "sglang", "hf://o/m"),
        ("trtllm-serve serve o/m --port 1", "tensorrt-llm", "hf://o/m"),
        ("text-generation-launcher --model-id o/m --port 1", "tgi", "hf://o/m"),
        ("llama-server-b9 -m /w/m.gguf --alias x --port 1", "llama.cpp", "file:///w/m.gguf"),
    ],
    ids=str,
)
def test_a_command_line_is_known_by_its_program(cmd: str, engine: str, weights: str) -> None:
    found = imported("llama-swap", {"models": {"m": {"cmd": cmd}}})
    assert isinstance(found, Imported)
    assert profile(found, "m")["engine"] == engine
    assert profile(found, "m")["weights"] == weights
    assert "--port" not in profile(found, "m").get("args", [])


# --- values that the file only names -------------------------------------------------------------------------------


def read(raw: object) -> Imported:
    found = imported("llama-swap", raw)
    assert isinstance(found, Imported)
    return found


REFERENCES = {
    "the home folder": ("${HOME}", "FILL-IN-HOME"),
    "the environment as newer versions name it": ("${env.MODELS}", "FILL-IN-MODELS"),
    "a macro that nobody defines": ("${model-dir}", "FILL-IN-model-dir"),
    "as Kubernetes writes it": ("$(MODELS)", "FILL-IN-MODELS"),
}


@pytest.mark.parametrize("case", REFERENCES)
@pytest.mark.parametrize(
    ("cmd", "engine"),
    [("llama-server --port ${PORT} -m %s/a.gguf -ngl 9", "llama.cpp"), ("vllm serve %s/a --port ${PORT}", "vllm")],
)
def test_weights_that_an_environment_names_are_marked_and_the_model_stays(case: str, cmd: str, engine: str) -> None:
    """It is there with 0 replicas; the reason names what is to be written, and never a lack of weights."""
    reference, mark = REFERENCES[case]
    found = read({"models": {"m": {"cmd": cmd % reference, "ttl": 60}}})
    [model] = models(found).values()
    [profile] = model["profiles"]
    assert (model["replicas"], profile["engine"]) == (0, engine)
    assert profile["weights"] == f"file:///{mark}/a{'.gguf' if engine == 'llama.cpp' else ''}"
    told = [(r.fate, r.what, r.why) for r in found.remarks]
    assert (Fate.CHANGED, mark, f'stands for "{reference}", which nothing expands here: write its value') in told
    assert (Fate.ASSUMED, "", f"write what {mark} stands for, then set its replicas: 0 until then") in told
    assert not any("no weights" in r.why for r in found.remarks)


def test_a_program_and_an_argument_that_an_environment_names_are_marked_too() -> None:
    cmd = "${HOME}/bin/my-server --port ${PORT} --root ${env.ROOT}/x --plain y"
    found = read(
        {"macros": {"bin": "${HOME}/llama-server"}, "models": {"a": {"cmd": cmd}, "b": {"cmd": "${bin} -m /m"}}}
    )
    own, llama = (model["profiles"][0] for model in list(models(found).values()))
    assert own["command"] == [
        "/FILL-IN-HOME/bin/my-server",
        "--port",
        "${llmgw:port}",
        "--root",
        "/FILL-IN-ROOT/x",
        "--plain",
        "y",
    ]
    assert (llama["executable"], llama["weights"]) == ("/FILL-IN-HOME/llama-server", "file:///m")
    assert [model["replicas"] for model in list(models(found).values())] == [0, 0]


def test_a_secret_that_an_environment_names_is_never_a_mark() -> None:
    found = read({"models": {"m": {"cmd": "llama-server -m /m --api-key ${env.LLAMA_KEY} --port ${PORT}"}}})
    [model] = models(found).values()
    assert "FILL-IN" not in str(model)
    assert model["profiles"][0]["secrets"] == {"LLAMA_API_KEY": "llama-api-key"}


# --- groups --------------------------------------------------------------------------------------------------------

SERVERS = "{a: {cmd: llama-server -m /a}, b: {cmd: llama-server -m /b}, c: {cmd: llama-server -m /c}}"
IN_PLACES = {"as they were": "groups: %s", "as they are": "routing: {router: {use: group, settings: {groups: %s}}}"}


@pytest.mark.parametrize("place", IN_PLACES)
def test_members_of_a_group_that_swaps_keep_apart(place: str) -> None:
    groups = "{big one: {members: [a, b, nobody]}, side: {swap: false, members: [c]}}"
    found = of("llama-swap", f"models: {SERVERS}\n{IN_PLACES[place] % groups}")
    assert {name: m.get("exclusive_group") for name, m in models(found).items()} == {
        "a": "big-one",
        "b": "big-one",
        "c": None,
    }
    assert lost(found, "there is no model of that name")
    assert changed(found, "side.members", "it runs beside the others where there are devices")


def test_what_a_group_does_to_others_is_told_as_lost() -> None:
    groups = "{g: {swap: true, exclusive: true, persistent: true, members: [a, b]}}"
    found = of("llama-swap", f"models: {SERVERS}\ngroups: {groups}")
    assert lost(found, "groups.g.exclusive")
    assert lost(found, "groups.g.persistent", "replicas: {min: 1}")


def test_a_list_of_repositories_is_refused_as_what_it_is() -> None:
    found = imported("llama-swap", {"commands": {"default": "vllm serve ${model}"}, "models": ["org/a", "org/b"]})
    assert isinstance(found, Refused)
    assert "does not say how each is launched" in found.finding.what
