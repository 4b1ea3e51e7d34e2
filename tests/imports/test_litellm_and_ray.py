"""LiteLLM's names and endpoints, and Ray's configurations."""

from llmgw.importing.importer import Refused, imported
from tests.imports.files import accepted, lost, models, of, profile


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
