"""KubeAI, production-stack and GPUStack: resources, secrets, counts and profiles."""

from llmgw.importing.importer import Refused, imported
from tests.imports.files import accepted, changed, lost, models, of, profile


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


def test_a_scaler_describes_no_models() -> None:
    found = imported("production-stack", {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "spec": {}})
    assert isinstance(found, Refused)
    assert found.finding.what == "this is a scaler of Kubernetes: it describes no models"
