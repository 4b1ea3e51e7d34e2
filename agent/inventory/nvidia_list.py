"""The list that `nvidia-smi -L` prints: names and UUIDs of cards and MIG slices. Pure."""

import re
from collections.abc import Iterable
from dataclasses import replace

from agent.inventory.nvidia_words import CARD, MIG_PARENT, failure, lost_cards
from agent.inventory.seen import Seen, Sight

_SLICE = re.compile(r"^\s+MIG\s+(?P<profile>\S+)\s+Device\s+(?P<number>\d+):\s*\(UUID:\s*(?P<uuid>\S+?)\)")
_CUT = re.compile(r"^(?:GPU\s+\d+:|\s+MIG\s+\S+\s+Device)(?!.*\(UUID:\s*\S+\))")


def read_list(text: str) -> Sight:
    """`nvidia-smi -L`: identities; memory is not told. A line that names a card and no UUID is a problem."""
    if problem := failure(text):
        return Sight(problem=problem)
    devices: list[Seen] = []
    last: int | None = None
    """Where the card stands that slices belong to."""
    cut = ""
    for line in text.splitlines():
        if card := CARD.match(line):
            last = len(devices)
            devices.append(Seen(int(card["index"]), card["kind"], "nvidia", uuid=card["uuid"]))
        elif (part := _SLICE.match(line)) and last is not None:
            parent = devices[last] = replace(devices[last], unfit=MIG_PARENT)
            # Not the card's name too: whoever asks for an h100 means a whole one.
            devices.append(Seen(parent.index, f"MIG {part['profile']}", "nvidia", uuid=part["uuid"]))
        elif _CUT.match(line) or _SLICE.match(line):
            last = None
            cut = cut or f"nvidia-smi -L: cannot read {line.strip()[:80]!r}"
    empty = "" if devices or cut else "nvidia-smi -L told no card"
    return Sight(tuple(devices), "; ".join(filter(None, (lost_cards(text), cut, empty))))


def slices_listed(text: str) -> Iterable[tuple[str, int, str, str]]:
    """(card's UUID, slice number, profile, slice's UUID)."""
    card = ""
    for line in text.splitlines():
        if found := CARD.match(line):
            card = found["uuid"]
        elif part := _SLICE.match(line):
            yield card, int(part["number"]), part["profile"], part["uuid"]
