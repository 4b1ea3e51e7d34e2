"""vLLM production-stack: the values of its Helm chart (`servingEngineSpec.modelSpec`)."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from llmgw.importing.account import Part
from llmgw.importing.draft import FILL_IN, JOINED, CatalogDraft, Devices, ModelDraft, ProfileDraft, joined, to_fill_in
from llmgw.importing.kubernetes import (
    A_CONTAINER,
    CLUSTER_ONLY,
    NO_CPU_SHARE,
    NO_VOLUMES,
    environment,
    host_memory,
    image_named,
    secret_name,
)
from llmgw.importing.launching import Launch, launch_of, source_of, unfillable
from llmgw.importing.places import places
from llmgw.importing.shares import (
    ANY_VENDOR,
    NO_SUCH_DEVICE,
    UNKNOWN_SHARE,
    Asked,
    is_known,
    quantity,
    resources,
    shared,
    slice_named,
)
from llmgw.problems import quoted

FLAGS: Mapping[str, str] = {
    "maxModelLen": "--max-model-len",
    "dtype": "--dtype",
    "tensorParallelSize": "--tensor-parallel-size",
    "pipelineParallelSize": "--pipeline-parallel-size",
    "maxNumSeqs": "--max-num-seqs",
    "maxNumBatchedTokens": "--max-num-batched-tokens",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
    "maxLoras": "--max-loras",
    "kvCacheDtype": "--kv-cache-dtype",
    "quantization": "--quantization",
    "swapSpace": "--swap-space",
    "runner": "--runner",
    "convert": "--convert",
    "cpuOffloadGb": "--cpu-offload-gb",
}
SWITCHES: Mapping[str, tuple[str, str]] = {
    "enablePrefixCaching": ("--enable-prefix-caching", "--no-enable-prefix-caching"),
    "enableChunkedPrefill": ("--enable-chunked-prefill", "--no-enable-chunked-prefill"),
    "trustRemoteCode": ("--trust-remote-code", "--no-trust-remote-code"),
    "enforceEager": ("--enforce-eager", "--no-enforce-eager"),
}

NO_WEIGHTS = "its modelURL is no repository of the hub and no absolute path: nothing that could be loaded"
NO_AUTOSCALING = "replicas do not follow load: `llmgw scale`, waking and idleness move the count"

NOT_CARRIED: Mapping[str, str] = {
    "imagePullPolicy": A_CONTAINER,
    "imagePullSecret": A_CONTAINER,
    "requestCPU": NO_CPU_SHARE,
    "limitCPU": NO_CPU_SHARE,
    "limitMemory": "main memory is reserved (`host_memory`), not limited",
    "pvcStorage": NO_VOLUMES,
    "pvcAccessMode": NO_VOLUMES,
    "pvcMatchLabels": NO_VOLUMES,
    "pvcLabels": NO_VOLUMES,
    "storageClass": NO_VOLUMES,
    "extraVolumes": NO_VOLUMES,
    "extraVolumeMounts": NO_VOLUMES,
    "shmSize": "shared memory is the machine's own",
    "lmcacheConfig": "a shared cache, and roles of prefill and decode, cannot be expressed",
    "initContainer": "nothing runs before an engine",
    "sidecar": "nothing runs beside an engine",
    "tolerations": CLUSTER_ONLY,
    "podAnnotations": CLUSTER_ONLY,
    "annotations": CLUSTER_ONLY,
    "labels": "roles and labels of replicas cannot be expressed",
    "serviceAccountName": CLUSTER_ONLY,
    "priorityClassName": "the order of Kubernetes' classes is not in this file: set `priority`, higher wins",
    "autoscaling": NO_AUTOSCALING,
    "keda": NO_AUTOSCALING,
    "raySpec": "a replica's devices are on one node",
    "envFromSecret": "secrets are named one by one, under `secrets`",
    "loraModules": "an adapter cannot be a public name of its base model",
    "chatTemplateConfigMap": "agents place no files: put the template on the nodes",
    "runtimeClassName": CLUSTER_ONLY,
}

ELSEWHERE: Mapping[str, str] = {
    "routerSpec": "llmgw's routers have settings of their own, in docs/processes.md",
    "cacheserverSpec": "a cache server is no model: llmgw does not run one",
    "sharedStorage": NO_VOLUMES,
    "loraController": "adapters cannot be loaded on demand",
    "loraAdapters": "an adapter cannot be a public name of its base model: routers write the model's name alone",
}

ENGINE_WIDE: Mapping[str, str] = {
    "schedulerName": CLUSTER_ONLY,
    "extraPorts": "the node picks the ports",
    "maxUnavailablePodDisruptionBudget": "an edit takes one replica in ten down at most, by choice",
    "imagePullPolicy": A_CONTAINER,
    "extraVolumes": NO_VOLUMES,
    "extraVolumeMounts": NO_VOLUMES,
    "runtimeClassName": CLUSTER_ONLY,
    "strategy": "llmgw rolls by itself: it starts first where devices are free, else it stops first",
    "containerPort": "the node picks the port",
    "servicePort": "the node picks the port",
    "enableEngine": "what is in the catalog runs",
    "startupProbe": "agents probe an engine at paths of its row; how long a start may take is `start_limit_s`",
    "livenessProbe": "agents probe an engine at paths of its row",
    "readinessProbe": "agents probe an engine at paths of its row",
    "securityContext": CLUSTER_ONLY,
    "containerSecurityContext": CLUSTER_ONLY,
    "sidecar": "nothing runs beside an engine",
    "labels": CLUSTER_ONLY,
    "tolerations": CLUSTER_ONLY,
    "configs": "variables of every engine are named in each profile",
    "vllmApiKey": "give the key to the agents, and name it under `secrets: {VLLM_API_KEY: …}`",
}


def reads(raw: Mapping[str, object]) -> bool:
    spec = raw.get("servingEngineSpec")
    return isinstance(spec, dict) or isinstance(raw.get("modelSpec"), list)


def read(document: Part) -> CatalogDraft:
    document.lose_each(ELSEWHERE)
    engines = document.part("servingEngineSpec") if document.has("servingEngineSpec") else document
    engines.lose_each(ENGINE_WIDE)
    models: dict[str, ModelDraft] = {}
    for spec in engines.part("modelSpec").items():
        for model in _model(spec, engines.part("env")):
            if model.name in models:
                spec.account.change((*spec.at, "modelURL"), JOINED)
                model = joined(models[model.name], model)
            models[model.name] = model
    return CatalogDraft(tuple(models.values()))


def _model(spec: Part, of_all: Part) -> Iterator[ModelDraft]:
    """`of_all`: variables of every engine; the model's own come after them and count."""
    spec.lose_each(NOT_CARRIED)
    if spec.has("resources"):
        spec.lose_each(dict.fromkeys(SIMPLE, "`resources` counts in its place"))
    title, source = spec.text("name"), spec.text("modelURL")
    weights = source_of(source or "")
    if source is None or weights is None or unfillable(source):
        spec.account.drop(spec.at, NO_WEIGHTS if title else "it has no name and no modelURL that can be used")
        if title:
            spec.account.carry((*spec.at, "name"))
            spec.account.assume(spec.at, FILL_IN)
            yield ModelDraft(spec.at, title, (to_fill_in(spec.at),), (), 0, 0)
        return
    launch = launch_of("vllm", spec.account, spec.at, weights)
    _configured(launch, spec.part("vllmConfig"))
    _features(launch, spec)
    _token(launch, spec)
    environment(launch, of_all)
    environment(launch, spec.part("env"))
    count, where = _count(spec), places(spec)
    devices, memory = _devices(launch, spec)
    profile = ProfileDraft(
        spec.at,
        title or "main",
        "vllm",
        args=tuple(launch.args),
        env=launch.env,
        secrets=launch.secrets,
        devices=_of_kind(spec, devices, where.kind),
        host_memory=memory,
        nodes=tuple(where.nodes),
        labels=where.labels,
        prefer_labels=where.prefers,
        weights=weights,
        image=image_named(spec, "repository", "tag") if spec.has("repository") else image_named(spec, "image"),
    )
    name, *others = launch.names or [source]
    if name.startswith("/") and title:
        spec.change("modelURL", "clients call it by this path there, which no name can be here")
        name = title
    aliases = [(alias, spec.at) for alias in others] + ([(title, (*spec.at, "name"))] if title else [])
    yield ModelDraft(spec.at, name, (profile,), tuple(aliases), count, count)


