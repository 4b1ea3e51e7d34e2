"""What became of every part of a file that is imported: carried over, or remarked upon with the reason.

Rules read the file through `Part`, which notes what they take; `missed` names everything that no rule has touched, so
that nothing is dropped in silence. Nothing here knows any kind of file, and no remark quotes a value.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from llmgw.importing.quantities import switch_in, whole_number
from llmgw.problems import Path
from llmgw.sentences import json_kind


class Fate(StrEnum):
    LOST = "lost"  # it is not in the catalog
    CHANGED = "changed"  # it is there in another form
    ASSUMED = "assumed"  # the catalog says something that the file does not


@dataclass(frozen=True, slots=True)
class Remark:
    """`at` is where the file says it (for an assumption: what it is about); `what` names a piece of it, or is empty."""

    at: Path
    fate: Fate
    why: str
    what: str = ""


@dataclass(slots=True)
class Account:
    """Grows while a file is read. Entries are numbered: what is dropped voids what was noted below it before."""

    _carried: dict[Path, int] = field(default_factory=dict)
    _remarks: dict[Remark, int] = field(default_factory=dict)
    _dropped: dict[Path, int] = field(default_factory=dict)
    _count: int = 0

    def carry(self, at: Path) -> None:
        """The whole content of `at` is in the catalog."""
        self._carried[at] = self._number()

    def uncarry(self, at: Path) -> None:
        self._carried.pop(at, None)

    def lose(self, at: Path, why: str, what: str = "") -> None:
        """`at` is lost; with `what`, only that piece of it."""
        if not what:
            self.uncarry(at)
        self._remark(Remark(at, Fate.LOST, why, what))

    def change(self, at: Path, why: str, what: str = "") -> None:
        self._remark(Remark(at, Fate.CHANGED, why, what))

    def assume(self, at: Path, why: str) -> None:
        self._remark(Remark(at, Fate.ASSUMED, why))

    def drop(self, at: Path, why: str, what: str = "") -> None:
        """All of `at` is lost after all, whatever was noted below it."""
        self._dropped[at] = self._number()
        self.lose(at, why, what)

    def _remark(self, remark: Remark) -> None:
        self._remarks[remark] = self._number()

    def _number(self) -> int:
        self._count += 1
        return self._count

    def _stands(self, at: Path, number: int) -> bool:
        return all(self._dropped.get(at[:end], 0) < number for end in range(len(at) + 1))

    # --- the outcome -----------------------------------------------------------------------------------------------

    @property
    def carried(self) -> frozenset[Path]:
        return frozenset(at for at, number in self._carried.items() if self._stands(at, number))

    @property
    def remarks(self) -> tuple[Remark, ...]:
        return tuple(remark for remark, number in self._remarks.items() if self._stands(remark.at, number))

    def _touched(self) -> tuple[frozenset[Path], frozenset[Path]]:
        """Parts whose whole content is carried or told, and parts of which a piece is."""
        told = [remark for remark in self.remarks if remark.fate is not Fate.ASSUMED]
        pieces = frozenset(remark.at for remark in told if remark.what)
        return self.carried | {remark.at for remark in told if not remark.what}, pieces

    def missed(self, raw: object) -> Iterator[Path]:
        """The largest parts of `raw` of which no rule has touched anything."""
        whole, pieces = self._touched()
        around = {path[:end] for path in whole for end in range(len(path))}
        around |= {path[:end] for path in pieces for end in range(len(path) + 1)}
        waiting: list[tuple[Path, object]] = [((), raw)]
        while waiting:
            at, value = waiting.pop()
            inner = list(children(value))
            if at in whole or (at in pieces and not inner):
                continue
            if at not in around or not inner:
                yield at
                continue
            waiting += [((*at, key), child) for key, child in reversed(inner)]

    def untold(self, raw: object) -> Iterator[Path]:
        """Leaves of `raw` that are neither carried nor told: in part, as a whole, or with what they are in."""
        whole, pieces = self._touched()
        return (
            at for at in leaves(raw) if at not in pieces and not any(at[:end] in whole for end in range(len(at) + 1))
        )


def _child(value: object, key: str | int) -> object:
    if isinstance(value, Mapping):
        return value.get(key)
    is_inside = isinstance(value, list | tuple) and isinstance(key, int) and 0 <= key < len(value)
    return value[key] if is_inside else None  # type: ignore[index]  # a list, as `is_inside` says


def children(value: object) -> Iterator[tuple[str | int, object]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list | tuple):
        yield from enumerate(value)


def leaves(raw: object) -> Iterator[Path]:
    """Paths of everything in `raw` that holds nothing further: plain values, empty lists and mappings."""
    waiting: list[tuple[Path, object]] = [((), raw)]
    while waiting:
        at, value = waiting.pop()
        inner = list(children(value))
        if not inner:
            yield at
        waiting += [((*at, key), child) for key, child in inner]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the file. What is taken from it counts as carried; what has another type than asked for is lost."""

    at: Path
    raw: object
    account: Account

    # --- moving about ----------------------------------------------------------------------------------------------

    def part(self, *keys: str | int) -> "Part":
        """What is below `keys`; a part of null where there is nothing."""
        here = self
        for key in keys:
            here = Part((*here.at, key), _child(here.raw, key), here.account)
        return here

    def items(self) -> Iterator["Part"]:
        """Each item of a list, or each value of a mapping."""
        return (Part((*self.at, key), value, self.account) for key, value in children(self.raw))

    @property
    def key(self) -> str:
        return str(self.at[-1]) if self.at else ""

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.raw, Mapping)

    @property
    def mapping(self) -> Mapping[str, object]:
        """The content, where it is a mapping; else an empty one."""
        return self.raw if isinstance(self.raw, Mapping) else {}

    def has(self, key: str) -> bool:
        """Whether something other than null stands under `key`."""
        return _child(self.raw, key) is not None

    def peek(self, key: str) -> str:
        """The text under `key` without noting it, or nothing."""
        value = _child(self.raw, key)
        return value if isinstance(value, str) else ""

    # --- taking ----------------------------------------------------------------------------------------------------

    def text(self, key: str) -> str | None:
        """The text under `key`, None where nothing stands; numbers and switches are written as JSON writes them."""
        return self.part(key).as_text() if self.has(key) else None

    def texts(self, key: str) -> tuple[tuple[str, Path], ...]:
        """The texts of a list, or the one text that stands in its place, each with its path."""
        listed = self.part(key)
        parts = listed.items() if isinstance(listed.raw, list | tuple) else [listed] if self.has(key) else []
        found = ((item.as_text(), item.at) for item in parts)
        return tuple((text, at) for text, at in found if text is not None)

    def number(self, key: str, *, least: float = 0) -> float | None:
        """A number from `least` on, or a text that holds one."""
        if not self.has(key):
            return None
        value = self.part(key).raw
        found = whole_number(value) if isinstance(value, str) else value
        if isinstance(found, bool) or not isinstance(found, int | float) or not least <= found < _MOST:
            self.account.lose((*self.at, key), "no number that could be meant")
            return None
        self.account.carry((*self.at, key))
        return found

    def whole(self, key: str, *, least: int = 0) -> int | None:
        """A whole number from `least` on, or a text that holds one."""
        value = self.number(key, least=least)
        if value is None or value == int(value):
            return None if value is None else int(value)
        self.account.lose((*self.at, key), "not a whole number")
        return None

    def switch(self, key: str) -> bool | None:
        """True or false; also the words that YAML 1.1 took for it."""
        if not self.has(key):
            return None
        found = switch_in(self.part(key).raw)
        if found is None:
            self.account.lose((*self.at, key), "neither true nor false")
            return None
        self.account.carry((*self.at, key))
        return found

    def as_text(self) -> str | None:
        """The part itself as text."""
        if not isinstance(self.raw, str | int | float):
            self.account.lose(self.at, f"{json_kind(self.raw)} where a text belongs")
            return None
        self.account.carry(self.at)
        return self.raw if isinstance(self.raw, str) else json.dumps(self.raw)

    def whole_as_json(self, key: str) -> str | None:
        """Whatever stands under `key`, as text: texts as they are, everything else as JSON."""
        if not self.has(key):
            return None
        self.account.carry((*self.at, key))
        value = self.part(key).raw
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)

    # --- leaving behind --------------------------------------------------------------------------------------------

    def lose(self, key: str, why: str) -> None:
        """`key` is not carried over; nothing happens where it is not given."""
        if isinstance(self.raw, Mapping) and key in self.raw:
            self.account.lose((*self.at, key), why)

    def lose_each(self, reasons: Mapping[str, str]) -> None:
        for key, why in reasons.items():
            self.lose(key, why)

    def lose_all(self, why: str) -> None:
        self.account.lose(self.at, why)

    def carry(self, *keys: str) -> None:
        """`keys` say what the file is, and were read as that."""
        for key in keys:
            if self.has(key):
                self.account.carry((*self.at, key))

    def change(self, key: str, why: str) -> None:
        if self.has(key):
            self.account.change((*self.at, key), why)


_MOST = 1e12
