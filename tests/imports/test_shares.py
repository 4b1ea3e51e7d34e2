"""Shares of devices: claims where their memory is known, a named loss where it is not, and never in silence."""

from typing import Any

import pytest

from llmgw.importing.account import Fate
from llmgw.importing.importer import Imported
from tests.imports.files import accepted, changed, lost, models, of, told

WHOLE = {"count": 1}


def ray(config: str, accelerator: str = "L4") -> Imported:
    kind = f"accelerator_type: {accelerator}\n" if accelerator else ""
    return of("ray", f"model_loading_config: {{model_id: m, model_source: org/m}}\n{kind}{config}")


def stack(fields: str) -> Imported:
    return of("production-stack", f"servingEngineSpec: {{modelSpec: [{{name: m, modelURL: org/m, {fields}}}]}}")


def only(found: Imported) -> Any:
    """The profile of the file's first model."""
    return next(iter(models(found).values()))["profiles"][0]


def asked(found: Imported) -> Any:
    return only(found).get("accelerators", [None])[0]


HALF = {"count": 1, "kind": "l4", "claim": "11444MiB"}


@pytest.mark.parametrize(
    "config",
    [
        "placement_group_config: {bundles: [{GPU: 0.5, CPU: 1}]}",
        "placement_group_config: {bundle_per_worker: {GPU: 0.5}}",
        "resources_per_bundle: {GPU: 0.5}",
        "deployment_config: {ray_actor_options: {num_gpus: 0.5}}",
        "deployment_config: {placement_group_bundles: [{GPU: 0.5}]}",
    ],
)
def test_a_fraction_of_ray_s_is_a_claim_where_a_kind_has_one_size(config: str) -> None:
    found = ray(config)
    assert asked(found) == HALF
    assert lost(found, "nothing holds an engine to what it claims")


def test_a_fraction_of_a_device_whose_memory_nobody_says_is_lost_by_name() -> None:
    found = ray("resources_per_bundle: {GPU: 0.5}", "A100")
    assert asked(found) == {"count": 1, "kind": "a100"}
    assert lost(found, "resources_per_bundle.GPU", "how much memory that is, the file does not say")


def test_a_fraction_beside_the_engine_s_own_share_gives_way_to_it() -> None:
    found = ray("engine_kwargs: {gpu_memory_utilization: 0.4}\nplacement_group_config: {bundles: [{GPU: 0.49}]}")
    assert asked(found) == {"count": 1, "kind": "l4", "claim": "9156MiB"}
    assert changed(found, "the share follows from what the arguments leave to the engine")
    greedy = ray("engine_kwargs: {gpu_memory_utilization: 0.9}\nresources_per_bundle: {GPU: 0.25}")
    assert asked(greedy) == {"count": 1, "kind": "l4"}
    assert changed(greedy, "resources_per_bundle.GPU", "the share follows")


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ("placement_group_config: {bundles: [{GPU: 1}, {GPU: 1}, {GPU: 2}]}", 4),
        ("engine_kwargs: {tensor_parallel_size: 2}\nplacement_group_config: {bundle_per_worker: {GPU: 1}}", 2),
        ("engine_kwargs: {tensor_parallel_size: 2}\nresources_per_bundle: {GPU: 1.5}", 2),
        ("engine_kwargs: {data_parallel_size: 4}\nplacement_group_config: {bundles: [{GPU: 1, CPU: 1}]}", 4),
        ("placement_group_config: {bundles: [{CPU: 8}]}", None),
        ("deployment_config: {ray_actor_options: {num_cpus: 8}}", 1),
    ],
)
def test_whole_devices_are_counted_over_bundles(config: str, count: int | None) -> None:
    found = ray(config, "")
    assert asked(found) == (None if count is None else {"count": count})


def test_the_older_form_of_ray_has_fractions_too() -> None:
    found = of(
        "ray",
        "engine_config: {model_id: m, hf_model_id: org/m, type: VLLMEngine}\n"
        "scaling_config: {num_workers: 1, num_gpus_per_worker: 0.5, resources_per_worker: {accelerator_type_l4: 0.01}}",
    )
    assert asked(found) == HALF