def _count(spec: Part) -> int:
    if spec.part("raySpec", "enabled").raw:
        spec.change("replicaCount", "it counts Ray's workers: one replica spans them")
        return 1
    count = spec.whole("replicaCount")
    return 1 if count is None else min(count, 10_000)


def _of_kind(spec: Part, devices: Devices | None, kind: str | None) -> Devices | None:
    """`kind`: of the whole device, by a label of its node."""
    if devices is None or kind is None:
        return devices
    if (devices.kind or "").startswith("mig "):
        spec.account.lose(spec.at, "a slice is asked for by its own kind alone", quoted(kind))
        return devices
    return replace(devices, kind=kind)


SIMPLE = (
    "requestCPU",
    "limitCPU",
    "requestMemory",
    "limitMemory",
    "requestGPU",
    "requestGPUType",
    *(f"{word}{key}" for word in ("limit", "request") for key in ("GPUMem", "GPUMemPercentage", "GPUCores")),
)
"""What the chart reads where there are no `resources`."""

OF_HAMI: Mapping[str, str] = {
    "GPUMem": "nvidia.com/gpumem",
    "GPUMemPercentage": "nvidia.com/gpumem-percentage",
    "GPUCores": "nvidia.com/gpucores",
}
"""Shares of devices in the chart's own words, after `limit` or `request`."""


