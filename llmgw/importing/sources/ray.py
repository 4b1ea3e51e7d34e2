"""Ray Serve LLM: `LLMConfig` files, Serve configurations that hold them, RayService resources, and RayLLM's older form.

`serveConfigV2`, a text of YAML inside a RayService, is expected to be read already.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from llmgw.importing.account import Part
from llmgw.importing.draft import FILL_IN, JOINED, CatalogDraft, Devices, ModelDraft, ProfileDraft, joined, to_fill_in
from llmgw.importing.kubernetes import CLUSTER_ONLY, METADATA, NO_CPU_SHARE, devices_named
from llmgw.importing.launching import Launch, launch_of, source_of
from llmgw.importing.shares import MOST_DEVICES, Asked, devices_each, shared
from llmgw.importing.spreading import is_told_a_share, ranks_of, spread_of

NO_LOAD = "replicas do not follow load: `llmgw scale`, waking and idleness move the count"
NO_RAY = "llmgw starts engines itself: there is no Ray cluster"

NOT_CARRIED: Mapping[str, str] = {
    "lora_config": "adapters cannot be loaded on demand, nor be public names of their base model",
    "log_engine_metrics": "routers and agents ask the engine for its figures themselves",
    "experimental_configs": NO_RAY,
    "callback_config": NO_RAY,
    "server_cls": NO_RAY,
    "llm_server_config": NO_RAY,
}

DEPLOYMENT: Mapping[str, str] = {
    "max_ongoing_requests": "routers do not limit requests: the engine queues them",
    "max_queued_requests": "routers do not limit requests: the engine queues them",
    "max_concurrent_queries": "routers do not limit requests: the engine queues them",
    "health_check_period_s": "agents probe engines at a pace of their own",
    "health_check_timeout_s": "agents probe engines at a pace of their own",
    "graceful_shutdown_wait_loop_s": NO_RAY,
    "request_router_config": "routers choose by priority, weight and load",
    "name": NO_RAY,
    "placement_group_strategy": "a replica's devices are on one node",
}

APPLICATION: Mapping[str, str] = {
    "name": NO_RAY,
    "import_path": NO_RAY,
    "route_prefix": "the OpenAI paths are fixed",
    "runtime_env": NO_RAY,
    "deployments": NO_RAY,
}


ONE_CONFIG = ("llm_config", "prefill_config", "decode_config")


def reads(raw: Mapping[str, object]) -> bool:
    return bool(
        {"model_loading_config", "engine_config", "applications"} & set(raw)
        or (raw.get("kind") == "RayService" and "spec" in raw)
        or "llm_configs" in raw
    )


def read(document: Part) -> CatalogDraft:
    models: dict[str, ModelDraft] = {}
    for model in _models(document):
        if model.name in models:
            document.account.change((*model.at, "model_loading_config", "model_id"), JOINED)
            models[model.name] = joined(models[model.name], model)
        else:
            models[model.name] = model
    return CatalogDraft(tuple(models.values()))


def _models(part: Part) -> Iterator[ModelDraft]:
    if part.peek("kind") == "RayService":
        part.carry("apiVersion", "kind")
        part.part("metadata").lose_each({**METADATA, "name": CLUSTER_ONLY})
        part.part("spec").lose("rayClusterConfig", NO_RAY)
        for key in ("serviceUnhealthySecondThreshold", "deploymentUnhealthySecondThreshold"):
            part.part("spec").lose(key, "how long a start may take is `start_limit_s` of a profile")
        yield from _models(part.part("spec", "serveConfigV2"))
    elif part.has("applications"):
        part.lose_each({"proxy_location": NO_RAY, "http_options": NO_RAY, "grpc_options": NO_RAY})
        part.lose("logging_config", NO_RAY)
        for application in part.part("applications").items():
            application.lose_each(APPLICATION)
            yield from _listed(application.part("args"))
    elif part.has("llm_configs"):
        yield from _listed(part)
    elif part.has("engine_config"):
        yield from _older(part)
    elif part.has("model_loading_config"):
        yield from _configured(part)


def _listed(args: Part) -> Iterator[ModelDraft]:
    """The models of a Serve application: configurations, or names of files that hold them."""
    listed = [item for key in ("llm_configs", "models") for item in args.part(key).items()]
    for item in (*listed, *(args.part(key) for key in ONE_CONFIG if args.has(key))):
        if item.is_mapping:
            yield from _models(item)
        else:
            item.lose_all("its configuration is a file of its own: import that file")


# --- LLMConfig -----------------------------------------------------------------------------------------------------


def _configured(part: Part) -> Iterator[ModelDraft]:
    part.lose_each(NOT_CARRIED)
    loading, deployment = part.part("model_loading_config"), part.part("deployment_config")
    engine = part.text("llm_engine") or "vLLM"
    name = loading.text("model_id")
    source = loading.text("model_source") if isinstance(loading.part("model_source").raw, str) else None
    if loading.has("model_source") and source is None:
        loading.lose("model_source", "weights in a bucket cannot be fetched: put them on the nodes")
    loading.lose("tokenizer_source", "an engine takes its tokenizer from `--tokenizer` in args")
    weights = source_of(source or name or "") if not loading.has("model_source") or source else None
    if name is None or weights is None or engine != "vLLM":
        yield from _unlaunched(part, name, NO_WEIGHTS if engine == "vLLM" else f"llmgw has no engine {engine}")
        return
    launch = launch_of("vllm", part.account, part.at, weights)
    _arguments(launch, part.part("engine_kwargs"))
    for variable in part.part("runtime_env", "env_vars").items():
        if (value := variable.as_text()) is not None:
            launch.variable(variable.key, value, variable.at)
    asked = _asked(part, deployment, launch)
    part.lose(
        "accelerator_config",
        "the kind of device is `accelerator_type`; without one, and with bundles that have no GPU, it is on the CPU",
    )
    kind = part.text("accelerator_type")
    yield _model(part, name, launch, shared(_kind(launch.devices(asked.count), kind), asked), deployment)


ONE_NODE = "a replica's devices are on one node"
BY_ARGUMENTS = "the share follows from what the arguments leave to the engine"


def _asked(part: Part, deployment: Part, launch: Launch) -> Asked:
    """Devices by the bundles of a placement group, which each data-parallel rank has one of, else by the options of an
    actor."""
    group, actor = part.part("placement_group_config"), deployment.part("ray_actor_options")
    group.lose("strategy", ONE_NODE)
    bundles = [*group.part("bundles").items(), *deployment.part("placement_group_bundles").items()]
    each = [group.part("bundle_per_worker"), part.part("resources_per_bundle")]
    alone = _of_bundle(actor, "num_gpus", launch)
    listed = [_of_bundle(bundle, "GPU", launch) for bundle in bundles if bundle.mapping] * ranks_of(launch.args)
    of_each = [_of_bundle(bundle, "GPU", launch) for bundle in each if bundle.mapping] * spread_of(
        launch.row, launch.args
    )
    counts = [asked.count for asked in listed or of_each]
    if not counts:
        return alone
    share = next((asked for asked in listed or of_each if asked.part is not None), Asked())
    known = [count for count in counts if count is not None]
    return replace(share, count=min(sum(known), MOST_DEVICES) if len(known) == len(counts) else None)


def _of_bundle(bundle: Part, key: str, launch: Launch) -> Asked:
    """`{"GPU": 0.5, "CPU": 1}`: what it asks of devices; a bundle without any asks for none, an actor does not say."""
    for resource in bundle.items():
        if resource.key != key:
            resource.lose_all(NO_CPU_SHARE if resource.key in ("CPU", "num_cpus") else NO_RAY)
    if not bundle.has(key):
        return Asked(count=0 if key == "GPU" else None)
    asked = devices_each(bundle.part(key), Asked())
    if asked.part is not None and is_told_a_share("vllm", launch.args):
        bundle.change(key, BY_ARGUMENTS)
        return replace(asked, part=None)
    return asked


NO_WEIGHTS = "its weights have no source that can be fetched: put them on the nodes and write file:///path"


def _unlaunched(part: Part, name: str | None, why: str) -> Iterator[ModelDraft]:
    """A model of 0 replicas, of which the name alone is carried over."""
    holder = "model_loading_config" if part.has("model_loading_config") else "engine_config"
    part.account.drop(part.at, why if name is not None else "it has no model_id")
    if name is None:
        return
    part.account.carry((*part.at, holder, "model_id"))
    part.account.assume(part.at, FILL_IN)
    yield ModelDraft(part.at, name, (to_fill_in(part.at),), (), 0, 0)


def _kind(devices: Devices | None, kind: str | None) -> Devices | None:
    """`A10G`, `NVIDIA_H100`, `A100-80G`."""
    if devices is None or kind is None:
        return devices
    return devices_named(re.sub(r"^(NVIDIA|AMD|INTEL)[_-](TESLA[_-])?", "", kind), devices.count)


def _arguments(launch: Launch, kwargs: Part) -> None:
    """vLLM's options as Python names: `max_model_len: 2048` → `--max-model-len 2048`."""
    for option in kwargs.items():
        name = option.key.replace("_", "-")
        if option.key == "kv_transfer_config":
            option.lose_all("replicas have no roles: prefill and decode are not told apart")
        elif option.raw is None:
            option.lose_all("null leaves it at the engine's default")
        elif isinstance(option.raw, bool):
            option.account.carry(option.at)
            launch.read([(f"--{name}" if option.raw else f"--no-{name}", option.at)])
        elif isinstance(option.raw, Mapping | list | tuple):
            option.account.carry(option.at)
            launch.read([(f"--{name}", option.at), (json.dumps(option.raw, ensure_ascii=False), option.at)])
        elif (value := option.as_text()) is not None:
            launch.read([(f"--{name}", option.at), (value, option.at)])