@pytest.mark.parametrize(
    ("fields", "expected", "words"),
    [
        ("requestGPU: 1, limitGPUMem: 4000", {"count": 1, "claim": "4000MiB"}, "limitGPUMem: its limit"),
        ("requestGPU: 2, requestGPUMem: '3000'", {"count": 2, "claim": "3000MiB"}, "requestGPUMem: its limit"),
        ("requestGPU: 1, limitGPUMemPercentage: 25", WHOLE, "limitGPUMemPercentage: : how much memory that is"),
        ("requestGPU: 1, requestGPUCores: 10", WHOLE, "requestGPUCores: : a share of a device's cores"),
        ("requestGPU: 1, requestGPUType: nvidia.com/mig-1g.10gb", {"count": 1, "kind": "mig 1g.10gb"}, ""),
        ("requestGPU: 1, requestGPUType: nvidia.com/mig-1g.10gb.me", {"count": 1, "kind": "mig 1g.10gb me"}, ""),
        (
            "requestGPU: 3, requestGPUType: nvidia.com/mig-1g.10gb",
            {"count": 1, "kind": "mig 1g.10gb"},
            "requestGPU: : slices of a device (MIG) do not work together",
        ),
        ("requestGPU: 1, requestGPUType: nvidia.com/gpu.shared", WHOLE, "requestGPUType: : a share of a device"),
        ("requestGPU: 2, requestGPUType: amd.com/gpu", {"count": 2}, "requestGPUType: : devices are asked for by kind"),
        ("requestGPU: 1, requestGPUType: example.com/chip", WHOLE, "requestGPUType: : it names a resource"),
        ("requestGPU: 0", None, ""),
        ("requestGPU: 0.5", WHOLE, "requestGPU: : how much memory that is"),
        ("requestGPU: 1.5", WHOLE, "requestGPU: : no number of devices"),
    ],
)
def test_the_chart_s_words_for_devices(fields: str, expected: object, words: str) -> None:
    found = stack(fields)
    assert asked(found) == expected
    assert not words or any(words in line for line in told(found))


@pytest.mark.parametrize(
    ("block", "expected", "memory"),
    [
        ("{limits: {nvidia.com/gpu: '2'}, requests: {memory: 24Gi}}", {"count": 2}, "24GiB"),
        ("{requests: {nvidia.com/gpu: 1, nvidia.com/gpumem: 8000}}", {"count": 1, "claim": "8000MiB"}, None),
        ("{limits: {aliyun.com/gpu-mem: 8}}", {"count": 1, "claim": "8GiB"}, None),
        ("{limits: {nvidia.com/mig-3g.40gb: 1}}", {"count": 1, "kind": "mig 3g.40gb"}, None),
        ("{limits: {nvidia.com/gpu.shared: 1}}", WHOLE, None),
        ("{limits: {cpu: 4, memory: 8Gi, rdma/hca: 1}}", WHOLE, None),
    ],
)
def test_a_block_of_resources_counts_in_place_of_the_chart_s_words(
    block: str, expected: object, memory: str | None
) -> None:
    found = stack(f"requestGPU: 7, requestMemory: 1Gi, resources: {block}")
    assert asked(found) == expected
    assert only(found).get("host_memory") == memory
    assert lost(found, "requestGPU", "`resources` counts in its place")
    assert lost(found, "requestMemory", "`resources` counts in its place")


def test_a_share_of_a_kind_that_a_node_s_label_tells_is_a_claim() -> None:
    terms = "nodeSelectorTerms: [{matchExpressions: [{key: nvidia.com/gpu.product, operator: In, values: [%s]}]}]"
    found = stack(f"requestGPU: 1, limitGPUMemPercentage: 25, {terms % 'NVIDIA-L40S'}")
    assert asked(found) == {"count": 1, "kind": "NVIDIA-L40S", "claim": "11444MiB"}
    sliced = stack(f"requestGPU: 1, {terms % 'NVIDIA-L40S-SHARED'}")
    assert asked(sliced) == {"count": 1, "kind": "NVIDIA-L40S"}
    assert lost(sliced, "-SHARED", "of which the file does not say how large it is")


def test_variables_of_every_engine_of_the_chart_come_before_a_model_s_own() -> None:
    found = of(
        "production-stack",
        "servingEngineSpec: {env: [{name: A, value: all}, {name: B, value: all}], modelSpec: "
        "[{name: m, modelURL: org/m, env: [{name: B, value: own}]}]}",
    )
    assert only(found)["env"] == {"A": "all", "B": "own"}


def test_a_slice_among_kubeai_s_profiles_is_one_and_an_odd_name_is_told() -> None:
    found = accepted("kubeai", "shares.yaml")
    assert asked(found) == {"count": 1, "kind": "mig 1g.10gb"}
    assert lost(found, "resourceProfile: 2: slices of a device (MIG) do not work together")
    spec = "apiVersion: kubeai.org/v1\nkind: Model\nmetadata: {name: m}\nspec: {url: hf://org/m, engine: VLLM, "
    odd = of("kubeai", spec + "resourceProfile: 'nvidia-gpu-l4-timeslice:1'}")
    assert any('"l4-timeslice" for the kind of device' in line for line in told(odd, Fate.ASSUMED))


def test_an_engine_that_is_pinned_to_a_slice_asks_for_a_slice() -> None:
    found = of(
        "llama-swap",
        "models: {m: {cmd: 'vllm serve org/m --port ${PORT}', env: ['CUDA_VISIBLE_DEVICES=MIG-6bff21ab-0001']}}",
    )
    assert asked(found) == {"count": 1, "kind": "mig"}
    assert lost(found, "CUDA_VISIBLE_DEVICES", "any slice (MIG); write its kind")
