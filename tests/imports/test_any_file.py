"""Whatever a file holds: no import fails, leaves a part untold, or gives a catalog that is not valid."""

import copy
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw.catalog import MAX_COMPRESSED_BYTES
from llmgw.importing.account import children
from llmgw.importing.importer import Imported, Refused, imported
from llmgw.importing.kinds import SOURCES
from llmgw.validation import check
from tests.core.test_any_catalog import NOT_OURS
from tests.effort import examples
from tests.imports.files import FILES, foreign

SMALL = tuple((kind, file) for kind, file in FILES if file.stat().st_size < 30_000)

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 3, 10**15, 1.5, float("inf"), float("nan"), "", " ", "x", "${X}", "{{ .Values.x }}", "-",
    "--", "\0", "\ud800", "a" * 300, "8", "16Gi", "cpu:1", "hf://a/b", "s3://a/b", "/models/x.gguf", [], {},
    "hf_" + "a" * 24, "docker run --gpus all -v /a:/b -p 1:2 img --port 2", "docker run", "podman run -e",
    ["a", None, 3, {"b": 1}], {"name": "x", "value": "y"}, {"name": {"a": 1}}, [[]], {"": ""}, "vllm serve /m --port 1",
    'llama-server -m /m.gguf "', {"items": [1]},
)  # fmt: skip


def judged(kind: str, raw: object) -> Imported | Refused:
    """The outcome, which keeps every promise."""
    found = imported(kind, raw)
    for remark in found.remarks:
        assert NOT_OURS.search(remark.why) is None, remark
    if isinstance(found, Refused):
        assert found.finding.what
        assert NOT_OURS.search(f"{found.finding.what} {found.finding.mend}") is None
        return found
    assert check(found.catalog, limit_bytes=MAX_COMPRESSED_BYTES).problems == ()
    assert list(found.account.untold(raw)) == []
    return found


def mutated(raw: object, chance: random.Random, count: int) -> object:
    """`raw` with `count` of its parts replaced, taken away, or given once more under another name."""
    changed: Any = copy.deepcopy(raw)
    for _ in range(count):
        at: list[Any] = []
        here = changed
        while (inner := list(children(here))) and (not at or chance.random() < 0.85):
            key, here = chance.choice(inner)
            at.append(key)
        if not at:
            return chance.choice(ODD)
        around = changed
        for key in at[:-1]:
            around = around[key]
        if chance.random() < 0.15 and isinstance(around, dict):
            del around[at[-1]]
        elif chance.random() < 0.15 and isinstance(around, list):
            around.append(copy.deepcopy(here))
        else:
            around[at[-1]] = copy.deepcopy(chance.choice(ODD))
    return changed


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SMALL), st.integers(0, 10**9), st.integers(1, 6))
def test_a_damaged_file_is_imported_or_refused_with_every_promise_kept(
    case: tuple[str, Any], seed: int, count: int
) -> None:
    kind, file = case
    judged(kind, mutated(foreign(file).raw, random.Random(seed), count))


anything = st.recursive(
    st.sampled_from(ODD),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["models", "cmd", "catalog", "url", "engine", "model_list", "model_name", "litellm_params", "model", "spec",
             "servingEngineSpec", "modelSpec", "modelURL", "env", "args", "name", "engine_config", "model_id", "items",
             "model_loading_config", "model_sets", "specs", "source", "kind", "apiVersion", "aliases", "replicas"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(sorted(SOURCES)), anything)
def test_nonsense_is_refused_or_imported_with_every_promise_kept(kind: str, raw: object) -> None:
    judged(kind, raw)


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("raw", [None, "text", 3, [], {}, [[], {}], {"models": []}, {"models": {}}], ids=str)
def test_a_file_without_anything_is_refused(kind: str, raw: object) -> None:
    assert isinstance(judged(kind, raw), Refused)