def _model(part: Part, name: str, launch: Launch, devices: Devices | None, deployment: Part) -> ModelDraft:
    low, high = _bounds(deployment)
    profile = ProfileDraft(
        part.at,
        "main",
        launch.row.name,
        args=tuple(launch.args),
        env=launch.env,
        secrets=launch.secrets,
        devices=devices,
        weights=launch.weights,
    )
    aliases = tuple((alias, part.at) for alias in launch.names)
    return ModelDraft(part.at, name, (profile,), aliases, low, high)


def _bounds(deployment: Part) -> tuple[int, int]:
    """`num_replicas`, or the bounds of `autoscaling_config`; Ray's default is one."""
    deployment.lose_each(DEPLOYMENT)
    scaling = deployment.part("autoscaling_config")
    low, high = scaling.whole("min_replicas"), scaling.whole("max_replicas")
    for setting in scaling.items():
        if setting.key not in ("min_replicas", "max_replicas"):
            setting.lose_all(NO_LOAD)
    if deployment.part("num_replicas").raw == "auto":
        deployment.lose("num_replicas", NO_LOAD)
    elif not scaling.raw and (fixed := deployment.whole("num_replicas")) is not None:
        low = high = fixed
    low = min(1 if low is None else low, 10_000)
    high = min(max(low, 1) if high is None else high, 10_000)
    if low > high:
        scaling.lose("min_replicas", "it is above max_replicas, which counts")
    return min(low, high), high


