"""KubeAI: `kind: Model` resources, and the values of its chart `models` (`catalog:`)."""

from collections.abc import Iterator, Mapping

from llmgw.importing.account import Part
from llmgw.importing.draft import FILL_IN, CatalogDraft, Devices, ModelDraft, ProfileDraft, to_fill_in
from llmgw.importing.kubernetes import (
    CLUSTER_ONLY,
    METADATA,
    NO_CPU_SHARE,
    devices_named,
    environment,
    image_named,
    is_a_make,
)
from llmgw.importing.launching import Launch, launch_of, source_of
from llmgw.importing.shares import NO_SLICES
from llmgw.problems import quoted
from llmgw.sentences import counted

ENGINES: Mapping[str, str] = {"VLLM": "vllm"}

NOT_CARRIED: Mapping[str, str] = {
    "adapters": "an adapter cannot be a public name of its base model: llmgw's routers write the model's name alone",
    "targetRequests": "replicas do not follow load: `llmgw scale`, waking and idleness move the count",
    "autoscalingDisabled": "replicas do not follow load anyway",
    "cacheProfile": "each node keeps its own copy of the weights",
    "files": "agents place no files: put them on the nodes and name their paths",
    "envFrom": "variables are named one by one",
    "loadBalancing": "routers choose by priority, weight and load",
    "priorityClassName": "the order of Kubernetes' classes is not in this file: set `priority`, higher wins",
    "replicas": "the count lies between minReplicas and maxReplicas",
}

NOT_ENABLED = "not enabled: replicas 0, so that nothing starts"
NO_WEIGHTS = "an engine needs weights that can be fetched"

METADATA_FIELDS = ("features", "owner")


def reads(raw: Mapping[str, object]) -> bool:
    return is_model(raw) or (isinstance(raw.get("catalog"), dict) and "models" not in raw)


def is_model(raw: Mapping[str, object]) -> bool:
    return raw.get("kind") == "Model" and str(raw.get("apiVersion", "")).startswith("kubeai.org/")


def read(document: Part) -> CatalogDraft:
    if document.has("catalog"):
        return CatalogDraft(tuple(_chart(document)))
    document.carry("apiVersion", "kind")
    document.part("metadata").lose_each(METADATA)
    document.lose("status", CLUSTER_ONLY)
    name = document.part("metadata").text("name")
    return CatalogDraft(tuple(_model(document.part("spec"), name, document, least=None)))


def _chart(values: Part) -> Iterator[ModelDraft]:
    """A chart's values: `enabled` says what runs, for one or for all."""
    all_enabled = values.part("all").switch("enabled")
    for entry in values.part("catalog").items():
        entry.lose("labels", CLUSTER_ONLY)
        enabled = entry.switch("enabled")
        is_on = bool(all_enabled or (enabled if entry.has("enabled") else True))
        yield from _model(entry, entry.key, entry, least=None if is_on else 0)


def _model(spec: Part, name: str | None, whole: Part, least: int | None) -> Iterator[ModelDraft]:
    """`least` 0: it is listed and not enabled."""
    spec.lose_each(NOT_CARRIED)
    if name is None:
        whole.account.drop(whole.at, "it has no name")
        return
    launch = _launched(spec)
    devices, idle = _devices(launch, spec), spec.number("scaleDownDelaySeconds")
    low, high = _bounds(spec) if least is None and launch is not None else (0, 0)
    why_none = NOT_ENABLED if least is not None else FILL_IN
    if high == 0:
        spec.lose_each({"minReplicas": why_none, "maxReplicas": why_none})
    if launch is None:
        whole.lose("enabled", FILL_IN)
    yield ModelDraft(
        whole.at,
        name,
        (_profile(whole, spec, launch, devices),),
        tuple((alias, spec.at) for alias in (launch.names if launch else ())),
        low,
        high,
        idle_timeout_s=idle if idle and low < high else None,
        metadata={key: value for key in METADATA_FIELDS if (value := spec.whole_as_json(key)) is not None},
    )


def _profile(whole: Part, spec: Part, launch: Launch | None, devices: Devices | None) -> ProfileDraft:
    if launch is None:
        whole.account.assume(whole.at, FILL_IN)
        return to_fill_in(whole.at, devices)
    return ProfileDraft(
        whole.at,
        "main",
        launch.row.name,
        args=tuple(launch.args),
        env=launch.env,
        secrets=launch.secrets,
        devices=devices,
        weights=launch.weights,
        image=image_named(spec, "image"),
    )


def _launched(spec: Part) -> Launch | None:
    """The launch; None, with the reason noted, where there can be none."""
    row = ENGINES.get(spec.peek("engine"))
    weights = source_of(spec.peek("url"), hub=False)
    if row is None or weights is None:
        known, scheme = ", ".join(ENGINES), spec.peek("url").partition("://")[0][:20]
        spec.lose("args", "they are for the engine that it had")
        spec.lose("env", "they are for the engine that it had")
        spec.lose("image", "it is for the engine that it had")
        spec.lose(
            "engine", f"llmgw has no engine like this one; of KubeAI's it knows {known}" if not row else NO_WEIGHTS
        )
        spec.lose("url", f"weights at {scheme}:// cannot be fetched: put them on the nodes and write file:///path")
        return None
    spec.carry("engine", "url")
    launch = launch_of(row, spec.account, spec.at, weights)
    launch.read(spec.texts("args"))
    environment(launch, spec.part("env"))
    return launch


def _devices(launch: Launch | None, spec: Part) -> Devices | None:
    """`nvidia-gpu-l4:8`: a profile of resources, and how many times it is needed."""
    at = (*spec.at, "resourceProfile")
    name, _, count = (spec.text("resourceProfile") or "").rpartition(":")
    if not name or not count.isdigit() or not 0 < int(count) <= 1024:
        if spec.has("resourceProfile"):
            spec.account.lose(at, "it is not NAME:COUNT")
        return launch.devices(None) if launch else None
    if name == "cpu" or name.startswith("cpu-"):
        spec.account.uncarry(at)
        spec.account.change(at, f"on the CPU; {NO_CPU_SHARE}")
        return None
    if name.startswith("google-tpu"):
        spec.account.change(at, "no engine can be told which TPUs are its own: replicas will wait, and say so")
    devices = devices_named(name, int(count))
    if devices.count < int(count):
        spec.account.lose(at, NO_SLICES, count)
    if devices.kind is not None and not is_a_make(devices.kind):
        spec.account.assume(spec.at, f"{quoted(devices.kind)} for the kind of device, by its profile's name alone")
    return devices


def _bounds(spec: Part) -> tuple[int, int]:
    """KubeAI's defaults: at least none, at most as many as are needed."""
    low, high = spec.whole("minReplicas"), spec.whole("maxReplicas")
    if low is None:
        spec.account.assume(spec.at, "at least 0 replicas, KubeAI's own default: it sleeps until it is asked for")
    if high is None:
        spec.account.assume(
            spec.at, f"at most {counted(max(low or 0, 1), 'replica')}: KubeAI knows no bound, llmgw needs one"
        )
    low = min(low or 0, 10_000)
    high = min(max(low, 1) if high is None else high, 10_000)
    if low > high:
        spec.lose("minReplicas", "it is above maxReplicas, which counts")
    return (low, high) if low <= high else (high, high)
