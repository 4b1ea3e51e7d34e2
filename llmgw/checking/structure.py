"""The shape of a catalog: pydantic's errors in plain words, each with a way to mend it.

Values are shown only where they cannot be secrets.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from llmgw import memory
from llmgw.catalog import IDENTIFIER, SECRET, VARIABLE, Catalog
from llmgw.misfit import plain_words
from llmgw.problems import Finding, Path, did_you_mean, quoted


def catalog_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of what an operator may write."""
    schema = Catalog.model_json_schema(by_alias=True, mode="validation")
    for part in (schema, *schema["$defs"].values()):
        for field in part.get("properties", {}).values():
            if "patternProperties" in field:  # pydantic leaves other names open
                field["additionalProperties"] = False
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "llmgw catalog",
    }


def findings(error: ValidationError, raw: object) -> Iterator[Finding]:
    """One finding for each thing that is wrong in `raw`; what only follows from another error is left out."""
    details = error.errors(include_url=False)
    paths = [_written(_path(detail), raw) for detail in details]
    for at, detail in zip(paths, details, strict=True):
        if detail["type"] == "too_short" and any(len(other) > len(at) and other[: len(at)] == at for other in paths):
            continue  # pydantic counts only the items that are right
        what, mend = _words(at, detail)
        yield Finding(at, what, mend)


def _path(detail: ErrorDetails) -> Path:
    return tuple(step for step in detail["loc"] if step != "[key]")


def _written(at: Path, raw: object) -> Path:
    """`at` as far as it was written: `replicas: -1` is wrong at `replicas`, though it means `replicas.min`."""
    for depth, step in enumerate(at):
        if not isinstance(raw, Mapping | list | tuple):
            return at[:depth]
        inside = isinstance(step, int) and isinstance(raw, list | tuple) and 0 <= step < len(raw)
        raw = raw[step] if inside else raw.get(step, {}) if isinstance(raw, Mapping) else {}  # type: ignore[index]
    return at


Words = tuple[str, str]
"""What is wrong, and how to mend it."""


def _words(at: Path, detail: ErrorDetails) -> Words:
    if detail["loc"][-1:] == ("[key]",):
        return _key_words(at, detail)
    explain = _WORDS.get(detail["type"])
    if explain is None:
        return plain_words(detail["msg"]), "correct it"
    return explain(at, detail)


def _key_words(at: Path, detail: ErrorDetails) -> Words:
    what = f"{quoted(str(at[-1]))} cannot be a name here"
    return what, _PATTERNS.get(str(_limit(detail, "pattern")), "write it as text, in quotes")


# --- one explanation for each type of error ------------------------------------------------------------------------


def _missing(at: Path, _: ErrorDetails) -> Words:
    return f"`{at[-1]}` is missing", f"add `{at[-1]}`"


def _unknown_field(at: Path, _: ErrorDetails) -> Words:
    word = str(at[-1])
    meant = (_ELSEWHERE if len(at) > 1 else _OF_A_FLEET).get(word.casefold().replace("-", "_"))
    return f"there is no field {quoted(word)} here", meant or did_you_mean(word, fields_at(at[:-1]))


def _not_text(at: Path, detail: ErrorDetails) -> Words:
    shown = _shown(at, detail["input"])
    if isinstance(detail["input"], bool | int | float):
        return f"must be text, not {shown}", "put it in quotes"
    return f"must be text, not {shown}", "write a text"


def _not_whole(at: Path, detail: ErrorDetails) -> Words:
    return f"must be a whole number, not {_shown(at, detail['input'])}", "write digits without quotes, such as 2"


def _not_number(at: Path, detail: ErrorDetails) -> Words:
    if isinstance(detail["input"], int) and not isinstance(detail["input"], bool):
        return "this number is out of range", "write a smaller one"
    return f"must be a number, not {_shown(at, detail['input'])}", "write it without quotes, in seconds, such as 30"


def _not_switch(at: Path, detail: ErrorDetails) -> Words:
    return f"must be true or false, not {_shown(at, detail['input'])}", "write true or false without quotes"


def _not_list(at: Path, detail: ErrorDetails) -> Words:
    what = f"must be a list, not {_shown(at, detail['input'])}"
    if at[-1:] in (("args",), ("command",), ("executable",)):
        return (
            what,
            'write one item for each argument: ["--max-model-len", "8192"]; nothing is split, there is no shell',
        )
    return what, "write a list, even of one item: [ … ]"


def _not_mapping(at: Path, detail: ErrorDetails) -> Words:
    if at[-1:] == ("replicas",):
        hint = "write digits without quotes, such as replicas: 2, or bounds: {min: 0, max: 2}"
        return f"must be a whole number or bounds, not {_shown(at, detail['input'])}", hint
    fields = fields_at(at)
    return f"must be a mapping, not {_shown(at, detail['input'])}", (
        f"write it with the fields {', '.join(fields)}" if fields else "write `name: value`"
    )


def _bad_pattern(at: Path, detail: ErrorDetails) -> Words:
    what = f"{_shown(at, detail['input'])} is not allowed here"
    return what, _PATTERNS.get(str(_limit(detail, "pattern")), f"it must match {_limit(detail, 'pattern')}")


