"""What single features of other tools become, and how what cannot be carried over is told."""

from typing import Any

import pytest
import yaml

from llmgw.importing.account import Fate
from llmgw.importing.importer import Imported, Refused, imported
from tests.imports.files import accepted

PORT = "${llmgw:port}"


def of(kind: str, text: str) -> Imported:
    documents = [document for document in yaml.safe_load_all(text) if document is not None]
    found = imported(kind, documents[0] if len(documents) == 1 else documents)
    assert isinstance(found, Imported), found
    return found


def models(found: Imported) -> dict[str, Any]:
    listed: Any = found.catalog["models"]
    return {model["name"]: model for model in listed}


def profile(found: Imported, name: str) -> Any:
    return models(found)[name]["profiles"][0]


def told(found: Imported | Refused, fate: Fate = Fate.LOST) -> list[str]:
    return [
        f"{'.'.join(map(str, remark.at))}: {remark.what}: {remark.why}"
        for remark in found.remarks
        if remark.fate is fate
    ]


def lost(found: Imported | Refused, *words: str) -> bool:
    return any(all(word in line for word in words) for line in told(found))


def changed(found: Imported | Refused, *words: str) -> bool:
    return any(all(word in line for word in words) for line in told(found, Fate.CHANGED))


# --- llama-swap ----------------------------------------------------------------------------------------------------


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


def test_a_container_is_a_command_and_its_secrets_are_named_only() -> None:
    key = "hf_" + "a1B2" * 6
    found = of(
        "llama-swap",
        f"""
        models:
          m:
            cmd: |
              docker run --gpus all -e HF_TOKEN={key} -e OTHER_TOKEN=${{env.OTHER_TOKEN}} -p ${{PORT}}:8000
              # --ipc=host
              vllm/vllm-openai:v1 --model org/m --hf-overrides '{{"a": "b c"}}' --empty ""
        """,
    )
    launched = profile(found, "m")
    assert launched["command"] == [
        *["docker", "run", "--gpus", "all", "-e", "HF_TOKEN", "-e", "OTHER_TOKEN", "-p", f"{PORT}:8000"],
        *["vllm/vllm-openai:v1", "--model", "org/m", "--hf-overrides", '{"a": "b c"}', "--empty", ""],
    ]
    assert launched["secrets"] == {"HF_TOKEN": "hf-token", "OTHER_TOKEN": "other-token"}
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


# --- KubeAI --------------------------------------------------------------------------------------------------------


def test_kubeai_s_resource_profile_is_a_kind_a_memory_and_a_count() -> None:
    found = accepted("kubeai", "charts-models-values.yaml")
    assert len(models(found)) == 47
    h100 = profile(found, "deepseek-r1-mi300x")
    assert h100["accelerators"] == [{"count": 8, "kind": "mi300x"}]
    asked = [p.get("accelerators") for model in models(found).values() for p in model["profiles"]]
    assert asked.count([{"count": 8, "kind": "a100", "memory": "80GB"}]) == 1
    assert models(found)["llama-3.1-8b-instruct-cpu"]["replicas"] == 0
    assert "accelerators" not in profile(found, "llama-3.1-8b-instruct-cpu")


def test_kubeai_s_resources_come_as_several_documents_and_other_kinds_are_told() -> None:
    model = "{apiVersion: kubeai.org/v1, kind: Model, metadata: {name: %s}, spec: {engine: VLLM, url: 'hf://a/%s', %s}}"
    found = of(
        "kubeai",
        "\n---\n".join(
            [
                model % ("one", "b", "minReplicas: 2, maxReplicas: 3, resourceProfile: 'nvidia-gpu-l4:2'"),
                "{apiVersion: v1, kind: Secret, metadata: {name: s}}",
                model % ("two", "c", "replicas: 4, env: {HF_TOKEN: abc}, args: [--api-key, sk-1234567890123456789]"),
            ]
        ),
    )
    assert models(found)["one"]["replicas"] == {"min": 2, "max": 3}
    assert profile(found, "two")["secrets"] == {"VLLM_API_KEY": "vllm-api-key", "HF_TOKEN": "hf-token"}
    assert lost(found, "1: ", "a secret or settings of Kubernetes")
    assert "sk-1234567890123456789" not in str(found)


