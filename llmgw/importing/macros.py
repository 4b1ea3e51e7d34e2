"""Macros as llama-swap knows them: `${name}`, which may hold further ones. What is no macro is left as it stands."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from llmgw.importing.account import Part
from llmgw.problems import Path

_MACRO = re.compile(r"\$\{([A-Za-z0-9_.-]+)\}")
_DEPTH = 16
_LONGEST = 64 * 1024


@dataclass(slots=True)
class Macros:
    """`texts`: what each macro stands for. `used`: places of those that were put in."""

    texts: Mapping[str, str]
    places: Mapping[str, Path]
    used: set[Path] = field(default_factory=set)

    def within(self, part: Part, **known: str) -> "Macros":
        """With the macros of `part`, which win, and `known`, which win over those."""
        own = {item.key: item for item in part.items() if not isinstance(item.raw, Mapping | list | type(None))}
        texts = {name: item.raw if isinstance(item.raw, str) else json.dumps(item.raw) for name, item in own.items()}
        places = {name: item.at for name, item in own.items()}
        return Macros({**self.texts, **texts, **known}, {**self.places, **places})

    def fill(self, text: str) -> str:
        """`text` with its macros put in, and theirs; ended where macros hold each other."""
        for _ in range(_DEPTH):
            filled = _MACRO.sub(self._one, text)
            if filled == text or len(filled) > _LONGEST:
                break
            text = filled
        return text

    def _one(self, match: re.Match[str]) -> str:
        name = match[1]
        if name not in self.texts:
            return match[0]
        if name in self.places:
            self.used.add(self.places[name])
        return self.texts[name]


def unused(macros: Part, used: set[Path]) -> Iterator[Part]:
    return (item for item in macros.items() if item.at not in used)
