"""The committed reference of the catalog is what the code says today."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cli.catalog_file import parse, read
from cli.catalog_reference import page_text, schema_text
from llmgw.catalog import Catalog
from llmgw.engines import ROWS
from llmgw.placeholders import KEYS, placeholder
from llmgw.validation import check

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
AGAIN = "python -m cli.catalog_reference [--schema] writes it anew"


def test_the_reference_page_is_made_from_the_schema() -> None:
    assert (DOCS / "catalog.md").read_text() == page_text(), AGAIN


def test_the_committed_schema_is_the_schema() -> None:
    assert (DOCS / "catalog.schema.json").read_text() == schema_text(), AGAIN


def test_every_field_is_described() -> None:
    schema = json.loads(schema_text())
    parts = [schema, *(part for part in schema["$defs"].values() if "properties" in part)]
    bare = [
        f"{part['title']}.{field}"
        for part in parts
        for field, about in part["properties"].items()
        if "description" not in about and "$ref" not in about
    ]
    assert len(parts) > 10
    assert bare == []


def test_the_guide_tells_of_every_engine_and_placeholder_and_its_example_is_valid() -> None:
    guide = (DOCS / "catalog-guide.md").read_text()
    rows = {line.split("|")[1].strip().strip("`") for line in guide.splitlines() if line.startswith("| `")}
    assert rows == {*ROWS, *(placeholder(key) for key in KEYS), placeholder("port:NAME")}
    example, *_ = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    assert check(parse(example).raw).problems == ()


@pytest.mark.parametrize("name", ["catalog.yaml", "second-model.yaml"])
def test_the_schema_accepts_what_the_code_accepts(name: str) -> None:
    raw = read(ROOT / "examples" / name).raw
    jsonschema.Draft202012Validator(json.loads(schema_text())).validate(raw)
    assert Catalog.model_validate(raw).models


@pytest.mark.parametrize(
    "raw",
    [
        {"model": []},
        {"models": [{"name": "a"}]},
        {"models": [{"name": "a", "profiles": [{"name": "p", "engine": "stub", "args": "x"}]}]},
        {"nodes": [{"id": "a b", "url": "http://a"}]},
        {"models": [{"name": "a", "profiles": [{"name": "p", "engine": "stub", "env": {"A B": "x"}}]}]},
    ],
)
def test_the_schema_refuses_what_has_the_wrong_shape(raw: Any) -> None:
    assert not jsonschema.Draft202012Validator(json.loads(schema_text())).is_valid(raw)