def test_an_engine_that_llmgw_has_not_is_named_and_its_model_waits_to_be_filled_in() -> None:
    found = accepted("kubeai", "charts-models-values.yaml")
    model = models(found)["gemma2-2b-cpu"]
    assert model["replicas"] == 0
    assert model["profiles"][0]["engine"] == "command"
    assert lost(found, "catalog.gemma2-2b-cpu.engine", "VLLM")
    assert lost(found, "catalog.gemma2-2b-cpu.url", "ollama://")


def test_adapters_are_refused_by_name() -> None:
    assert lost(accepted("kubeai", "vllm-with-adapters.yaml"), "spec.adapters", "an adapter cannot be a public name")


# --- LiteLLM -------------------------------------------------------------------------------------------------------


def test_litellm_s_names_of_one_backend_are_one_model_with_aliases() -> None:
    found = accepted("litellm", "user-sampling-variants.yaml")
    (model,) = models(found).values()
    assert [model["name"], *model["aliases"]] == [
        "qwen3.5-35b-think-general",
        "qwen3.5-35b-think-code",
        "qwen3.5-35b-instruct-general",
        "qwen3.5-35b-instruct-reasoning",
    ]
    assert model["replicas"] == 0
    assert lost(found, "litellm_params.temperature", "passed on unchanged")


def test_litellm_s_endpoints_are_replicas_and_aliases_and_clouds_are_told() -> None:
    found = of(
        "litellm",
        """
        model_list:
          - {model_name: chat, litellm_params: {model: hosted_vllm/Qwen/Qwen3-8B, api_base: "http://10.0.0.1:8000/v1"}}
          - {model_name: chat, litellm_params: {model: hosted_vllm/Qwen/Qwen3-8B, api_base: "http://10.0.0.2:8000/v1"}}
          - {model_name: gpt, litellm_params: {model: azure/gpt-4o, api_base: "https://x.openai.azure.com"}}
          - {model_name: local, litellm_params: {model: openai/x, api_base: "http://spark.lan:1"}, model_info: {id: 3}}
          - {model_name: "openai/*", litellm_params: {model: "openai/*"}}
        router_settings: {model_group_alias: {default: chat, other: gone}, fallbacks: [{chat: [gpt]}]}
        """,
    )
    assert set(models(found)) == {"chat", "local"}
    assert models(found)["chat"]["replicas"] == 2
    assert models(found)["chat"]["aliases"] == ["default"]
    assert profile(found, "chat")["weights"] == "hf://Qwen/Qwen3-8B"
    assert lost(found, "model_list.2", "somebody else's")
    assert lost(found, "fallbacks", "one model does not stand in for another")


def test_a_file_with_clouds_only_is_refused_and_names_each() -> None:
    found = imported(
        "litellm",
        {"model_list": [{"model_name": "g", "litellm_params": {"model": "gpt-4o", "api_key": "os.environ/K"}}]},
    )
    assert isinstance(found, Refused)
    assert lost(found, "model_list.0", "somebody else's")


# --- Ray -----------------------------------------------------------------------------------------------------------


