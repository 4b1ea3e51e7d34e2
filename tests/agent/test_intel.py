"""What `xpu-smi discovery` tells, as a table and as JSON of older and newer versions, and how the agent asks it."""

import json
from pathlib import Path

import pytest

from agent.devices import Holding, Known, Whose, judge
from agent.inventory import sources
from agent.inventory.dumps import read_dump
from agent.inventory.seen import Sight
from agent.inventory.sources import Machine

HEAD = "+-----------+----------------------------------------------------+\n"
TABLE = (
    HEAD
    + "| Device ID | Device Information                                 |\n"
    + HEAD
    + "| 0         | Device Name: Intel(R) Data Center GPU Max 1550     |\n"
    + "|           | Vendor Name: Intel(R) Corporation                  |\n"
    + "|           | SOC UUID: 00000000-0000-001b-0000-002f0bd58086     |\n"
    + "|           | PCI BDF Address: 0000:1b:00.0                      |\n"
    + HEAD
    + "| 1         | Device Name: Intel(R) UHD Graphics 770             |\n"
    + "|           | PCI BDF Address: 0000:00:02.0                      |\n"
    + HEAD
)
ONE = TABLE.replace(
    "|           | SOC", "|           | Memory Physical Size: 131072.00 MiB                |\n|           | SOC"
)
B60 = {"device_id": 2, "device_name": "Intel(R) Arc(TM) Pro B60 Graphics", "pci_bdf_address": "0000:97:00.0"}
FULL = {**B60, "memory_physical_size_byte": "25669140480", "memory_free_size_byte": "25447604224"}


def told(sight: Sight) -> list[tuple[int, str, str, int | None, int | None]]:
    return [(d.index, d.kind, d.bus, d.total_mib, d.used_mib) for d in sight.devices if not d.unfit]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TABLE, [(0, "Intel(R) Data Center GPU Max 1550", "0000:1b:00.0", None, None)]),
        (ONE, [(0, "Intel(R) Data Center GPU Max 1550", "0000:1b:00.0", 131072, None)]),
        (json.dumps({"device_list": [B60]}), [(2, B60["device_name"], "0000:97:00.0", None, None)]),
        (json.dumps({"device_list": [FULL]}), [(2, B60["device_name"], "0000:97:00.0", 24480, 212)]),
        (json.dumps(FULL), [(2, B60["device_name"], "0000:97:00.0", 24480, 212)]),
    ],
    ids=["table", "one in full", "list", "list in full", "one as json"],
)
def test_cards_are_told_and_graphics_units_within_processors_are_left_out(text: str, expected: list[object]) -> None:
    sight = read_dump(text)
    assert told(sight) == expected
    assert sight.problem == ""


@pytest.mark.parametrize(
    "text",
    ["\n".join(TABLE.splitlines()[:6]), HEAD + "| Device ID | Device Information |\n" + HEAD, '{"device_list": []}'],
    ids=["cut", "empty table", "empty list"],
)
def test_what_is_cut_or_empty_is_a_problem(text: str) -> None:
    assert read_dump(text).problem


def test_two_machines_with_the_same_card_in_the_same_place_are_two_devices() -> None:
    sight = read_dump(json.dumps({"device_list": [{**FULL, "uuid": "00000000-0000-0097-0000-0000e2118086"}]}))
    here, there = (judge(sight, Holding(lambda _: Whose.FOREIGN), Known(), machine, {}) for machine in ("a", "b"))
    assert here.inventory.devices[0].id != there.inventory.devices[0].id


def answering(folder: Path, script: str) -> Machine:
    (folder / "xpu-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "xpu-smi").chmod(0o755)
    return Machine(str(folder))


def test_what_the_list_lacks_is_asked_of_each_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "load_nvml", lambda: None)
    monkeypatch.setattr(sources, "devices_on_bus", dict)
    listed, full = json.dumps({"device_list": [B60]}), json.dumps(FULL)
    machine = answering(tmp_path, f"case $2 in -d) echo '{full}';; *) echo '{listed}';; esac")
    assert [(d.total_mib, d.vendor) for d in machine.look().devices] == [(24480, "intel")]
    failing = answering(tmp_path, 'echo \'{"error": "Level Zero Initialization Error", "errno": 1}\'; exit 1')
    assert failing.look() == Sight(problem="xpu-smi: Level Zero Initialization Error")
