"""The example catalogs are valid as they stand, and the second one is the first with a model more."""

from pathlib import Path

import pytest

from cli.catalog_file import read
from llmgw.catalog import Catalog
from llmgw.diff import differences
from llmgw.validation import check

EXAMPLES = Path(__file__).parents[2] / "examples"


def accepted(file: Path) -> Catalog:
    source = read(file)
    checked = check(source.raw, source.lines)
    assert checked.problems == ()
    assert checked.warnings == ()
    assert checked.catalog is not None
    return checked.catalog


@pytest.mark.parametrize("name", ["catalog.yaml", "second-model.yaml"])
def test_an_example_is_valid_without_a_warning(name: str) -> None:
    catalog = accepted(EXAMPLES / name)
    assert len(catalog.models) >= 2
    assert catalog.nodes
    assert catalog.routers


def test_the_second_example_adds_one_model_and_changes_nothing_else() -> None:
    changed = differences(accepted(EXAMPLES / "catalog.yaml"), accepted(EXAMPLES / "second-model.yaml"))
    assert [str(line) for line in changed] == ["model org/Second-3B added"]