def test_ray_s_configuration_becomes_flags_kind_and_bounds() -> None:
    found = accepted("ray", "llama_3dot1_8b_lora.yaml")
    launched = profile(found, "meta-llama/Meta-Llama-3.1-8B-Instruct-Fine-Tuned")
    assert launched["args"] == ["--max-model-len", "2048", "--enable-lora", "--enforce-eager"]
    assert launched["weights"] == "hf://meta-llama/Llama-3.1-8B-Instruct"
    assert launched["accelerators"] == [{"count": 1, "kind": "a10g"}]
    old = accepted("ray", "rayllm-model-llama-2-70b.yaml")
    assert profile(old, "meta-llama/Llama-2-70b-chat-hf")["accelerators"] == [
        {"count": 4, "kind": "a100", "memory": "80GB"}
    ]
    assert models(old)["meta-llama/Llama-2-70b-chat-hf"]["replicas"] == {"min": 1, "max": 2}


def test_ray_s_applications_hold_models_and_names_of_files() -> None:
    found = of(
        "ray",
        """
        applications:
          - name: llm
            import_path: ray.serve.llm:build_openai_app
            args:
              llm_configs:
                - model_loading_config: {model_id: r1, model_source: deepseek-ai/DeepSeek-R1}
                  accelerator_type: H100
                  engine_kwargs: {tensor_parallel_size: 8, pipeline_parallel_size: 2, enable_prefix_caching: false}
                  deployment_config: {num_replicas: 3}
                - ./models/other.yaml
        """,
    )
    assert profile(found, "r1")["accelerators"] == [{"count": 16, "kind": "h100"}]
    assert profile(found, "r1")["args"][-1] == "--no-enable-prefix-caching"
    assert models(found)["r1"]["replicas"] == 3
    assert lost(found, "llm_configs.1", "import that file")


# --- production-stack ----------------------------------------------------------------------------------------------


def test_production_stack_s_token_in_clear_text_is_never_shown() -> None:
    found = accepted("production-stack", "values-04-multiple-models.yaml")
    llama = profile(found, "meta-llama/Llama-3.1-8B-Instruct")
    assert models(found)["meta-llama/Llama-3.1-8B-Instruct"]["aliases"] == ["llama3"]
    assert llama["secrets"] == {"HF_TOKEN": "hf-token"}
    assert llama["host_memory"] == "16GiB"
    assert llama["image"] == "vllm/vllm-openai:latest"
    assert llama["args"][:2] == ["--max-model-len", "4096"]
    assert "YOUR HF TOKEN" not in str(found)


def test_production_stack_s_secret_may_be_named_by_reference() -> None:
    found = accepted("production-stack", "values-13-tool-enabled.yaml")
    launched = profile(found, "meta-llama/Llama-3.1-8B-Instruct")
    assert launched["secrets"] == {
        "HUGGING_FACE_HUB_TOKEN": "huggingface-credentials/HUGGING_FACE_HUB_TOKEN",
    }
    assert "--enable-auto-tool-choice" in launched["args"]


def test_roles_of_one_model_are_replicas_of_it_and_said_to_be_lost() -> None:
    found = accepted("production-stack", "values-16-disagg-prefill.yaml")
    (model,) = models(found).values()
    assert model["replicas"] == 2
    assert model["aliases"] == ["llama-prefill", "llama-decode"]
    assert lost(found, "lmcacheConfig", "roles of prefill and decode")


def test_a_model_over_several_pods_is_put_on_one_node() -> None:
    found = accepted("production-stack", "values-15-b-minimal-pipeline-parallel-example-multiple-modelspec.yaml")
    assert profile(found, "distilbert/distilgpt2")["accelerators"] == [{"count": 2}]
    assert "replicas" not in models(found)["distilbert/distilgpt2"]
    assert changed(found, "modelSpec.0.requestGPU", "on one node")


# --- GPUStack ------------------------------------------------------------------------------------------------------


def test_gpustack_s_specs_are_profiles_in_their_order() -> None:
    found = accepted("gpustack", "model-catalog.yaml")
    assert len(models(found)) == 123
    model = models(found)["Qwen3-14B"]
    assert [p["name"] for p in model["profiles"]][-1] == "standard-BF16"
    assert {p["engine"] for p in model["profiles"]} == {"sglang", "vllm"}
    assert model["metadata"]["licenses"] == '["apache-2.0"]'
    assert model["replicas"] == {"min": 0, "max": 1}
    assert lost(found, "gpu_filters", "not by vendor")
    assert lost(found, "MindIE")


