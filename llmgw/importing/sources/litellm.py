"""LiteLLM's proxy: public names and the endpoints behind them. It starts nothing, so how to launch is seldom said."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from llmgw.importing.account import Part
from llmgw.importing.draft import FILL_IN, CatalogDraft, Devices, ModelDraft, ProfileDraft, to_fill_in
from llmgw.importing.launching import source_of
from llmgw.problems import Path

OWN_ALWAYS = frozenset({"hosted_vllm", "vllm", "ollama", "ollama_chat", "lm_studio", "llamafile", "xinference"})
"""Providers that are a machine of one's own."""

SELF_HOSTED = OWN_ALWAYS | {
    "openai",
    "custom_openai",
    "openai_like",
    "text-completion-openai",
    "infinity",
    "huggingface",
    "triton",
    "docker_model_runner",
    "lemonade",
    "llama.cpp",
}
"""Providers that may be one: with an api_base of a private network."""

A_PROXY_S = "a proxy's own setting: llmgw's routers have settings of their own, in docs/processes.md"
NO_FALLBACK = "a model's profiles are tried in their order; one model does not stand in for another"

SETTINGS: Mapping[str, str] = {
    "litellm_settings": A_PROXY_S,
    "general_settings": A_PROXY_S + "; keys of clients are in a router's --api-keys-file",
    "environment_variables": A_PROXY_S,
    "guardrails": A_PROXY_S,
    "callback_settings": A_PROXY_S,
    "credential_list": "a secret is named in a profile, and its value given to the agents",
    "mcp_servers": A_PROXY_S,
    "vector_store_registry": A_PROXY_S,
    "search_tools": A_PROXY_S,
    "files_settings": A_PROXY_S,
    "finetune_settings": A_PROXY_S,
}

PARAMS: Mapping[str, str] = {
    "api_base": "the plane starts engines itself, and knows where they are",
    "base_url": "the plane starts engines itself, and knows where they are",
    "api_key": "the key of an endpoint that llmgw does not start; those it starts have their own",
    "rpm": "routers do not limit requests: the engine queues them",
    "tpm": "routers do not limit requests: the engine queues them",
    "max_parallel_requests": "routers do not limit requests: the engine queues them",
    "timeout": A_PROXY_S,
    "stream_timeout": A_PROXY_S,
    "max_retries": A_PROXY_S,
    "custom_llm_provider": "routers speak OpenAI's interface alone",
}

UNCHANGED = "requests are passed on unchanged: set it in the request, or in the engine's arguments"


def reads(raw: Mapping[str, object]) -> bool:
    return isinstance(raw.get("model_list"), list)


@dataclass(slots=True)
class _Backend:
    """What answers under one or more public names."""

    provider: str
    name: str
    at: Path
    places: set[str] = field(default_factory=set)
    """Its endpoints: as many replicas."""
    weight: int | None = None


@dataclass(slots=True)
class _Public:
    at: Path
    names: list[tuple[str, Path]] = field(default_factory=list)
    backends: list[_Backend] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)


def read(document: Part) -> CatalogDraft:
    document.lose_each(SETTINGS)
    groups: list[_Public] = []
    for entry in document.part("model_list").items():
        _sort_in(entry, groups)
    _more_names(document.part("router_settings"), groups)
    return CatalogDraft(tuple(_model(group, document) for group in groups))


def _sort_in(entry: Part, groups: list[_Public]) -> None:
    """The entry's endpoint, under its public name; endpoints that share a name, or names that share one, are one."""
    params = entry.part("litellm_params")
    name, model = entry.text("model_name"), params.text("model")
    if name is None or model is None or (why := _not_ours(model, params)) is not None:
        entry.account.drop(entry.at, "it has no model_name or no model" if name is None or model is None else str(why))
        return
    for param in params.items():
        if param.key not in ("model", "weight"):
            param.lose_all(PARAMS.get(param.key, UNCHANGED))
    provider, rest = _divided(model)
    if "*" in name:
        entry.lose("model_name", "a wildcard is no name: it is called as its backend is")
        name = rest
    group = next((g for g in groups if _is_of(g, name, provider, rest)), None)
    if group is None:
        group = _Public(entry.at)
        groups.append(group)
    group.names.append((name, (*entry.at, "model_name")))
    info = entry.whole_as_json("model_info")
    if info is not None:
        group.metadata.setdefault("model_info", info)
    backend = next((b for b in group.backends if (b.provider, b.name) == (provider, rest)), None)
    if backend is None:
        backend = _Backend(provider, rest, entry.at, weight=params.whole("weight"))
        group.backends.append(backend)
    backend.places.add(params.peek("api_base") or params.peek("base_url"))


