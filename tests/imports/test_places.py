"""Where other tools' files let a model run, as labels, lists of nodes and kinds of devices in its profile."""

import json
from typing import Any

import pytest

from llmgw.importing.account import Fate
from llmgw.importing.importer import Imported
from tests.imports.files import accepted, changed, lost, models, of, profile, told


def stack(**spec: Any) -> Imported:
    """A production-stack entry `m` with further fields."""
    entry = {"name": "m", "modelURL": "a/b", "requestGPU": 1, **spec}
    return of("production-stack", json.dumps({"servingEngineSpec": {"modelSpec": [entry]}}))


def expression(key: str, *values: str, operator: str = "In") -> dict[str, object]:
    return {"key": key, "operator": operator, "values": list(values)}


def terms(*expressions: dict[str, object]) -> list[dict[str, object]]:
    return [{"matchExpressions": list(expressions)}]


def placed(found: Imported) -> dict[str, object]:
    made = profile(found, "a/b")
    return {key: made[key] for key in ("labels", "prefer_labels", "nodes", "accelerators") if key in made}


ONE = [{"count": 1}]


def test_a_selector_of_nodes_is_their_labels() -> None:
    found = stack(nodeSelector={"gpu-tier": "large", "rack": 7})
    assert placed(found) == {"labels": {"gpu-tier": "large", "rack": "7"}, "accelerators": ONE}
    assert any("give the nodes in the catalog these labels" in line for line in told(found, Fate.ASSUMED))
    found = stack(nodeSelectorTerms=terms(expression("gpu-tier", "large"), expression("zone", "a")))
    assert placed(found) == {"labels": {"gpu-tier": "large", "zone": "a"}, "accelerators": ONE}
    assert told(found) == []


def test_host_names_are_a_list_of_nodes_and_of_two_lists_what_is_on_both() -> None:
    host = "kubernetes.io/hostname"
    found = stack(nodeSelectorTerms=terms(expression(host, "n1", "n2", "n3"), expression(host, "n2", "n3")))
    assert placed(found)["nodes"] == ["n2", "n3"]
    assert any('"n2", "n3": they are to be called so' in line for line in told(found, Fate.ASSUMED))
    assert placed(stack(nodeName="n1"))["nodes"] == ["n1"]
    apart = stack(nodeName="n9", nodeSelectorTerms=terms(expression(host, "n1")))
    assert placed(apart)["nodes"] == ["n9"]
    assert lost(apart, "no node is on both of its lists")


def test_the_label_of_the_product_is_a_kind_of_device() -> None:
    found = stack(nodeSelector={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"})
    assert placed(found) == {"accelerators": [{"count": 1, "kind": "NVIDIA-A100-SXM4-80GB"}]}


def test_an_affinity_is_required_labels_and_preferred_ones() -> None:
    required = {"nodeSelectorTerms": terms(expression("pool", "gpu"))}
    preferred = [{"weight": 50, "preference": {"matchExpressions": [expression("rack", "r1")]}}]
    found = stack(
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": required,
                "preferredDuringSchedulingIgnoredDuringExecution": preferred,
            },
            "podAntiAffinity": {"x": 1},
        }
    )
    assert placed(found) == {"labels": {"pool": "gpu"}, "prefer_labels": {"rack": "r1"}, "accelerators": ONE}
    assert lost(found, "podAntiAffinity", "max_per_node")
    assert lost(found, "weight", "count alike")


def test_what_no_label_can_say_is_told_with_what_would() -> None:
    several = stack(nodeSelectorTerms=[*terms(expression("a", "1")), *terms(expression("b", "2"))])
    assert "labels" not in placed(several)
    assert lost(several, "nodeSelectorTerms", "give a profile to each")
    assert lost(stack(nodeSelectorTerms=terms(expression("rack", "r1", "r2"))), "a label has one value")
    assert lost(stack(nodeSelectorTerms=terms(expression("rack", operator="Exists"))), "Exists cannot be asked")


def test_a_file_of_production_stack_keeps_its_node() -> None:
    found = accepted("production-stack", "values-25-v100-multi-gpu-tp2.yaml")
    [model] = models(found).values()
    assert model["profiles"][0]["nodes"] == ["gpu-node-01"]


def test_gpustack_s_workers_are_labels_and_nodes_and_its_devices_the_plane_s_choice() -> None:
    found = of(
        "gpustack",
        """
        items:
          - {name: m, source: huggingface, huggingface_repo_id: a/b, replicas: 1, worker_selector: {rack: r1},
             gpu_selector: {gpu_ids: ["w1:cuda:0", "w1:cuda:1", "w2:cuda:0", "odd"], gpus_per_replica: 2}}
        """,
    )
    made = profile(found, "m")
    assert (made["labels"], made["nodes"], made["accelerators"]) == ({"rack": "r1"}, ["w1", "w2"], [{"count": 2}])
    assert changed(found, "gpu_ids.0", "the plane chooses the devices of that node")
    assert lost(found, "gpu_ids.3", "it is not WORKER:TYPE:INDEX")


@pytest.mark.parametrize(
    ("args", "claim"),
    [
        (["--gpu-memory-utilization=0.4"], "30518MiB"),
        (["--gpu-memory-utilization", "0.25"], "19074MiB"),
        (["--gpu-memory-utilization=0.9"], None),
        (["--gpu-memory-utilization=x"], None),
        ([], None),
    ],
)
def test_an_engine_that_is_left_a_share_of_a_device_claims_that_share(args: list[str], claim: str | None) -> None:
    spec = {"engine": "VLLM", "url": "hf://a/b", "resourceProfile": "nvidia-gpu-a100-80gb:1", "args": args}
    raw = {"apiVersion": "kubeai.org/v1", "kind": "Model", "metadata": {"name": "m"}, "spec": spec}
    found = of("kubeai", json.dumps(raw))
    expected = {"count": 1, "kind": "a100", "memory": "80GB", **({"claim": claim} if claim else {})}
    assert profile(found, "m")["accelerators"] == [expected]
    assert any("others may have the rest" in line for line in told(found, Fate.ASSUMED)) is (claim is not None)


def test_a_share_of_memory_that_nobody_knows_is_told() -> None:
    found = stack(vllmConfig={"gpuMemoryUtilization": 0.3})
    assert placed(found) == {"accelerators": ONE}
    assert any("it takes 30% of each: write `claim`" in line for line in told(found, Fate.ASSUMED))