def test_gpustack_s_modelscope_is_fetched_by_the_engine_itself() -> None:
    found = of(
        "gpustack",
        """
        model_sets:
          - name: q
            specs: [{source: model_scope, model_scope_model_id: Qwen/Qwen3-0.6B, backend: vLLM, quantization: BF16}]
        """,
    )
    assert profile(found, "q")["args"] == ["--model", "Qwen/Qwen3-0.6B"]
    assert profile(found, "q")["env"] == {"VLLM_USE_MODELSCOPE": "true"}


def test_gpustack_s_deployed_models_keep_their_count() -> None:
    found = of(
        "gpustack",
        """
        items:
          - {name: m, source: local_path, local_path: /models/m, backend: SGLang, replicas: 2, state: running,
             gpu_selector: {gpu_ids: ["n:cuda:0"], gpus_per_replica: 4}, backend_parameters: ["--tp-size=4"]}
        """,
    )
    assert models(found)["m"]["replicas"] == 2
    assert profile(found, "m")["accelerators"] == [{"count": 4}]
    assert profile(found, "m")["weights"] == "file:///models/m"


# --- what real files of these tools also hold ----------------------------------------------------------------------


def test_entries_that_launch_the_same_are_one_profile_of_as_many_replicas() -> None:
    spec = "{name: llama%s, modelURL: meta-llama/Llama-3.1-8B-Instruct, replicaCount: 1, requestGPU: 1, hf_token: t}"
    found = of("production-stack", f"servingEngineSpec: {{modelSpec: [{spec % 1}, {spec % 2}, {spec % 3}]}}")
    (model,) = models(found).values()
    assert model["replicas"] == 3
    assert len(model["profiles"]) == 1
    assert model["aliases"] == ["llama1", "llama2", "llama3"]
    assert changed(found, "modelSpec.1.modelURL", "counts are added")


def test_a_model_on_a_path_is_called_by_its_entry() -> None:
    found = of(
        "production-stack", "servingEngineSpec: {modelSpec: [{name: local, modelURL: /data/Llama, requestGPU: 1}]}"
    )
    assert profile(found, "local")["weights"] == "file:///data/Llama"
    assert changed(found, "modelURL", "no name can be")


def test_a_wildcard_of_a_machine_of_ours_is_called_as_its_backend_is() -> None:
    found = of(
        "litellm",
        """
        model_list:
          - {model_name: "claude-*", litellm_params: {model: hosted_vllm/Qwen/Qwen3.6-35B, api_base: "https://v.example"}}
        """,
    )
    assert list(models(found)) == ["Qwen/Qwen3.6-35B"]
    assert lost(found, "model_name", "a wildcard is no name")


def test_prefill_and_decode_of_ray_are_one_model_without_roles() -> None:
    config = "{model_loading_config: {model_id: o/m}, engine_kwargs: {kv_transfer_config: {kv_role: %s}}, %s}"
    found = of(
        "ray",
        f"""
        applications:
          - import_path: ray.serve.llm:build_pd_openai_app
            args:
              prefill_config: {config % ("kv_producer", "deployment_config: {num_replicas: 2}")}
              decode_config: {config % ("kv_consumer", "deployment_config: {num_replicas: 6}")}
        """,
    )
    assert models(found)["o/m"]["replicas"] == 8
    assert len(models(found)["o/m"]["profiles"]) == 1
    assert lost(found, "kv_transfer_config", "prefill and decode")


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


def test_a_scaler_describes_no_models() -> None:
    found = imported("production-stack", {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "spec": {}})
    assert isinstance(found, Refused)
    assert found.finding.what == "this is a scaler of Kubernetes: it describes no models"


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
