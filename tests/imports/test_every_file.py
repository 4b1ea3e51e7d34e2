"""Every file of other tools gives a valid catalog and a whole account of itself, or one refusal that says why."""

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import yaml_text
from cli.yaml_writing import yaml_of
from llmgw.catalog import MAX_COMPRESSED_BYTES
from llmgw.importing.account import Fate, children, leaves
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
        assert list(found.account.untold(foreign(file).raw)) == []


@every_file
def test_no_part_of_these_files_is_unheard_of(kind: str, file: Path) -> None:
    """These are the tools' own examples: each of their fields has a rule, or a reason of its own."""
    found = outcome(kind, file)
    assert [remark.at for remark in found.remarks if remark.why == UNKNOWN] == []


@every_file
def test_every_leaf_of_a_file_counts_or_is_told(kind: str, file: Path) -> None:
    """With another value the catalog is another, or the leaf is told as lost or changed, itself or what it is in."""
    found = outcome(kind, file)
    if isinstance(found, Refused):
        return
    raw = foreign(file).raw
    quiet = (at for at in leaves(raw) if not _is_told(found, at) and at[-1] not in FORM)
    plain = sorted((at for at in quiet if _is_plain(_at(raw, at))), key=str)
    for at in _some(plain, file):
        again = imported(kind, _with_another(raw, at))
        assert isinstance(again, Refused) or again.catalog != found.catalog or _is_told(again, at), at


@every_file
def test_what_is_put_into_a_file_is_told_wherever_it_is_put(kind: str, file: Path) -> None:
    """A key that no tool knows, in each of the file's mappings, and an item more in each of its lists."""
    found = outcome(kind, file)
    if isinstance(found, Refused):
        return
    raw = foreign(file).raw
    places = sorted(_holders(raw), key=str)
    for at in _some(places, file):
        changed, planted = _with_more(raw, at)
        again = imported(kind, changed)
        assert isinstance(again, Refused) or again.catalog != found.catalog or _is_told(again, planted), planted


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


def _is_told(found: Imported | Refused, at: Place) -> bool:
    """As lost or changed: a piece of it, the whole of it, or of what it is in."""
    told = [remark for remark in found.remarks if remark.fate is not Fate.ASSUMED]
    return any(remark.at == at or (not remark.what and remark.at == at[: len(remark.at)]) for remark in told)


def _some(places: list[Place], file: Path) -> list[Place]:
    """Sixty of them; fewer of a large file, which takes longer to import."""
    return random.Random(7).sample(places, min(len(places), 60, max(8, 600_000 // file.stat().st_size)))


def _holders(raw: object) -> Iterator[Place]:
    """Places of everything in `raw` that may hold more."""
    waiting: list[tuple[Place, object]] = [((), raw)]
    while waiting:
        at, value = waiting.pop()
        if isinstance(value, dict | list):
            yield at
        waiting += [((*at, key), child) for key, child in children(value)]


def _with_more(raw: object, at: Place) -> tuple[object, Place]:
    changed: Any = copy.deepcopy(raw)
    around = _at(changed, at)
    if isinstance(around, dict):
        around["zzzPlanted"] = "planted"
        return changed, (*at, "zzzPlanted")
    around.append("planted")
    return changed, (*at, len(around) - 1)


def _with_another(raw: object, at: Place) -> object:
    """`raw` with another value of the same type at `at`."""
    changed: Any = copy.deepcopy(raw)
    if not at:
        return changed
    around = _at(changed, at[:-1])
    value = around[at[-1]]
    around[at[-1]] = not value if isinstance(value, bool) else value + (7 if isinstance(value, int | float) else "7")
    return changed
