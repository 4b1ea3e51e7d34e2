"""GPUStack: its catalog of models (`model_sets`), and models as its API lists them."""

import json
from collections.abc import Iterator, Mapping

from llmgw.importing.account import Part
from llmgw.importing.draft import FILL_IN, CatalogDraft, ModelDraft, ProfileDraft, identifier, to_fill_in
from llmgw.importing.kubernetes import image_named
from llmgw.importing.launching import Launch, launch_of, source_of
from llmgw.importing.places import THE_LABELS, THE_NODES
from llmgw.problems import quoted

ENGINES: Mapping[str, str] = {"vllm": "vllm", "sglang": "sglang", "llama.cpp": "llama.cpp"}

PLANE_PLACES = "the plane places by whole devices, kind and memory"

SPEC: Mapping[str, str] = {
    "gpu_filters": "profiles ask for devices by kind and memory, not by vendor or compute capability",
    "backend_version": "install that version on the nodes, name its `image`, or make an engine of your own of it",
    "run_command": "write it as a command, with ${llmgw:port}",
    "placement_strategy": PLANE_PLACES,
    "cpu_offloading": PLANE_PLACES,
    "distributed_inference_across_workers": "a replica's devices are on one node",
    "restart_on_error": "an engine that ends is always started again",
    "extended_kv_cache": "a shared cache cannot be expressed",
    "lora_list": "an adapter cannot be a public name of its base model",
    "distributable": PLANE_PLACES,
    "cluster_id": "one catalog is for one fleet",
    "meta": "it is for GPUStack's own pages",
}

STATE = "what GPUStack has observed, not what is wanted"
STATES = ("id", "created_at", "updated_at", "deleted_at", "ready_replicas", "state", "access_policy")

METADATA_FIELDS = (
    "description",
    "home",
    "size",
    "size_unit",
    "activated_size",
    "categories",
    "capabilities",
    "licenses",
    "release_date",
)


def reads(raw: Mapping[str, object]) -> bool:
    return "model_sets" in raw or is_model(raw) or any(is_model(item) for item in _items(raw.get("items")))


def is_model(raw: object) -> bool:
    return isinstance(raw, dict) and "source" in raw and bool({"name", "backend", "categories"} & set(raw))


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def read(document: Part) -> CatalogDraft:
    if document.has("items"):
        document.lose("pagination", STATE)
        return CatalogDraft(tuple(m for item in document.part("items").items() for m in _deployed(item)))
    if not document.has("model_sets"):
        return CatalogDraft(tuple(_deployed(document)))
    document.lose("draft_models", "a draft model is named in an engine's own arguments, such as --speculative-config")
    for part in document.items():
        if part.key.startswith(".") and not part.is_mapping:
            part.account.change(part.at, "an anchor of YAML: its value counts where it is used")
    return CatalogDraft(tuple(m for entry in document.part("model_sets").items() for m in _offered(entry)))


# --- the catalog of models -----------------------------------------------------------------------------------------


def _offered(entry: Part) -> Iterator[ModelDraft]:
    """One model set: a model with a profile for each of its specs, in their order."""
    name = entry.text("name")
    entry.lose("icon", "pictures have no place in a catalog")
    for part in entry.items():
        if part.key.startswith("."):
            part.account.change(part.at, "an anchor of YAML: its value counts where it is used")
    whys: list[str] = []
    profiles = [profile for spec in entry.part("specs").items() for profile in _profile(spec, whys)]
    if name is None:
        entry.account.drop(entry.at, "it has no name")
        return
    if not profiles:
        why = f"none of its specs can be launched: {'; '.join(dict.fromkeys(whys)) or 'it has none'}"
        entry.account.lose((*entry.at, "specs"), why, quoted(name))
        entry.account.assume(entry.at, FILL_IN)
        yield ModelDraft(entry.at, name, (to_fill_in(entry.at),), (), 0, 0, metadata=_metadata(entry))
        return
    entry.account.assume(entry.at, "replicas {min: 0, max: 1}: the list says what may run; it sleeps until asked for")
    yield ModelDraft(entry.at, name, tuple(profiles), (), 0, 1, metadata=_metadata(entry))


def _metadata(part: Part) -> dict[str, str]:
    return {key: value for key in METADATA_FIELDS if (value := part.whole_as_json(key)) is not None}


def _profile(spec: Part, whys: list[str]) -> Iterator[ProfileDraft]:
    """None where it cannot be launched: `whys` then has one more."""
    spec.lose_each({**SPEC, "categories": "they stand with the model"})
    launch, why = _launched(spec)
    if launch is None:
        spec.account.drop(spec.at, why)
        whys.append(why)
        return
    mode, quantization = spec.text("mode"), spec.text("quantization")
    yield ProfileDraft(
        spec.at,
        "-".join(word for word in (mode, quantization) if word) or "main",
        launch.row.name,
        args=tuple(launch.args),
        env=launch.env,
        secrets=launch.secrets,
        devices=launch.devices(None),
        nodes=_workers(spec),
        labels=_labels(spec),
        weights=launch.weights,
        image=image_named(spec, "image_name"),
    )


def _labels(spec: Part) -> dict[str, str]:
    """`worker_selector`: labels that a worker has."""
    found = {item.key: text for item in spec.part("worker_selector").items() if (text := item.as_text()) is not None}
    if found:
        spec.account.assume(spec.at, THE_LABELS)
    return found