def _is_of(group: _Public, name: str, provider: str, rest: str) -> bool:
    named = any(known == name for known, _ in group.names)
    return named or any((b.provider, b.name) == (provider, rest) for b in group.backends)


def _divided(model: str) -> tuple[str, str]:
    provider, slash, rest = model.partition("/")
    return (provider, rest) if slash and provider in SELF_HOSTED else ("", model)


def _not_ours(model: str, params: Part) -> str | None:
    """Why the entry describes nothing that llmgw could run."""
    base = params.peek("api_base") or params.peek("base_url")
    if "*" in model:
        return "a wildcard stands for names that are not known here: llmgw publishes named models"
    provider, _ = _divided(model)
    if _is_own(base) or provider in OWN_ALWAYS or (provider and base.startswith("os.environ/")):
        return None
    return "an endpoint of somebody else's: llmgw publishes what it starts, and nothing else"


_OWN_HOST = re.compile(
    r"localhost|127\..*|10\..*|192\.168\..*|172\.(1[6-9]|2\d|3[01])\..*|100\.(6[4-9]|[7-9]\d|1[01]\d|12[0-7])\..*"
    r"|\[?::1\]?|[^.]+|.*\.(local|lan|internal|home|svc|intranet|home\.arpa|svc\.cluster\.local)"
)


def _is_own(base: str) -> bool:
    """Whether the address is of a private network."""
    try:
        host = urlsplit(base if "://" in base else f"//{base}").hostname or ""
    except ValueError:
        return False
    return bool(host) and not base.startswith("os.environ/") and _OWN_HOST.fullmatch(host) is not None


def _more_names(settings: Part, groups: list[_Public]) -> None:
    """`model_group_alias: {alias: name}` are aliases; the rest is the proxy's own."""
    for alias in settings.part("model_group_alias").items():
        group = next((g for g in groups if any(name == alias.raw for name, _ in g.names)), None)
        if group is None:
            alias.lose_all("it stands for a model that is not carried over, or is more than a name")
            continue
        alias.account.carry(alias.at)
        group.names.append((alias.key, alias.at))
    for setting in settings.items():
        if setting.key != "model_group_alias":
            setting.lose_all(NO_FALLBACK if "fallback" in setting.key else A_PROXY_S)


def _model(group: _Public, document: Part) -> ModelDraft:
    profiles = tuple(_profile(backend, document) for backend in group.backends)
    count = max(len(backend.places) for backend in group.backends)
    is_known = all(profile.engine != "command" for profile in profiles)
    metadata = {**group.metadata, "litellm_model": ", ".join(_said(backend) for backend in group.backends)}
    (name, _), *others = group.names
    if len(profiles) > 1:
        document.account.assume(group.at, "its endpoints differ: they are profiles, tried in their order")
    count = min(count, 10_000) if is_known else 0
    return ModelDraft(group.at, name, profiles, tuple(others), count, count, metadata=metadata)


def _said(backend: _Backend) -> str:
    return f"{backend.provider}/{backend.name}" if backend.provider else backend.name


def _profile(backend: _Backend, document: Part) -> ProfileDraft:
    weights = source_of(backend.name)
    if backend.provider in ("hosted_vllm", "vllm") and weights is not None:
        why = "vllm on 1 whole device: the file does not say how it is launched"
        document.account.assume(backend.at, why)
        return ProfileDraft(backend.at, "vllm", "vllm", devices=Devices(1), weights=weights, weight=backend.weight)
    document.account.assume(backend.at, f"the file does not say how it is launched: {FILL_IN}")
    return replace(to_fill_in(backend.at), weight=backend.weight)
