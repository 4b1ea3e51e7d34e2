"""The engine table: one row per kind of engine, with the facts that rendering, placement and checks need.

A newcomer adds a row here and a golden of its argv in `tests/core/goldens`. Rows hold facts, never behaviour.
Facts come from vLLM 0.32.0, SGLang 0.5.23 and llama.cpp b10434 as installed and run, and from their issue trackers
where a line says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from llmgw.catalog import Catalog, EngineExtension
from llmgw.placeholders import HOST, PORT, PYTHON, SERVED_NAME, WEIGHTS, placeholder
from llmgw.wire import DeviceNaming, DeviceSelection, EnginePost, MetricNames, Readiness, SleepPaths

_PORT = placeholder(PORT)
_HOST = placeholder(HOST)
_NAME = placeholder(SERVED_NAME)
_WEIGHTS = placeholder(WEIGHTS)


@dataclass(frozen=True, slots=True)
class WeightsRule:
    """How an engine is told its weights. `own_flags` name them in args instead, when the catalog gives none."""

    args: tuple[str, ...] = ()
    own_flags: tuple[str, ...] = ()
    revision_flag: str = ""
    """Names the revision of a hub's repository; empty = the engine takes none."""
    hub_flags: tuple[str, str] | None = None
    """Name a hub's repository and a file of it, in place of `args`, to an engine that fetches them itself."""
    required: bool = True
    suffix: str = ""
    """What the source should end with; empty = anything."""


@dataclass(frozen=True, slots=True)
class SleepMode:
    """How an engine can be put to sleep by its agent. `args` and `env` make it able to; given only where it is used."""

    levels: Mapping[int, SleepPaths]
    """By `sleep_level`."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One kind of engine. argv = executable, weights args, extension args, profile args, serve args."""

    name: str
    executable: tuple[str, ...]
    """Program and fixed first arguments; a profile's `executable` replaces the first item."""
    weights: WeightsRule = WeightsRule(required=False)
    serve_args: tuple[str, ...] = ()
    """Name, address and port. Last, so that nothing before can win over them."""
    owned_flags: Mapping[str, str] = field(default_factory=dict)
    """Flags that only the plane gives, with the reason told to who tries."""
    abbreviates: bool = False
    """The parser takes unique prefixes of flags, and `_` for `-` (Python's argparse as vLLM extends it)."""
    name_forbids: str = ""
    """Characters a served name must not have."""
    devices: Mapping[str, DeviceSelection] = field(default_factory=dict)
    """By vendor of the devices. A vendor that is missing cannot be named to this engine: a refusal."""
    without_devices: Mapping[str, str] = field(default_factory=dict)
    """Environment that hides every device from a replica that asked for none."""
    env: Mapping[str, str] = field(default_factory=dict)
    readiness: Readiness = field(default_factory=Readiness)
    takes_command: bool = False
    """The profile's `command` is what runs."""
    needs_image: bool = False
    metrics: MetricNames = field(default_factory=MetricNames)
    sleep_flags: tuple[str, ...] = ()
    """With one of these it sleeps by itself, and reading its metrics would keep it awake: then none are read."""
    sleep: SleepMode | None = None
    """None: `idle: sleep` is not for it."""
    term_limit_s: float | None = None
    """The most that waiting after a TERM is worth; None = as long as the profile says."""
    second_term_limit_s: float = 5.0
    kill_limit_s: float = 10.0


# Level 1 keeps the weights in main memory. Level 2 drops them: what is woken plainly then answers nonsense, so memory
# for the weights comes first, then they are read again, then the cache; a step that was taken already does nothing.
# By its own word it is asleep until the last step. Source: vLLM's documentation, features/sleep_mode. All of it is
# there only in its development mode: 404 without (measured).
_VLLM_SLEEP = {
    1: SleepPaths(sleep="/sleep?level=1", wake="/wake_up", told="/is_sleeping"),
    2: SleepPaths(
        sleep="/sleep?level=2",
        wake="/wake_up?tags=weights",
        told="/is_sleeping",
        then=(
            EnginePost(path="/collective_rpc", body='{"method":"reload_weights"}'),
            EnginePost(path="/wake_up?tags=kv_cache"),
        ),
    ),
}

