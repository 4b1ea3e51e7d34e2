"""Kinds of files: those that can be imported, and those that are known by sight so that the answer can be a clear one.

A newcomer adds a row to `SOURCES` (and a module in `sources/`), or a row to `OTHERS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from llmgw.importing.account import Part
from llmgw.importing.draft import CatalogDraft
from llmgw.importing.sources import gpustack, kubeai, litellm, llama_swap, production_stack, ray

Document = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Source:
    """`reads`: whether a document is of this kind; `read`: what it makes of one; `wants`: what to hand it instead."""

    kind: str
    title: str
    reads: Callable[[Document], bool]
    read: Callable[[Part], CatalogDraft]
    wants: str


SOURCES: Mapping[str, Source] = {
    source.kind: source
    for source in (
        Source(
            "gpustack", "GPUStack", gpustack.reads, gpustack.read, "a model catalog, or models as its API lists them"
        ),
        Source("llama-swap", "llama-swap", llama_swap.reads, llama_swap.read, "its config.yaml, with `models:`"),
        Source("kubeai", "KubeAI", kubeai.reads, kubeai.read, "resources of kind Model, or values of chart models"),
        Source("litellm", "LiteLLM proxy", litellm.reads, litellm.read, "its config.yaml, with `model_list:`"),
        Source("ray", "Ray Serve LLM", ray.reads, ray.read, "an LLMConfig, a Serve configuration or a RayService"),
        Source(
            "production-stack",
            "vLLM production-stack",
            production_stack.reads,
            production_stack.read,
            "values of its chart, with `servingEngineSpec.modelSpec`",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Other:
    """A file that describes no models that could be imported; `why` finishes "this is …: "."""

    what: str
    is_it: Callable[[Document], bool]
    why: str


def _api(group: str) -> Callable[[Document], bool]:
    return lambda raw: group in str(raw.get("apiVersion", "")).split("/")[0]


def _kind(*kinds: str) -> Callable[[Document], bool]:
    return lambda raw: "apiVersion" in raw and raw.get("kind") in kinds


NOT_READ = "no importer reads it; write its models into a catalog (`llmgw schema`, docs/catalog-guide.md)"
NO_MODELS = "it describes no models"

NO_WORKLOADS = (
    "Secret",
    "ConfigMap",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "StorageClass",
    "Namespace",
    "Service",
)


def _listed(value: object, kind: type) -> bool:
    """Whether it is a list of nothing else."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, kind) for item in value)


OTHERS: tuple[Other, ...] = (
    Other("a list of GPUStack's inference backends", lambda raw: "backend_name" in raw, NO_MODELS),
    Other("a list of outside providers", lambda raw: "external_providers" in raw, f"{NO_MODELS} to start"),
    Other("a router's list of endpoints", lambda raw: "static_backends" in raw, f"{NO_MODELS} to start"),
    Other("a scaler of AIBrix", _kind("PodAutoscaler"), NO_MODELS),
    Other("a scaler of Kubernetes", _kind("ScaledObject", "HorizontalPodAutoscaler"), NO_MODELS),
    Other("storage, a secret or settings of Kubernetes", _kind(*NO_WORKLOADS), NO_MODELS),
    Other("a resource of AIBrix", _api("aibrix.ai"), NOT_READ),
    Other("a runtime of KServe", _kind("ServingRuntime", "ClusterServingRuntime"), NO_MODELS),
    Other("a resource of KServe", _api("kserve.io"), NOT_READ),
    Other("a resource of Kubernetes", lambda raw: "apiVersion" in raw and "kind" in raw, NOT_READ),
    Other("a service of SkyPilot", lambda raw: "service" in raw and ("run" in raw or "resources" in raw), NOT_READ),
    Other("a task of SkyPilot", lambda raw: "run" in raw and "resources" in raw, NOT_READ),
    Other("a configuration of dstack", lambda raw: raw.get("type") in ("service", "task", "fleet"), NOT_READ),
    Other("a docker-compose file", lambda raw: isinstance(raw.get("services"), dict), NOT_READ),
    Other("a list of Xinference's model families", lambda raw: "model_specs" in raw, NOT_READ),
    Other("a job of Nomad", lambda raw: "job" in raw or "Job" in raw, NOT_READ),
    Other(
        "a list of repositories that llama-swap looks up by itself",
        lambda raw: "commands" in raw and _listed(raw.get("models"), str),
        "it does not say how each is launched; import the config.yaml that comes of it",
    ),
    Other("a catalog of llmgw", lambda raw: _listed(raw.get("models"), dict), "`llmgw apply` takes it as it is"),
)


def documents(root: Part) -> list[Part]:
    """The documents of a file: its own, those of a list of them, those of a Kubernetes `List`."""
    if isinstance(root.raw, list):
        return [inner for item in root.items() for inner in documents(item)]
    if root.is_mapping and str(root.mapping.get("kind", "")).endswith("List") and root.has("items"):
        return [inner for item in root.part("items").items() for inner in documents(item)]
    return [root] if root.is_mapping and root.raw else []


def seen_as(document: Document) -> str:
    """What the document looks like, with what can be done about it; "" when it looks like nothing known."""
    for source in SOURCES.values():
        if source.reads(document):
            return f"this is a file of {source.title}: llmgw import {source.kind} reads it"
    found = next((other for other in OTHERS if other.is_it(document)), None)
    return f"this is {found.what}: {found.why}" if found else ""
