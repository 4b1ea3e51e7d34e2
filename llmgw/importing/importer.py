"""A file of another tool in, a catalog with an account of every part out; or one refusal that says why not.

Pure: YAML and JSON are read at the edge. Whatever the file holds, the catalog is valid and nothing is dropped in
silence: what no rule has touched is told as lost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmgw.catalog import MAX_COMPRESSED_BYTES
from llmgw.importing.account import Account, Part, Remark
from llmgw.importing.assembly import TooLargeError, assembled
from llmgw.importing.draft import MARK, TO_FILL_IN, CatalogDraft
from llmgw.importing.kinds import SOURCES, Source, documents, seen_as
from llmgw.problems import Finding, Path

UNKNOWN = "llmgw has nothing for it"
EMPTY = "nothing stands there"


@dataclass(frozen=True, slots=True)
class Imported:
    """`catalog` is valid. `remarks`: everything that is lost, changed or assumed, in the order of the file."""

    catalog: Mapping[str, object]
    remarks: tuple[Remark, ...]
    account: Account

    @property
    def model_count(self) -> int:
        return len(self._models)

    @property
    def open_count(self) -> int:
        """Models of which a person has to write how they are launched."""
        marks = (TO_FILL_IN[0], MARK)
        return sum(1 for model in self._models if any(mark in str(model) for mark in marks))

    @property
    def _models(self) -> Sequence[object]:
        models = self.catalog["models"]
        return models if isinstance(models, list) else ()


@dataclass(frozen=True, slots=True)
class Refused:
    """There is no catalog. `remarks` tell of each model that the file has."""

    finding: Finding
    remarks: tuple[Remark, ...] = ()


def imported(kind: str, raw: object, unread: Sequence[tuple[Path, str]] = ()) -> Imported | Refused:
    """Import a file's content (JSON types; a list where it has several documents). `kind` is a key of `SOURCES`.

    `unread` are pieces that the reader of the file could not take, with the reason.
    """
    source, account = SOURCES[kind], Account()
    root = Part((), raw, account)
    parts = documents(root)
    ours = [part for part in parts if part.is_mapping and source.reads(part.mapping)]
    if not ours:
        return Refused(Finding((), _not_ours(source, parts), _wants(source)))
    for part in parts:
        if part not in ours:
            part.lose_all(_why_left(part))
    try:
        catalog = assembled(_joined([source.read(part) for part in ours]), account, MAX_COMPRESSED_BYTES)
    except TooLargeError as error:
        return Refused(Finding((), str(error), "import its parts into several fleets"))
    for at, why in unread:
        account.lose(at, why)
    for at in list(account.missed(raw)):
        account.lose(at, UNKNOWN if root.part(*at).raw not in (None, {}, [], "") else EMPTY)
    remarks = tuple(sorted(account.remarks, key=_Places(raw).of))
    if not catalog["models"]:
        what = f"no model of this file of {source.title} can be carried over"
        return Refused(Finding((), what, "the reasons follow" if remarks else _wants(source)), remarks)
    return Imported(catalog, remarks, account)


def _wants(source: Source) -> str:
    return f"`llmgw import {source.kind}` reads {source.wants}"


def _joined(drafts: Sequence[CatalogDraft]) -> CatalogDraft:
    models = tuple(model for draft in drafts for model in draft.models)
    return CatalogDraft(models, {name: engine for draft in drafts for name, engine in draft.engines.items()})


def _not_ours(source: Source, parts: Sequence[Part]) -> str:
    seen = dict.fromkeys(said for part in parts if (said := seen_as(part.mapping)))
    if seen:
        return "; ".join(list(seen)[:3])
    return f"this is no file of {source.title} that describes models" if parts else "the file holds no mapping"


def _why_left(part: Part) -> str:
    return seen_as(part.mapping) or UNKNOWN


class _Places:
    """Where keys stand in their mappings, so that remarks come in the order of the file."""

    def __init__(self, raw: object) -> None:
        self._raw = raw
        self._keys: dict[int, dict[object, int]] = {}

    def of(self, remark: Remark) -> tuple[tuple[int, ...], str]:
        steps: list[int] = []
        here = self._raw
        for key in remark.at:
            if isinstance(here, Mapping):
                known = self._keys.get(id(here))
                if known is None:
                    known = self._keys[id(here)] = {key: number for number, key in enumerate(here)}
                steps.append(known.get(key, -1))
                here = here.get(key)
            elif isinstance(here, list) and isinstance(key, int) and key < len(here):
                steps.append(key)
                here = here[key]
        return tuple(steps), remark.what