# --- devices by vendor ---------------------------------------------------------------------------------------------

_BUS_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
_CUDA_UUID = DeviceSelection(naming=DeviceNaming.UUID, variables=("CUDA_VISIBLE_DEVICES",), extra_env=_BUS_ORDER)
# vLLM and SGLang read CUDA_VISIBLE_DEVICES themselves and fail on a UUID with "invalid literal for int()"
# (vllm-project/vllm#41848, fix #46132 was open in June 2026), so they get indexes in forced bus order. An extension
# with `devices: {naming: uuid, …}` is the way for a version that can, and for MIG slices.
_CUDA_INDEX = DeviceSelection(naming=DeviceNaming.INDEX, variables=("CUDA_VISIBLE_DEVICES",), extra_env=_BUS_ORDER)
# Only this one: ROCR_VISIBLE_DEVICES filters below it and renumbers, and vLLM raises when CUDA_VISIBLE_DEVICES differs.
_HIP = DeviceSelection(naming=DeviceNaming.INDEX, variables=("HIP_VISIBLE_DEVICES",))
_ASCEND = DeviceSelection(naming=DeviceNaming.INDEX, variables=("ASCEND_RT_VISIBLE_DEVICES",))
_LEVEL_ZERO = DeviceSelection(naming=DeviceNaming.INDEX, variables=("ZE_AFFINITY_MASK",))
# Devices that an operator declared for a machine without any: nothing to select, only to be told.
_TOLD = DeviceSelection(naming=DeviceNaming.UUID, variables=("LLMGW_DEVICES",))

_INDEXED = {"nvidia": _CUDA_INDEX, "amd": _HIP, "ascend": _ASCEND, "intel": _LEVEL_ZERO}
_TELLING = dict.fromkeys(("declared", "unknown", "cpu", "apple"), _TOLD)
_TOLD_TOO = {
    vendor: selection.model_copy(update={"variables": (*selection.variables, *_TOLD.variables)})
    for vendor, selection in {**_INDEXED, "nvidia": _CUDA_UUID}.items()
}

# "-1" hides every device from CUDA and HIP; an empty list would mean all of them to some engines.
_HIDDEN = {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}

DEVICE_VARIABLES = frozenset(
    {
        *(variable for selection in _TOLD_TOO.values() for variable in selection.variables),
        "ROCR_VISIBLE_DEVICES",
        "GGML_VK_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "LLAMA_ARG_DEVICE",
    }
)
"""Variables by which engines are told their devices: the plane sets them, the catalog may not."""

HIDING_VALUES = frozenset({"", "-1", "none"})

# --- the rows ------------------------------------------------------------------------------------------------------

_WHY_PORT = "the node picks the port"
_WHY_HOST = "the node picks the address"
_WHY_NAME = "an engine serves under the model's name, and routers write that name into requests"