# --- RayLLM's older form -------------------------------------------------------------------------------------------

GENERATION = "prompts and stop words come from the model's own template, or the request"


def _older(part: Part) -> Iterator[ModelDraft]:
    config, scaling = part.part("engine_config"), part.part("scaling_config")
    engine, name = config.text("type"), config.text("model_id")
    weights = source_of(config.text("hf_model_id") or name or "")
    if engine not in (None, "VLLMEngine") or name is None or weights is None:
        why = f"llmgw has no engine like {engine}" if engine not in (None, "VLLMEngine") else NO_WEIGHTS
        yield from _unlaunched(part, name, why)
        return
    launch = launch_of("vllm", part.account, part.at, weights)
    if (longest := config.text("max_total_tokens")) is not None:
        launch.args += ["--max-model-len", longest]
    _arguments(launch, config.part("engine_kwargs"))
    for variable in config.part("runtime_env", "env_vars").items():
        if (value := variable.as_text()) is not None:
            launch.variable(variable.key, value, variable.at)
    config.lose("generation", GENERATION)
    config.lose("s3_mirror_config", NO_WEIGHTS)
    config.lose("gcs_mirror_config", NO_WEIGHTS)
    workers, each = scaling.whole("num_workers", least=1), scaling.part("num_gpus_per_worker")
    scaling.lose("num_cpus_per_worker", NO_CPU_SHARE)
    scaling.lose("placement_strategy", ONE_NODE)
    part.part("deployment_config").lose("ray_actor_options", NO_RAY)
    asked = devices_each(each, Asked()) if each.raw is not None else Asked()
    count = (workers or 1) * (1 if asked.count is None else asked.count)
    if workers is not None and workers > 1 and "--tensor-parallel-size" not in launch.args:
        launch.args += ["--tensor-parallel-size", str(workers)]
    devices = launch.devices(min(count, MOST_DEVICES) if workers or asked.count is not None else None)
    devices = shared(_kind_of_worker(devices, scaling.part("resources_per_worker")), asked)
    yield _model(part, name, launch, devices, part.part("deployment_config"))


def _kind_of_worker(devices: Devices | None, resources: Part) -> Devices | None:
    """`accelerator_type_a100_80g: 0.01`: the key says the kind, the number means nothing."""
    for resource in resources.items():
        kind = resource.key.removeprefix("accelerator_type_")
        if devices is None or kind in (resource.key, "cpu"):
            resource.lose_all(NO_RAY)
            continue
        resource.account.change(resource.at, "the kind of device is in the name; the number means nothing")
        devices = devices_named(kind.replace("_", "-"), devices.count)
    return devices
