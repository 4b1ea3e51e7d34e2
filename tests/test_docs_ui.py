"""docs/temporal-ui.md names what the workflow really shows and takes; its pictures are there."""

import re
from pathlib import Path

import pytest

from llmgw.views import Phase
from workflows import names

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "temporal-ui.md").read_text()


def test_every_phase_and_attribute_is_told() -> None:
    told = set(re.findall(r"`(\w+)`", PAGE))
    assert {*Phase, names.PHASE_ATTRIBUTE, names.GENERATION_ATTRIBUTE, names.REJECTED_ATTRIBUTE} <= told


def test_every_query_that_is_told_exists() -> None:
    [asked] = re.findall(r"\*Queries\* asks what `llmgw` asks: (.*?)\. \*More", PAGE, re.DOTALL)
    queries = {value for name, value in vars(names).items() if name.isupper()}
    assert set(re.findall(r"`(\w+)`", asked)) <= queries


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_pictures_and_pages_that_are_linked_exist(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