ROWS: Mapping[str, EngineRow] = MappingProxyType(
    {
        row.name: row
        for row in (
            EngineRow(
                name="vllm",
                executable=("vllm", "serve"),
                weights=WeightsRule((_WEIGHTS,), ("--model",), revision_flag="--revision"),
                serve_args=("--served-model-name", _NAME, "--host", _HOST, "--port", _PORT),
                owned_flags={
                    "--port": _WHY_PORT,
                    "--host": _WHY_HOST,
                    "--uds": _WHY_HOST,
                    "--served-model-name": _WHY_NAME,
                },
                abbreviates=True,
                devices=_INDEXED,
                without_devices=_HIDDEN,
                env={"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"},
                metrics=MetricNames(
                    running="vllm:num_requests_running",
                    waiting="vllm:num_requests_waiting",
                    tokens_total="vllm:generation_tokens_total",
                ),
                sleep=SleepMode(_VLLM_SLEEP, ("--enable-sleep-mode",), {"VLLM_SERVER_DEV_MODE": "1"}),
                # An idle vLLM takes 6.6 s from TERM to exit; its workers outlive it without a KILL to the group.
            ),
            EngineRow(
                name="sglang",
                executable=("python3", "-m", "sglang.launch_server"),
                weights=WeightsRule(
                    ("--model-path", _WEIGHTS), ("--model-path", "--model"), revision_flag="--revision"
                ),
                serve_args=("--enable-metrics", "--served-model-name", _NAME, "--host", _HOST, "--port", _PORT),
                owned_flags={"--port": _WHY_PORT, "--host": _WHY_HOST, "--served-model-name": _WHY_NAME},
                abbreviates=True,
                devices=_INDEXED,
                without_devices=_HIDDEN,
                # /health generates a token (503 while starting); the cheaper /ready is missing in older versions.
                metrics=MetricNames(
                    running="sglang:num_running_reqs",
                    waiting="sglang:num_queue_reqs",
                    tokens_total="sglang:generation_tokens_total",
                ),
            ),
            EngineRow(
                name="llama.cpp",
                executable=("llama-server",),
                weights=WeightsRule(
                    ("-m", _WEIGHTS),
                    ("-m", "--model", "-mu", "--model-url", "-hf", "-hfr", "--hf-repo", "-dr", "--docker-repo"),
                    hub_flags=("-hf", "-hff"),
                    suffix=".gguf",
                ),
                serve_args=("--metrics", "-a", _NAME, "--host", _HOST, "--port", _PORT),
                owned_flags={
                    "--port": _WHY_PORT,
                    "--host": _WHY_HOST,
                    "-a": _WHY_NAME,
                    "--alias": _WHY_NAME,
                    "--models-dir": "one replica serves one model",
                    "--models-preset": "one replica serves one model",
                },
                name_forbids=",",  # -a takes a comma-separated list
                # The CUDA driver takes UUIDs and llama.cpp does not look. A Vulkan build numbers devices its own way:
                # an extension with `devices: {naming: index, variables: [GGML_VK_VISIBLE_DEVICES]}`.
                devices={**_INDEXED, "nvidia": _CUDA_UUID, **_TELLING},
                without_devices={**_HIDDEN, "LLAMA_ARG_DEVICE": "none"},
                metrics=MetricNames(
                    running="llamacpp:requests_processing",
                    waiting="llamacpp:requests_deferred",
                    tokens_total="llamacpp:tokens_predicted_total",
                ),
                # Seen with b10434: /metrics ends its sleep and puts off the next; /health and /v1/models do neither.
                sleep_flags=("--sleep-idle-seconds",),
                # On the first TERM it exits at once or, with a stream open, hangs; the second one ends it.
                term_limit_s=5.0,
                second_term_limit_s=2.0,
            ),
            EngineRow(
                name="tensorrt-llm",
                executable=("trtllm-serve",),
                weights=WeightsRule((_WEIGHTS,)),
                serve_args=("--served_model_name", _NAME, "--host", _HOST, "--port", _PORT),
                owned_flags={"--port": _WHY_PORT, "--host": _WHY_HOST, "--served_model_name": _WHY_NAME},
                devices={"nvidia": _CUDA_INDEX},
                without_devices=_HIDDEN,
                # Its /metrics is JSON of iterations, no Prometheus page: use is then told by the routers alone.
            ),
            EngineRow(
                name="tgi",
                executable=("text-generation-launcher",),
                weights=WeightsRule(("--model-id", _WEIGHTS), ("--model-id",), revision_flag="--revision"),
                serve_args=("--hostname", _HOST, "--port", _PORT),
                owned_flags={"--port": _WHY_PORT, "-p": _WHY_PORT, "--hostname": _WHY_HOST},
                devices={"nvidia": _CUDA_INDEX, "amd": _HIP},
                without_devices=_HIDDEN,
                # It lists its weights' name and answers to any: health alone decides.
                readiness=Readiness(lists_model=False),
                metrics=MetricNames(
                    running="tgi_batch_current_size",
                    waiting="tgi_queue_size",
                    tokens_total="tgi_request_generated_tokens_sum",
                ),
            ),
            EngineRow(
                name="container",
                executable=(),
                takes_command=True,
                needs_image=True,
                devices={**_TOLD_TOO, **_TELLING},
                without_devices=_HIDDEN,
            ),
            EngineRow(
                name="command",
                executable=(),
                takes_command=True,
                devices={**_TOLD_TOO, **_TELLING},
                without_devices=_HIDDEN,
            ),
            EngineRow(
                name="stub",
                executable=(placeholder(PYTHON), "-m", "agent.stub_engine"),
                serve_args=("--served-model-name", _NAME, "--host", _HOST, "--port", _PORT),
                owned_flags={"--port": _WHY_PORT, "--host": _WHY_HOST, "--served-model-name": _WHY_NAME},
                abbreviates=True,
                devices={**_TOLD_TOO, **_TELLING},
                metrics=MetricNames(
                    running="stub:requests_running",
                    waiting="stub:requests_waiting",
                    tokens_total="stub:tokens_total",
                ),
                sleep=SleepMode(_VLLM_SLEEP, ("--enable-sleep-mode",)),
            ),
        )
    }
)