def _devices(launch: Launch, spec: Part) -> tuple[Devices | None, str | None]:
    """Devices, and main memory as the catalog writes it."""
    if spec.part("raySpec", "enabled").raw:
        spec.change("requestGPU", "there over several pods, here on one node: as many as the arguments spread it over")
        return launch.devices(None), host_memory(spec, "requestMemory")
    if spec.has("resources"):
        asked, memory = resources(spec.part("resources"))
    else:
        asked, memory = _asked(spec), host_memory(spec, "requestMemory")
    return shared(launch.devices(asked.count), asked), memory


def _why_not_that(resource: str) -> str:
    if resource.endswith(".shared"):
        return UNKNOWN_SHARE
    return ANY_VENDOR if is_known(resource) else NO_SUCH_DEVICE


def _asked(spec: Part) -> Asked:
    asked = Asked()
    resource = spec.text("requestGPUType") or "nvidia.com/gpu"
    if slice_named(resource) is None:
        spec.lose("requestGPUType", _why_not_that(resource))
        resource = "nvidia.com/gpu"
    if spec.has("requestGPU"):
        asked = quantity(resource, spec.part("requestGPU"), asked)
    for key, name in OF_HAMI.items():
        if spec.has(f"limit{key}"):
            spec.lose(f"request{key}", "the limit counts")
        for word in ("limit", "request"):
            if spec.has(f"{word}{key}") and (word == "limit" or not spec.has(f"limit{key}")):
                asked = quantity(name, spec.part(f"{word}{key}"), asked)
    return asked


def _configured(launch: Launch, config: Part) -> None:
    for setting in config.items():
        if setting.key in FLAGS:
            if (value := setting.as_text()) is not None:
                launch.read([(FLAGS[setting.key], setting.at), (value, setting.at)])
        elif setting.key in SWITCHES:
            if (is_on := config.switch(setting.key)) is not None:
                launch.read([(SWITCHES[setting.key][0 if is_on else 1], setting.at)])
        elif setting.key in ("v0", "v1"):
            if (is_on := config.switch(setting.key)) is not None:
                launch.env["VLLM_USE_V1"] = "1" if is_on == (setting.key == "v1") else "0"
        elif setting.key == "extraArgs":
            launch.read(config.texts("extraArgs"))
    config.lose("prometheusMultiprocDir", "where an engine keeps its figures is its own affair")


def _features(launch: Launch, spec: Part) -> None:
    """Options that stand beside `vllmConfig`."""
    if spec.switch("enableLoRA"):
        launch.args.append("--enable-lora")
    if spec.switch("enableTool"):
        launch.args.append("--enable-auto-tool-choice")
    for key, flag in (("toolCallParser", "--tool-call-parser"), ("chatTemplate", "--chat-template")):
        if (value := spec.text(key)) is not None:
            launch.read([(flag, (*spec.at, key)), (value, (*spec.at, key))])
    spec.change("chatTemplate", "agents place no files: the template must be on the nodes under this path")


def _token(launch: Launch, spec: Part) -> None:
    """`hf_token`: in clear text, or the name and key of a secret."""
    if not spec.has("hf_token"):
        return
    token = spec.part("hf_token")
    if token.is_mapping:
        name = secret_name(token.text("secretName"), token.text("secretKey"))
        launch.secret("HF_TOKEN", token.at, "give the secret's value to the agents", name)
    else:
        launch.secret("HF_TOKEN", token.at, "a secret in clear text: give it to the agents under the name hf-token")