def _bad_value(_: Path, detail: ErrorDetails) -> Words:
    """Errors our own validators raise: their words are already meant for people."""
    words = plain_words(str(detail.get("ctx", {}).get("error", detail["msg"])))
    return words, memory.HOW if "size of memory" in words or "unit" in words else "correct it"


def _out_of_range(sign: str, key: str) -> Callable[[Path, ErrorDetails], Words]:
    def explain(at: Path, detail: ErrorDetails) -> Words:
        return f"{_shown(at, detail['input'])} is out of range", f"it must be {sign} {int(_limit(detail, key)):,}"

    return explain


def _wrong_length(what: str, key: str, mend: str) -> Callable[[Path, ErrorDetails], Words]:
    def explain(_: Path, detail: ErrorDetails) -> Words:
        return what, f"{mend} {_limit(detail, key)}"

    return explain


def _fixed(what: str, mend: str) -> Callable[[Path, ErrorDetails], Words]:
    return lambda _at, _detail: (what, mend)


def _not_listed(at: Path, detail: ErrorDetails) -> Words:
    return f"{_shown(at, detail['input'])} is unknown here", f"write one of: {_limit(detail, 'expected')}"


_WORDS: Mapping[str, Callable[[Path, ErrorDetails], Words]] = {
    "missing": _missing,
    "extra_forbidden": _unknown_field,
    "string_type": _not_text,
    "int_type": _not_whole,
    "float_type": _not_number,
    "finite_number": _fixed("must be a finite number", "leave the field out for its default"),
    "bool_type": _not_switch,
    "tuple_type": _not_list,
    "dict_type": _not_mapping,
    "mapping_type": _not_mapping,
    "model_type": _not_mapping,
    "model_attributes_type": _not_mapping,
    "invalid_key": _fixed("a name here is no text", "put names in quotes"),
    "string_pattern_mismatch": _bad_pattern,
    "value_error": _bad_value,
    "enum": _not_listed,
    "greater_than": _out_of_range("above", "gt"),
    "greater_than_equal": _out_of_range("at least", "ge"),
    "less_than": _out_of_range("below", "lt"),
    "less_than_equal": _out_of_range("at most", "le"),
    "too_short": _wrong_length("too few items", "min_length", "at least"),
    "too_long": _wrong_length("too many items", "max_length", "at most"),
    "string_too_short": _wrong_length("too short", "min_length", "characters needed:"),
    "string_too_long": _wrong_length("too long", "max_length", "characters allowed:"),
}

_PATTERNS = {
    IDENTIFIER: "use letters, digits, `.`, `_` and `-`, starting with a letter or digit; at most 63",
    VARIABLE: "use letters, digits and `_`, not starting with a digit",
    SECRET: "this is the name of a secret: letters, digits and `. _ / -`, starting with a letter or digit",
    "^/": "it must begin with a slash",
}

_NO_ADAPTERS = "adapters have no field: an engine loads them by its args, under names of its own"
_NO_SCALER = "replicas follow neither load nor schedule here: change the catalog, or use `llmgw scale`"
_BY_DEVICES = "what runs side by side follows from devices, replicas and priorities"
_ONLY_OURS = "routers publish what the plane starts, and nothing else"
_NO_ROLES = "replicas have no roles: prefill and decode are not told apart"
_UNCHANGED = "requests are passed on unchanged"
_PROBED = "an engine is probed as its row says; `engines` has health_path for another"

_KEEPS_APART = "write exclusive_group: name, at each of the models that never share a node"
_ON_NODES = "write labels: {name: value}, prefer_labels or nodes: [id, …] in the profile"

