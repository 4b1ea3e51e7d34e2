"""Catalogs for tests: small ones by hand, any accepted one by Hypothesis."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from llmgw.catalog import Catalog
from llmgw.problems import Problem
from llmgw.validation import check

Raw = dict[str, Any]


def profile(**fields: object) -> Raw:
    return {"name": "p", "engine": "stub", **fields}


def model(name: str = "m", *profiles: Raw, **fields: object) -> Raw:
    return {"name": name, "profiles": list(profiles) or [profile()], **fields}


def with_profile(**fields: object) -> Raw:
    """A catalog of one model with one profile."""
    return {"models": [model("m", profile(**fields))]}


def accepted(raw: Mapping[str, object]) -> Catalog:
    checked = check(dict(raw))
    assert checked.catalog is not None, [str(problem) for problem in checked.problems]
    return checked.catalog


def refused(raw: object) -> tuple[Problem, ...]:
    checked = check(raw)
    assert checked.catalog is None
    assert checked.problems
    return checked.problems


# --- any accepted catalog ------------------------------------------------------------------------------------------

_IDENTIFIERS = st.from_regex(r"[a-z][a-z0-9.-]{0,8}", fullmatch=True)
_NAMES = st.from_regex(r"[A-Za-z模é][A-Za-z0-9:.]{0,6}(/[a-z]{1,4})?", fullmatch=True)
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00$"), max_size=12).filter(
    lambda text: not text.startswith("-")
)
_SECONDS = st.integers(1, 600) | st.floats(1, 600)


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Raw]:
    """A mapping with any of `fields`."""
    return st.fixed_dictionaries({}, optional=fields)


_ACCELERATORS = st.fixed_dictionaries(
    {"count": st.integers(1, 8)},
    optional={"kind": st.sampled_from(["h100", "A100"]), "memory": st.sampled_from([40000, "80GB", "24GiB"])},
)
_PROFILES = st.builds(
    lambda name, engine, optional: {"name": name, **engine, **optional},
    _IDENTIFIERS,
    st.sampled_from(
        [
            {"engine": "stub"},
            {"engine": "vllm", "weights": "hf://org/repo"},
            {"engine": "llama.cpp", "weights": "file:///w/m.gguf"},
            {"engine": "command", "command": ["serve", "${llmgw:port}"]},
            {"engine": "own"},
        ]
    ),
    _some(
        args=st.lists(_TEXT, max_size=3),
        env=st.dictionaries(st.sampled_from(["A", "B_1"]), _TEXT, max_size=2),
        secrets=st.dictionaries(st.sampled_from(["HF_TOKEN"]), _IDENTIFIERS),
        ports=st.lists(st.sampled_from(["side", "kv"]), unique=True),
        accelerators=st.lists(_ACCELERATORS, max_size=3),
        host_memory=st.sampled_from([1, "2GiB"]),
        weight=st.integers(0, 100),
        priority=st.integers(0, 5),
        start_limit_s=_SECONDS,
        stop_limit_s=_SECONDS,
        drain_limit_s=_SECONDS,
    ),
)


@st.composite
def _models(draw: st.DrawFn, names: list[str], aliases: list[str]) -> list[Raw]:
    return [
        {
            "name": name,
            "aliases": [alias for alias in aliases if draw(st.sampled_from(names)) == name and draw(st.booleans())],
            "profiles": draw(st.lists(_PROFILES, min_size=1, max_size=3, unique_by=lambda item: item["name"])),
            **draw(
                _some(
                    replicas=st.integers(0, 4) | st.just({"min": 0}) | st.just({"max": 3}),
                    idle_timeout_s=_SECONDS,
                    weights=st.just("https://host/m.gguf"),
                    metadata=st.dictionaries(_TEXT, _TEXT, max_size=2),
                    # `priority` of a model may be below zero
                    priority=st.integers(-5, 5),
                )
            ),
        }
        for name in names
    ]


@st.composite
def raw_catalogs(draw: st.DrawFn) -> Raw:
    """What an operator may send and have accepted; every alias has one owner."""
    words = draw(st.lists(_NAMES, unique_by=lambda name: name.casefold(), max_size=6))
    names, aliases = words[: len(words) // 2], words[len(words) // 2 :]
    models: list[Raw] = draw(_models(names, aliases)) if names else []
    taken: set[str] = set()
    for entry in models:
        entry["aliases"] = [alias for alias in entry["aliases"] if alias not in taken]
        taken.update(entry["aliases"])
    nodes = draw(st.lists(_IDENTIFIERS, unique=True, max_size=3))
    return {
        "models": models,
        "nodes": [{"id": node, "url": f"http://{node}x:7811"} for node in nodes],
        "engines": {
            "own": {"base": "stub", **draw(_some(args=st.lists(_TEXT, max_size=2), health_path=st.just("/up")))}
        },
        **draw(_some(policy=_some(settle_s=_SECONDS, max_attempts=st.integers(1, 9)), allow_removals=st.booleans())),
    }


@st.composite
def shuffled(draw: st.DrawFn, raw: Raw) -> Raw:
    """The same wish with its keys, models, nodes and aliases in another order."""
    models = [
        {**dict(_reordered(draw, entry)), "aliases": _permuted(draw, entry["aliases"])} for entry in raw["models"]
    ]
    other = {**raw, "models": _permuted(draw, models), "nodes": _permuted(draw, raw["nodes"])}
    return dict(_reordered(draw, other))


def _reordered(draw: st.DrawFn, mapping: Raw) -> list[tuple[str, Any]]:
    return _permuted(draw, list(mapping.items()))


def _permuted(draw: st.DrawFn, items: list[Any]) -> list[Any]:
    return list(draw(st.permutations(items)))