@dataclass(frozen=True, slots=True)
class Engine:
    """What a profile's `engine` stands for: a row, with the operator's extension worked in."""

    name: str
    row: EngineRow
    args: tuple[str, ...] = ()
    """The extension's own, before the profile's."""
    any_devices: DeviceSelection | None = None
    """The extension's device selection, whatever the vendor."""

    def selection(self, vendor: str) -> DeviceSelection | None:
        """How devices of `vendor` are named to this engine; None when they cannot be."""
        return self.any_devices or self.row.devices.get(vendor.casefold())


def engine_named(name: str, extensions: Mapping[str, EngineExtension]) -> Engine | None:
    """The engine called `name`, or None. Built-in rows come first: an extension cannot replace one."""
    if (row := ROWS.get(name)) is not None:
        return Engine(name, row)
    extension = extensions.get(name)
    if extension is None or (base := ROWS.get(extension.base)) is None:
        return None
    return Engine(name, _extended(base, extension), extension.args, _own_devices(extension))


def engine_of(catalog: Catalog, name: str) -> Engine:
    """As `engine_named`, for a catalog that was checked; KeyError when it was not."""
    engine = engine_named(name, catalog.engines)
    if engine is None:
        raise KeyError(f"no engine {name!r} in a catalog that should have been checked")
    return engine


def _extended(base: EngineRow, extension: EngineExtension) -> EngineRow:
    readiness = {
        "health_path": extension.health_path,
        "models_path": extension.models_path,
        "lists_model": extension.lists_model,
        "probe_completion": extension.probe_completion,
    }
    metrics = extension.metrics.model_dump(exclude_none=True) if extension.metrics else {}
    return replace(
        base,
        executable=extension.executable or base.executable,
        env={**base.env, **extension.env},
        readiness=base.readiness.model_copy(update={k: v for k, v in readiness.items() if v is not None}),
        metrics=base.metrics.model_copy(update=metrics),
    )


def _own_devices(extension: EngineExtension) -> DeviceSelection | None:
    if extension.devices is None:
        return None
    order = _BUS_ORDER if "CUDA_VISIBLE_DEVICES" in extension.devices.variables else {}
    return DeviceSelection(
        naming=extension.devices.naming, variables=extension.devices.variables, extra_env=dict(order)
    )
