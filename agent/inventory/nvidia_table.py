"""The table that `nvidia-smi` prints when asked nothing: a last resort, and what people paste. Pure.

It tells no UUID of a card, and cuts long names; a list (`-L`) printed before it in the same text fills both in.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from agent.inventory.nvidia_list import read_list
from agent.inventory.nvidia_words import MIG_PARENT, failure, lost_cards
from agent.inventory.seen import Seen, Sight, User, breaks_off, bus_id, fault, known, mib, number

_FIRST = re.compile(
    r"^\|\s+(?P<index>\d+)\s+(?P<kind>\S.*?)\s+(?:On|Off|WDDM|TCC|MCDM|N/A|ERR!)\s*\|"
    r"\s+(?P<bus>[0-9A-Fa-f:.]+|N/A)\s.*\|\s*(?P<ecc>\S+)\s*\|"
)
_MEMORY = re.compile(r"\|\s*(?P<used>\S+)\s+/\s+(?P<total>\S+)\s*\|.*\|\s*$")
_NO_MEMORY = re.compile(r"^\|.*\|\s*(?P<said>ERR!|Unknown Error|GPU is lost)\s*\|.*\|\s*$")
_MODE = re.compile(r"^\|\s+\|\s+\|\s+(?P<mig>Enabled|Disabled|N/A|ERR!)\S*\s+\|")
_SLICE = re.compile(
    r"^\|\s+(?P<index>\d+)\s+(?P<gi>\d+)\s+(?P<ci>\d+)\s+(?P<dev>\d+)\s+\|\s+(?P<used>\S+)\s*/\s*(?P<total>\S+)\s+\|"
)
_PROCESS = re.compile(
    r"^\|\s+(?P<index>\d+)\s+(?:(?P<gi>\S+)\s+(?P<ci>\S+)\s+)?(?P<pid>\d+)\s+(?:C|G|C\+G|M\+C)\s+(?P<name>\S.*?)\s+(?P<used>\S+)\s+\|$"
)


def read_table(text: str) -> Sight:
    """The default output, or a text that holds `-L` and the default output."""
    if (problem := failure(text)) and "|" not in text:
        return Sight(problem=problem)
    cards, slices = _cards(text), list(_slices(text))
    users = list(_users(text))
    parents = {index for index, *_ in slices}
    whole = {
        card.index: replace(
            card,
            processes=tuple(user for index, _, user in users if index == card.index),
            unfit=MIG_PARENT if card.index in parents else card.unfit,
        )
        for card in cards
    }
    parts = [
        Seen(
            index,
            "MIG",
            "nvidia",
            bus=whole[index].bus if index in whole else "",
            total_mib=total,
            used_mib=used,
            processes=tuple(user for at, slot, user in users if at == index and slot == (gi, ci)),
        )
        for index, gi, ci, used, total in slices
    ]
    empty = "" if cards else "nvidia-smi told no card"
    problem = "; ".join(filter(None, (lost_cards(text), breaks_off(text), empty)))
    return _named(Sight((*whole.values(), *parts), problem), read_list(text).devices)


def _named(sight: Sight, listed: tuple[Seen, ...]) -> Sight:
    """With the identities and full names of a list: cards by index, slices by their order on the card."""
    if not listed:
        return sight
    left = list(listed)
    devices = []
    for device in sight.devices:
        sliced = device.kind.startswith("MIG")
        match = next((d for d in left if d.index == device.index and d.kind.startswith("MIG") is sliced), None)
        if match is not None:
            left.remove(match)
            device = replace(device, uuid=match.uuid, kind=match.kind)
        devices.append(device)
    return Sight(tuple(devices), sight.problem)


def _cards(text: str) -> list[Seen]:
    cards: list[Seen] = []
    for line in text.splitlines():
        if first := _FIRST.match(line):
            errors = number(first["ecc"]) or 0
            sick = f"{errors} uncorrected ECC errors since the driver was loaded" if errors else fault(first["ecc"])
            kind, bus = first["kind"].removesuffix("...").strip(), bus_id(first["bus"])
            cards.append(Seen(int(first["index"]), kind, "nvidia", bus=bus, sickness=sick))
        elif cards and cards[-1].total_mib is None and (memory := _MEMORY.search(line)):
            sick = cards[-1].sickness or fault(memory["total"]) or fault(memory["used"])
            total, used = mib(memory["total"]) or None, mib(memory["used"])
            cards[-1] = replace(cards[-1], total_mib=total, used_mib=used, sickness=sick)
        elif cards and (said := _NO_MEMORY.match(line)):
            cards[-1] = replace(cards[-1], sickness=cards[-1].sickness or said["said"])
        elif cards and (mode := _MODE.match(line)):
            cards[-1] = _in_mode(cards[-1], mode["mig"])
        elif "MIG devices:" in line or "Processes:" in line:
            break
    return cards


def _in_mode(card: Seen, mode: str) -> Seen:
    if mode == "Enabled":
        return replace(card, unfit=MIG_PARENT)
    return replace(card, sickness=card.sickness or fault(mode))


def _slices(text: str) -> Iterable[tuple[int, str, str, int | None, int | None]]:
    """(card's index, GPU instance, compute instance, used, total)."""
    for line in text.splitlines():
        if match := _SLICE.match(line):
            yield int(match["index"]), match["gi"], match["ci"], mib(match["used"]), mib(match["total"])


def _users(text: str) -> Iterable[tuple[int, tuple[str | None, str | None], User]]:
    for line in text.splitlines():
        if (match := _PROCESS.match(line)) and "Default" not in line:
            user = User(int(match["pid"]), match["name"].strip(), mib(match["used"]))
            yield int(match["index"]), (known(match["gi"]), known(match["ci"])), user
