"""A catalog part by part. An edit changes few of many: what was found in a part is remembered by its text.

Memos of pure functions: they change no outcome, and what is not remembered is worked out again. A part that cannot be
written down (nested too deep, a number of thousands of digits) is looked at each time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar

from llmgw.catalog import Catalog, Part
from llmgw.checking.sent import Rule, Sent
from llmgw.problems import Finding, Path

T = TypeVar("T")
SECTIONS = ("nodes", "models")
"""The long lists of a catalog."""
_MOST = 8192
"""Parts that are remembered, of all catalogs of the process."""


@dataclass(frozen=True, slots=True)
class _Text:
    """Something sent; equal to another exactly if both are written the same way (1 is neither "1" nor true)."""

    text: str
    sent: object = field(compare=False)


@dataclass(frozen=True, slots=True)
class Parts:
    """`raw` taken apart. None stands for an item that cannot be written down."""

    raw: Mapping[str, object]
    items: Mapping[str, Sequence[_Text | None]]

    def rest(self) -> Mapping[str, object]:
        """The catalog without the items."""
        return {**self.raw, **{section: [] for section in self.items}}

    def sent(self, section: str) -> list[object]:
        items = self.raw[section]
        assert isinstance(items, list)  # noqa: S101 - as `apart` took it
        return items


def apart(raw: Mapping[str, object]) -> Parts:
    """The lists among the SECTIONS; what is no list stays with the rest."""
    lists = {section: items for section in SECTIONS if isinstance(items := raw.get(section), list)}
    return Parts(raw, {section: [_text(item) for item in items] for section, items in lists.items()})


def _text(sent: object) -> _Text | None:
    try:
        return _Text(repr(sent), sent)
    except (RecursionError, ValueError):
        return None


# --- what a part means -----------------------------------------------------------------------------------------------


_MEANINGS: dict[tuple[str, str], Part] = {}


def known(parts: Parts) -> Mapping[str, object]:
    """The catalog as it was sent, with the very values that its parts meant before in their places."""
    return {**parts.raw, **{section: _known(parts, section) for section in parts.items}}


def _known(parts: Parts, section: str) -> list[object]:
    pairs = zip(parts.items[section], parts.sent(section), strict=True)
    return [sent if item is None else _MEANINGS.get((section, item.text), sent) for item, sent in pairs]


def learn(parts: Parts, catalog: Catalog) -> None:
    """`catalog` is what `parts` mean."""
    for section, meanings in (("nodes", catalog.nodes), ("models", catalog.models)):
        for item, meaning in zip(parts.items.get(section, ()), meanings, strict=False):
            if item is not None and _MEANINGS.get((section, item.text)) is not meaning:
                if len(_MEANINGS) >= _MOST:
                    _MEANINGS.clear()
                _MEANINGS[section, item.text] = meaning


def sharing(new: Catalog, before: Catalog | None) -> Catalog:
    """`new` with every part that is as it was `before` the very same value, so that what is known of it is known again
    (`llmgw.memo`)."""
    if before is None:
        return new
    nodes, models = {n.id: n for n in before.nodes}, {m.name: m for m in before.models}
    shared = {
        "nodes": tuple(_same(n, nodes.get(n.id)) for n in new.nodes),
        "models": tuple(_same(m, models.get(m.name)) for m in new.models),
        "engines": _same(new.engines, before.engines),
        "policy": _same(new.policy, before.policy),
    }
    return new.model_copy(update=shared)


def _same(new: T, before: T | None) -> T:
    return before if before is not None and (before is new or before == new) else new


# --- what rules find in a part ---------------------------------------------------------------------------------------


def findings(parts: Parts, rules: tuple[Rule, ...]) -> Iterator[Finding]:
    """What `rules` find, each of which judges an item by itself and the engine table."""
    rest, engines = _text(parts.rest()), _text(parts.raw.get("engines"))
    yield from _by(rules, parts.rest()) if rest is None else _in_rest(rules, rest)
    for section, items in parts.items.items():
        for index, (item, sent) in enumerate(zip(items, parts.sent(section), strict=True)):
            if item is None or engines is None:
                found = _in_item(rules, section, sent, parts.raw.get("engines"))
            else:
                found = _in_known_item(rules, section, item, engines)
            for finding in found:
                yield _moved(finding, index)


def _moved(finding: Finding, index: int) -> Finding:
    """Found in the item alone; `index` is its place in the catalog."""

    def moved(at: Path) -> Path:
        return (at[0], index, *at[2:])

    return replace(finding, at=moved(finding.at), first=None if finding.first is None else moved(finding.first))


@lru_cache(maxsize=_MOST)
def _in_known_item(rules: tuple[Rule, ...], section: str, item: _Text, engines: _Text) -> tuple[Finding, ...]:
    return _in_item(rules, section, item.sent, engines.sent)


def _in_item(rules: tuple[Rule, ...], section: str, item: object, engines: object) -> tuple[Finding, ...]:
    found = _by(rules, {section: [item], "engines": engines})
    return tuple(finding for finding in found if finding.at[:1] == (section,))


@lru_cache(maxsize=4)
def _in_rest(rules: tuple[Rule, ...], rest: _Text) -> tuple[Finding, ...]:
    return tuple(_by(rules, rest.sent))


def _by(rules: tuple[Rule, ...], raw: object) -> Iterator[Finding]:
    sent = Sent(raw)
    return (finding for rule in rules for finding in rule(sent))
