"""Every file of other tools gives a valid catalog and a whole account of itself, or one refusal that says why."""

import copy
import random
from pathlib import Path
from typing import Any

import pytest

from cli import yaml_text
from cli.yaml_writing import yaml_of
from llmgw.catalog import MAX_COMPRESSED_BYTES
from llmgw.importing.account import leaves
from llmgw.importing.importer import UNKNOWN, Imported, Refused, imported
from llmgw.problems import Path as Place
from llmgw.validation import check
from tests.imports.files import FILES, foreign, name_of, outcome

REFUSED = {
    "community-inference-backends.yaml": "this is a list of GPUStack's inference backends: it describes no models",
    "external_providers_config.yaml": "this is a list of outside providers: it describes no models to start",
    "rayservice-rayllm-eks.yaml": "no model of this file of Ray Serve LLM can be carried over",
}

FORM = ("apiVersion", "kind")
"""These say what a file is, and nothing of the catalog depends on them further."""

every_file = pytest.mark.parametrize(("kind", "file"), FILES, ids=name_of)


@every_file
def test_a_file_gives_a_catalog_that_is_valid_or_a_refusal(kind: str, file: Path) -> None:
    found = outcome(kind, file)
    if isinstance(found, Refused):
        assert found.finding.what == REFUSED[file.name]
        assert found.finding.mend
        return
    assert file.name not in REFUSED
    checked = check(found.catalog, limit_bytes=MAX_COMPRESSED_BYTES)
    assert checked.problems == ()
    assert found.model_count > 0


@every_file
def test_every_part_of_a_file_is_carried_or_told(kind: str, file: Path) -> None:
    found = outcome(kind, file)
    if isinstance(found, Imported):
        assert [at for at in leaves(foreign(file).raw) if not found.account.covers(at)] == []


@every_file
def test_no_part_of_these_files_is_unheard_of(kind: str, file: Path) -> None:
    """These are the tools' own examples: each of their fields has a rule, or a reason of its own."""
    found = outcome(kind, file)
    assert [remark.at for remark in found.remarks if remark.why == UNKNOWN] == []


@every_file
def test_what_is_told_as_carried_changes_the_catalog_when_it_changes(kind: str, file: Path) -> None:
    found = outcome(kind, file)
    if isinstance(found, Refused):
        return
    raw = foreign(file).raw
    plain = sorted((at for at in found.account.carried if _is_plain(_at(raw, at)) and at[-1] not in FORM), key=str)
    for at in random.Random(7).sample(plain, min(len(plain), 40)):
        again = imported(kind, _with_another(raw, at))
        assert isinstance(again, Refused) or again.catalog != found.catalog, at


@every_file
def test_the_catalog_is_the_same_after_it_was_written_and_read(kind: str, file: Path) -> None:
    found = outcome(kind, file)
    if isinstance(found, Imported):
        assert yaml_text.parse(yaml_of(dict(found.catalog))).raw == found.catalog


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float)


def _at(raw: Any, at: Place) -> Any:
    for key in at:
        raw = raw[key]
    return raw


def _with_another(raw: object, at: Place) -> object:
    """`raw` with another value of the same type at `at`."""
    changed: Any = copy.deepcopy(raw)
    if not at:
        return changed
    around = _at(changed, at[:-1])
    value = around[at[-1]]
    around[at[-1]] = not value if isinstance(value, bool) else value + (7 if isinstance(value, int | float) else "7")
    return changed