def _workers(spec: Part) -> tuple[str, ...]:
    """`gpu_selector`: devices named `WORKER:TYPE:INDEX`. On these workers only; which of their devices, the plane
    chooses."""
    selector = spec.part("gpu_selector")
    names: dict[str, None] = {}
    for text, at in selector.texts("gpu_ids"):
        worker = text.split(":")[0]
        if text.count(":") != 2 or identifier(worker) != worker:
            spec.account.uncarry(at)
            spec.account.lose(at, "it is not WORKER:TYPE:INDEX")
            continue
        names[worker] = None
        spec.account.change(at, "the plane chooses the devices of that node")
    if names:
        spec.account.assume(spec.at, f"{', '.join(map(quoted, list(names)[:8]))}: {THE_NODES}")
    return tuple(names)


def _launched(spec: Part) -> tuple[Launch | None, str]:
    """The launch, or why there can be none."""
    backend = spec.text("backend") or "vLLM"
    row = ENGINES.get(backend.casefold())
    if row is None:
        return None, f"llmgw has no engine {backend}: make one under `engines`, or use a command"
    source = spec.text("source")
    weights, why = (None, "") if source == "model_scope" else _weights(spec, source)
    launch = launch_of(row, spec.account, spec.at, weights)
    if source == "model_scope":
        why = _from_modelscope(launch, spec)
    if weights is None and why:
        return None, why
    launch.read(spec.texts("backend_parameters"))
    for variable in spec.part("env").items():
        if variable.key.startswith("GPUSTACK_"):
            variable.lose_all("it is for GPUStack itself")
        elif (value := variable.as_text()) is not None:
            launch.variable(variable.key, value, variable.at)
    _speculate(launch, spec.part("speculative_config"))
    return launch, ""


MODELSCOPE: Mapping[str, tuple[str, str]] = {
    "vllm": ("--model", "VLLM_USE_MODELSCOPE"),
    "sglang": ("--model-path", "SGLANG_USE_MODELSCOPE"),
}
"""Engines that fetch from ModelScope by themselves: the flag of the repository, and the variable that says so."""


def _from_modelscope(launch: Launch, spec: Part) -> str:
    """Nothing, or why the engine cannot be told."""
    told, repository = MODELSCOPE.get(launch.row.name), spec.text("model_scope_model_id")
    spec.lose("model_scope_file_path", "the engine loads the whole repository")
    if told is None or repository is None:
        return "weights from ModelScope cannot be fetched: put them on the nodes and write file:///path"
    flag, variable = told
    launch.args += [flag, repository]
    launch.env[variable] = "true"
    spec.change("source", "the engine fetches from ModelScope by itself")
    return ""


def _weights(spec: Part, source: str | None) -> tuple[str | None, str]:
    if source in ("huggingface", None) and spec.has("huggingface_repo_id"):
        repository, file = spec.text("huggingface_repo_id"), spec.text("huggingface_filename")
        if file is not None and "*" in file:
            return None, "its weights are a pattern of files: name one"
        whole = f"hf://{repository}/{file}" if file else f"hf://{repository}"
        return source_of(whole), "its repository's name cannot be used"
    if source == "local_path":
        return source_of(spec.text("local_path") or "", hub=False), "its path is not absolute"
    return None, f"weights from {source or 'nowhere'} cannot be fetched: put them on the nodes and write file:///path"


def _speculate(launch: Launch, config: Part) -> None:
    """Speculative decoding by the model's own heads, as vLLM and SGLang are told of it."""
    if not config.is_mapping:
        return
    algorithm, tokens = config.text("algorithm"), config.whole("num_draft_tokens", least=1)
    config.lose("ngram_min_match_length", "give it in the engine's own arguments")
    config.lose("ngram_max_match_length", "give it in the engine's own arguments")
    is_on = config.switch("enabled")
    if is_on and launch.row.name == "vllm" and algorithm == "mtp" and not config.has("draft_model"):
        given = {"method": algorithm, **({"num_speculative_tokens": tokens} if tokens else {})}
        launch.args += ["--speculative-config", json.dumps(given)]
    elif is_on is not False:
        config.account.drop(config.at, "give it in the engine's own arguments: engines differ in what they call it")


# --- models as the API lists them ----------------------------------------------------------------------------------


def _deployed(entry: Part) -> Iterator[ModelDraft]:
    entry.lose_each(dict.fromkeys(STATES, STATE))
    name = entry.text("name")
    entry.lose_each(SPEC)
    if name is None:
        entry.account.drop(entry.at, "it has no name")
        return
    launch, why = _launched(entry)
    if launch is None:
        entry.account.drop(entry.at, why, quoted(name))
        entry.account.carry((*entry.at, "name"))
        entry.account.assume(entry.at, FILL_IN)
        yield ModelDraft(entry.at, name, (to_fill_in(entry.at),), (), 0, 0)
        return
    replicas = entry.whole("replicas")
    count = 1 if replicas is None else min(replicas, 10_000)
    each = entry.part("gpu_selector").whole("gpus_per_replica", least=1)
    profile = ProfileDraft(
        entry.at,
        "main",
        launch.row.name,
        args=tuple(launch.args),
        env=launch.env,
        secrets=launch.secrets,
        devices=launch.devices(None if each is None else min(each, 1024)),
        nodes=_workers(entry),
        labels=_labels(entry),
        weights=launch.weights,
        image=image_named(entry, "image_name"),
    )
    yield ModelDraft(entry.at, name, (profile,), (), count, count, metadata=_metadata(entry))
