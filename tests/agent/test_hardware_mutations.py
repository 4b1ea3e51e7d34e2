"""Saved outputs, damaged as links, disks, shells and drivers damage them: nothing breaks, and no figure is made up."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.devices import Holding, Known, Whose, judge
from agent.inventory.dumps import read_dump
from agent.inventory.seen import Sight
from tests.agent.test_hardware import EXPECTED, text_of

TOOLS = sorted(name for name in EXPECTED if not name.startswith(("normalized/", "inventory/")))
UNKNOWNS = [
    *("[N/A]", "N/A", "n/a", "[Not Supported]", "Not Supported", "[Unknown Error]", "Unknown Error", "ERR!"),
    *("[Insufficient Permissions]", "[GPU is lost]", "GPU requires reset", "-", "", "NA", "Function Not Found"),
]
NOISE = [
    "WARNING: infoROM is corrupted at gpu 0000:65:00.0",
    "[WARN] power saving {on}",
    "ERROR:root:something, else",
    "\x1b[33mwarning\x1b[0m",
    "user@gpu07:~$ date",
    "Mon Nov 30 10:50:14 UTC 2026",
]
_FIGURE = re.compile(r"\b\d+ ?Mi?B\b|(?<=\"Memory \(B\)\": \")\d+")


def totals(sight: Sight) -> dict[int, set[int | None]]:
    found: dict[int, set[int | None]] = {}
    for device in sight.devices:
        found.setdefault(device.index, set()).add(device.total_mib)
    return found


def read(text: str) -> Sight:
    sight = read_dump(text)
    known = judge(sight, Holding(lambda _: Whose.UNSEEN), Known(), "machine", {})
    assert len({device.id for device in known.inventory.devices}) == len(known.inventory.devices)
    return sight


def tells_nothing_new(name: str, text: str) -> None:
    """Whatever is told of a card's size was told of it before."""
    before = totals(read_dump(text_of(name)))
    for index, sizes in totals(read(text)).items():
        assert sizes - {None} <= before.get(index, set())


Damage = Callable[[str, int, str], str]


def _cut(text: str, at: int, _: str) -> str:
    return text[: text.rfind("\n", 0, at % (len(text) + 1)) + 1]


def _without_a_line(text: str, at: int, _: str) -> str:
    lines = text.splitlines(keepends=True)
    del lines[at % len(lines)]
    return "".join(lines)


def _noise(text: str, at: int, word: str) -> str:
    noise = NOISE[at % len(NOISE)] + "\n"
    return noise + text + (noise if at % 2 else "")


def _unknown(text: str, at: int, word: str) -> str:
    """One figure of memory in one of the ways to say that it is not known."""
    places = list(_FIGURE.finditer(text))
    if not places:
        return text
    match = places[at % len(places)]
    return text[: match.start()] + word + text[match.end() :]


def _localised(text: str, at: int, _: str) -> str:
    """All figures with thousands set apart, as some languages do."""
    mark = ".,' \u00a0"[at % 5]
    return _FIGURE.sub(lambda match: re.sub(r"(\d)(?=(?:\d{3})+(?!\d))", rf"\g<1>{mark}", match[0]), text)


DAMAGES = [_cut, _without_a_line, _noise, _unknown, _localised]


@pytest.mark.parametrize("damage", DAMAGES)
@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(TOOLS), at=st.integers(0, 2**20), word=st.sampled_from(UNKNOWNS))
def test_a_damaged_output_tells_no_size_that_the_whole_one_did_not(
    damage: Damage, name: str, at: int, word: str
) -> None:
    tells_nothing_new(name, damage(text_of(name), at, word))


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(TOOLS),
    edits=st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 40), st.text(max_size=12)), max_size=4),
)
def test_no_damage_whatever_breaks_the_reader(name: str, edits: list[tuple[int, int, str]]) -> None:
    text = text_of(name)
    for at, length, instead in edits:
        at %= len(text) + 1
        text = text[:at] + instead + text[at + length :]
    read_dump(text)


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_characters="."), max_size=400))
def test_what_is_no_output_at_all_tells_no_size_and_no_emptiness(text: str) -> None:
    sight = read_dump(text)
    assert {device.total_mib for device in sight.devices} <= {None}
    assert sight.devices or sight.problem