_ELSEWHERE = {
    "min_replicas": "write replicas: {min: …}",
    "minreplicas": "write replicas: {min: …}",
    "max_replicas": "write replicas: {max: …}",
    "maxreplicas": "write replicas: {max: …}",
    "replicacount": "write replicas: …",
    "ttl": "write idle_timeout_s: …, in seconds; leave it out for never",
    "model": "write weights: hf://org/repo",
    "model_path": "write weights: file:///path",
    "modelurl": "write weights: hf://org/repo",
    "repo": "write weights: hf://org/repo",
    "gpus": "write accelerators: [{count: …, kind: …}]",
    "gpu": "write accelerators: [{count: …, kind: …}]",
    "requestgpu": "write accelerators: [{count: …, kind: …}]",
    "resources": "write accelerators: [{count: …, kind: …}] and host_memory: …",
    "cmd": "write engine: command and command: [program, argument, …]",
    "port": "the node picks the port; write ${llmgw:port} where the engine needs it",
    "hf_token": "write secrets: {HF_TOKEN: name of the secret}",
    "adapters": _NO_ADAPTERS,
    "lora": _NO_ADAPTERS,
    "lora_config": _NO_ADAPTERS,
    "schedule": _NO_SCALER,
    "schedules": _NO_SCALER,
    "autoscaling": _NO_SCALER,
    "autoscaling_config": _NO_SCALER,
    "target_requests": _NO_SCALER,
    "targetrequests": _NO_SCALER,
    "target_qps_per_replica": _NO_SCALER,
    "groups": _KEEPS_APART,
    "matrix": _BY_DEVICES,
    "exclusive": _KEEPS_APART,
    "node_selector": _ON_NODES,
    "nodeselector": _ON_NODES,
    "nodeselectorterms": _ON_NODES,
    "affinity": _ON_NODES,
    "worker_selector": _ON_NODES,
    "gpu_selector": "write nodes: [id, …] in the profile, and devices: [id, …] in its accelerators",
    "anti_affinity": "write max_per_node: 1, and spread_zones: true",
    "antiaffinity": "write max_per_node: 1, and spread_zones: true",
    "topologyspreadconstraints": "write spread_zones: true; replicas keep apart by themselves",
    "gpu_memory_utilization": "give it in args, and write claim: … in accelerators to share a device",
    "evict_costs": _BY_DEVICES,
    "persistent": "write replicas: {min: 1}, and a priority",
    "preload": "write replicas: {min: 1}",
    "fallbacks": "one model does not stand in for another: give it more profiles",
    "endpoints": _ONLY_OURS,
    "peers": _ONLY_OURS,
    "external_providers": _ONLY_OURS,
    "model_list": _ONLY_OURS,
    "role": _NO_ROLES,
    "roles": _NO_ROLES,
    "prefill": _NO_ROLES,
    "decode": _NO_ROLES,
    **dict.fromkeys(("num_nodes", "node_count", "n_worker"), "a replica is on one node: accelerators: [{count: …}]"),
    "strategy": "there is none to choose: a roll starts first where there is a place, else stops first",
    "filters": _UNCHANGED,
    "set_params": _UNCHANGED,
    "temperature": _UNCHANGED,
    "concurrency_limit": "routers do not limit requests: the engine queues them",
    "healthcheck": _PROBED,
    "readiness_probe": _PROBED,
    "readinessprobe": _PROBED,
    "check_endpoint": _PROBED,
    "checkendpoint": _PROBED,
}
"""Fields of a model in other systems, and what says the same here."""

_OF_A_FLEET = {
    "groups": _KEEPS_APART,
    **dict.fromkeys(("matrix", "routing"), _BY_DEVICES),
    **dict.fromkeys(("endpoints", "peers", "external_providers"), _ONLY_OURS),
    **dict.fromkeys(("model_list", "litellm_settings"), "`llmgw import litellm` reads such a file"),
    **dict.fromkeys(("servingenginespec", "modelspec"), "`llmgw import production-stack` reads such a file"),
    **dict.fromkeys(("applications", "model_loading_config"), "`llmgw import ray` reads such a file"),
    "model_sets": "`llmgw import gpustack` reads such a file",
    "catalog": "`llmgw import kubeai` reads the values of KubeAI's chart",
    "macros": "`llmgw import llama-swap` reads such a file",
}
"""The same at the top of a file."""


def _limit(detail: ErrorDetails, key: str) -> Any:
    return detail.get("ctx", {}).get(key, "")


_SHOWN_BELOW = 10**30
"""Python refuses to write numbers of some thousand digits, and nobody would read them."""

_PRIVATE = frozenset({"env", "secrets", "args", "command"})


def _shown(at: Path, value: object) -> str:
    """The value where it says something and cannot be a secret, else its kind."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple | set):
        return "a list"
    if value is None:
        return "nothing (null)"
    private = bool(_PRIVATE & set(at))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return "a number" if private or abs(value) > _SHOWN_BELOW else f"the number {value}"
    if isinstance(value, str):
        return "the text there" if private else f"the text {quoted(value)}"
    return "something that is no JSON"


# --- which fields there are ----------------------------------------------------------------------------------------


@cache
def _schema() -> dict[str, Any]:
    return catalog_schema()


def fields_at(path: Path) -> tuple[str, ...]:
    """Names of the fields that may stand at `path`; empty where it is no mapping with fixed fields."""
    nodes = [_schema()]
    for step in path:
        nodes = [below for node in nodes for below in _below(node, step)]
    return tuple(sorted({name for node in nodes for part in _resolved(node) for name in part.get("properties", ())}))


def _below(node: Mapping[str, Any], step: str | int) -> Iterator[dict[str, Any]]:
    for part in _resolved(node):
        if isinstance(step, int):
            yield from _some(part.get("items"))
        elif step in part.get("properties", {}):
            yield part["properties"][step]
        else:
            yield from part.get("patternProperties", {}).values()
            yield from _some(part.get("additionalProperties"))


def _some(node: object) -> Iterable[dict[str, Any]]:
    return (node,) if isinstance(node, dict) else ()


def _resolved(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """`node` with references followed and alternatives spread."""
    if "$ref" in node:
        yield from _resolved(_schema()["$defs"][node["$ref"].rsplit("/", 1)[-1]])
    elif "anyOf" in node:
        for option in node["anyOf"]:
            yield from _resolved(option)
    else:
        yield node
