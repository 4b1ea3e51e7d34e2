"""What of the AMD cards that a tool lists is a device to run on: carve-outs and partitions told apart. Pure.

Two things are never believed: a carve-out of main memory as the size of a graphics unit, and the whole card's memory as
that of each of its partitions.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent.inventory.seen import Seen, Sight, known

CARVE_OUT_MIB = 2048
"""No card for this work has less; a graphics unit within a processor is given so much of main memory."""

# LLVM's AMDGPU processor names that are parts of processors: https://llvm.org/docs/AMDGPUUsage.html#processors
_IN_PROCESSORS = frozenset(
    {
        "gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036", "gfx1037", "gfx1103",
        "gfx1150", "gfx1151", "gfx1152", "gfx1153",
    }
)  # fmt: skip
_DISPLAY_ONLY = frozenset({"gfx1036", "gfx1037"})
"""Two compute units, to drive a screen."""
_NAMES_IN_PROCESSORS = re.compile(
    r"\b(?:6[168]0M|7[468]0M|8[4-9]0M|80[456]0S|Raven Ridge|Picasso|Renoir|Lucienne|Cezanne|Barcelo|Rembrandt"
    r"|Mendocino|Phoenix\d?|Hawk Point\d?|Strix(?: Point| Halo)?|Krackan)\b",
    re.IGNORECASE,
)
"""For tools and queries that do not tell the processor name."""
_DISPLAY_NAMES = re.compile(r"\b(Raphael|Granite Ridge)\b", re.IGNORECASE)

# Whole cards, in GiB, that can be partitioned: AMD's data sheets.
_WHOLE_GIB = {"MI300A": 128, "MI300X": 192, "MI308X": 192, "MI325X": 256, "MI350X": 288, "MI355X": 288}
_WHOLE_SHARE = 0.9
# How many partitions a mode makes: https://rocm.docs.amd.com, "Compute partitioning modes". CPX makes one per die.
_PARTS = {"DPX": 2, "TPX": 3, "QPX": 4, "CPX": 8}
_DIES = {"MI300A": 6, "MI308X": 4}


@dataclass(frozen=True, slots=True)
class Card:
    """What a tool tells of a card, with what only the judging here needs."""

    seen: Seen
    gtt_mib: int | None = None
    gfx: str = ""
    compute: str = ""
    """Compute partitioning: SPX is a whole card, DPX, TPX, QPX, CPX are parts."""
    node: int | None = None
    """Its number in KFD's topology."""


def judged(cards: list[Card]) -> Sight:
    """Carve-outs and partitions told apart, and each device given the number that HIP counts it by."""
    discrete = any(not _is_carve_out(card) for card in cards)
    sharing = Counter(_board(card) for card in cards)
    seen = []
    for card in cards:
        device = card.seen
        if _is_carve_out(card):
            device = _carve_out(card, discrete=discrete)
        elif (parts := max(sharing[_board(card)], _parts(card))) > 1 and _board(card):
            device = replace(device, uuid="", total_mib=_share(device, parts))
        seen.append(device)
    return Sight(tuple(_numbered(cards, seen)))


def _carve_out(card: Card, *, discrete: bool) -> Seen:
    """Unified memory of a size nobody tells; beside a real card, or without shared memory, no device at all."""
    device = replace(card.seen, total_mib=None, used_mib=None)
    if card.gfx in _DISPLAY_ONLY or _DISPLAY_NAMES.search(device.kind) or discrete or not card.gtt_mib:
        return replace(device, unfit=f"a graphics unit within a processor ({card.seen.total_mib} MiB of its own)")
    return device


def _is_carve_out(card: Card) -> bool:
    own = card.seen.total_mib
    in_processor = card.gfx in _IN_PROCESSORS or bool(_NAMES_IN_PROCESSORS.search(card.seen.kind))
    if own is None:
        return in_processor
    if own < CARVE_OUT_MIB or card.gfx in _DISPLAY_ONLY:
        return True
    return in_processor and (card.gtt_mib or 0) > own


def _share(device: Seen, parts: int) -> int | None:
    """A partition's part of a card whose memory each of its partitions claims for itself."""
    if device.total_mib is None:
        return None
    whole = next((gib * 1024 for name, gib in _WHOLE_GIB.items() if name in device.kind.upper()), None)
    if whole is not None and device.total_mib < whole * _WHOLE_SHARE:
        return min(device.total_mib, whole // parts)  # partitions of one memory domain each tell all of that
    return device.total_mib // parts


def _parts(card: Card) -> int:
    """How many there are by the mode, also where only some are shown (to a container); 0 where it does not say."""
    mode = card.compute.upper()
    dies = next((count for name, count in _DIES.items() if name in card.seen.kind.upper()), None)
    return dies if mode == "CPX" and dies else _PARTS.get(mode, 0)


def _board(card: Card) -> str:
    """What the partitions of one card have in common; empty for a card that is whole."""
    if card.compute.upper() in ("", "SPX", "N/A") and not card.seen.uuid:
        return ""
    return card.seen.uuid or card.seen.bus.rpartition(".")[0]


def _numbered(cards: list[Card], seen: list[Seen]) -> Iterable[Seen]:
    """HIP counts what KFD lists, in the order of its nodes; where those are not told, in the tool's."""
    order = sorted(range(len(cards)), key=lambda n: (cards[n].node is None, cards[n].node or 0, cards[n].seen.index))
    for place, number_ in enumerate(order):
        device = seen[number_]
        yield device if device.ordinal is not None else replace(device, ordinal=place)


def unique_id(text: str | None) -> str:
    """`0xc2c8f14d225f681` as ROCm itself writes it: `GPU-0c2c8f14d225f681`. Empty where it is not known."""
    plain = (known(text) or "").casefold().removeprefix("gpu-").removeprefix("0x")
    return f"GPU-{int(plain, 16):016x}" if re.fullmatch(r"[0-9a-f]{1,16}", plain) and int(plain, 16) else ""
