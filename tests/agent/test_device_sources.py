"""Devices as this machine's own tools tell them: NVIDIA's library, and executables that print what real ones print."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.devices import Holding, Known, Whose, judge
from agent.inventory import sources
from agent.inventory.nvml import NvmlReader
from agent.inventory.pci import devices_on_bus
from agent.inventory.seen import Sight, User
from agent.inventory.sources import Machine
from agent.launch import why_unnameable
from llmgw.engines import ROWS
from llmgw.ids import DeviceId
from llmgw.wire import Device, DeviceHealth, DeviceNaming, DeviceSelection

HARDWARE = Path(__file__).parent / "hardware"
MIB = 1024 * 1024

# --- NVML ----------------------------------------------------------------------------------------------------------


class NvmlError(Exception):
    value = 999


class UnsupportedError(NvmlError):
    value = 3


@dataclass
class Card:
    uuid: str
    memory: int | NvmlError = 80 * 1024 * MIB
    used: int | None = None
    processes: list[tuple[int, int | None]] = field(default_factory=list)
    slices: list["Card"] | None = None
    ecc: int | NvmlError = 0
    name: str = "NVIDIA H100"


@dataclass
class Nvml:
    """The part of pynvml that is used."""

    cards: list[Card]
    xids: list[tuple[Card, int]] = field(default_factory=list)
    down: NvmlError | None = None
    NVMLError = NvmlError
    nvmlEventTypeXidCriticalError = 8  # noqa: N815 - the library's name, as those below

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        if self.down is not None:
            raise self.down
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:  # noqa: N802
        if self.cards[index].uuid == "lost":
            raise NvmlError("GPU is lost")
        return self.cards[index]

    def nvmlDeviceGetUUID(self, card: Card) -> str:  # noqa: N802
        return card.uuid

    def nvmlDeviceGetName(self, card: Card) -> bytes:  # noqa: N802
        return card.name.encode()

    def nvmlDeviceGetPciInfo(self, card: Card) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(busId=b"00000000:5D:00.0")

    def nvmlDeviceGetMemoryInfo(self, card: Card) -> SimpleNamespace:  # noqa: N802
        if isinstance(card.memory, NvmlError):
            raise card.memory
        return SimpleNamespace(total=card.memory, used=card.used)

    def nvmlDeviceGetComputeRunningProcesses(self, card: Card) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in card.processes]

    def nvmlDeviceGetMigMode(self, card: Card) -> tuple[int, int]:  # noqa: N802
        if card.slices is None:
            raise UnsupportedError("no MIG")
        return (1, 1)

    def nvmlDeviceGetMaxMigDeviceCount(self, card: Card) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: Card, place: int) -> Card:  # noqa: N802
        if place >= len(card.slices or []):
            raise NvmlError("Not Found")
        return (card.slices or [])[place]

    def nvmlDeviceGetTotalEccErrors(self, card: Card, kind: int, counter: int) -> int:  # noqa: N802
        if isinstance(card.ecc, NvmlError):
            raise card.ecc
        return card.ecc

    def nvmlEventSetCreate(self) -> object:  # noqa: N802
        return object()

    def nvmlDeviceRegisterEvents(self, card: Card, kind: int, events: object) -> None:  # noqa: N802
        pass

    def nvmlEventSetWait_v2(self, events: object, wait_ms: int) -> SimpleNamespace:  # noqa: N802
        if not self.xids:
            raise NvmlError("Timeout")
        card, xid = self.xids.pop()
        return SimpleNamespace(device=card, eventData=xid)


def judged(sight: Sight) -> Known:
    return judge(sight, Holding(lambda _: Whose.FOREIGN), Known(), "machine", {})


def test_nvml_tells_identity_memory_and_who_uses_a_device() -> None:
    first, second = (
        NvmlReader(
            Nvml(
                [
                    Card("GPU-a", used=400 * MIB, processes=[(2**22 + 7, 300 * MIB), (2**22 + 8, None)]),
                    Card("GPU-b", UnsupportedError("N/A"), ecc=UnsupportedError("no ECC")),
                ]
            )
        )
        .read()
        .devices
    )
    assert (first.uuid, first.index, first.kind, first.total_mib, first.used_mib) == (
        "GPU-a",
        0,
        "NVIDIA H100",
        81920,
        400,
    )
    assert first.processes == (User(2**22 + 7, "", 300), User(2**22 + 8, "", None))
    assert first.bus == "0000:5d:00.0"
    assert (second.total_mib, second.used_mib, second.sickness) == (None, None, ""), "unified memory is no fault"


def test_nvml_in_mig_mode_tells_the_slices_and_not_the_card() -> None:
    parts = [Card(f"MIG-{n}", 10 * 1024 * MIB, name="NVIDIA A100 MIG 1g.10gb") for n in range(3)]
    sight = NvmlReader(Nvml([Card("GPU-a", slices=parts), Card("GPU-b")])).read()
    assert [(d.id, d.kind, d.memory_mib) for d in judged(sight).inventory.devices] == [
        *[(f"MIG-{n}", "MIG 1g.10gb", 10240) for n in range(3)],
        ("GPU-b", "NVIDIA H100", 81920),
    ]
    assert len(judged(sight).left_out) == 1


def test_what_nvml_cannot_read_is_a_failed_look_or_a_sick_device_never_an_absent_one() -> None:
    down = judged(NvmlReader(Nvml([], down=NvmlError("Driver mismatch"))).read()).inventory
    assert (down.devices, down.complete) == ((), False)
    assert "Driver mismatch" in down.problem
    part = judged(NvmlReader(Nvml([Card("GPU-a", NvmlError("Unknown Error")), Card("lost")])).read()).inventory
    assert [(d.id, d.health) for d in part.devices] == [("GPU-a", DeviceHealth.BAD)]
    assert "device 1: GPU is lost" in part.problem


@pytest.mark.parametrize(
    ("xid", "sickness"),
    [(79, "Xid 79"), (48, "Xid 48"), (31, ""), (13, "")],
    ids=["off the bus", "ECC", "fault", "program"],
)
def test_an_xid_of_the_device_is_its_sickness_and_a_programs_is_not(xid: int, sickness: str) -> None:
    card = Card("GPU-a")
    nvml = Nvml([card, Card("GPU-b")], xids=[(card, xid)])
    reader = NvmlReader(nvml)
    for _ in range(2):  # told once by the library, remembered by us
        first, second = reader.read().devices
        assert (first.sickness, second.sickness) == (sickness, "")


def test_uncorrected_ecc_errors_are_a_sickness() -> None:
    (card,) = NvmlReader(Nvml([Card("GPU-a", ecc=3)])).read().devices
    assert "3 uncorrected ECC errors" in card.sickness


# --- tools ---------------------------------------------------------------------------------------------------------

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts an executable with this body where the machine looks for tools. No library and no bus tell anything."""
    monkeypatch.setattr(sources, "load_nvml", lambda: None)
    monkeypatch.setattr(sources, "devices_on_bus", dict)

    def put(name: str, body: str) -> None:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    return put


@pytest.fixture
def machine(tmp_path: Path, install: Install) -> Machine:
    return Machine(str(tmp_path))


def printing(*files: str) -> str:
    return "\n".join(f"cat {HARDWARE / file}" for file in files)


def test_a_machine_without_tools_and_cards_is_known_to_have_none(machine: Machine) -> None:
    assert machine.look() == Sight()


def test_each_vendors_tool_is_asked_and_all_are_told_together(machine: Machine, install: Install) -> None:
    install("nvidia-smi", printing("nvidia/tesla-t4.xml"))
    install("rocm-smi", "echo 'WARNING: power saving is on'; " + printing("amd/rx6700xt_rocm612.json"))
    install("npu-smi", printing("ascend/npu-smi-910prob-32g.txt"))
    look = machine.look()
    assert [(device.vendor, device.total_mib) for device in look.devices] == [
        ("nvidia", 15360),
        ("amd", 12272),
        ("ascend", 32768),
    ]
    assert look.problem == ""


def test_slices_get_their_uuids_from_the_list(machine: Machine, install: Install) -> None:
    card = "GPU-f28ead8f-b171-a0b0-f696-84bbd71b307f"
    listing = f"GPU 0: A100 (UUID: {card})\n" + "".join(
        f"  MIG 2g.20gb  Device  {n}: (UUID: MIG-{n})\n" for n in range(4)
    )
    install("nvidia-smi", f"[ $1 = -L ] && printf '{listing}' && exit\n{printing('nvidia/a100-sxm4-v12.xml')}")
    assert [device.uuid for device in machine.look().devices if not device.unfit] == [f"MIG-{n}" for n in range(4)]


@pytest.mark.parametrize(
    ("tool", "body", "word"),
    [
        ("nvidia-smi", "echo 'NVIDIA-SMI has failed because it could not'; exit 9", "NVIDIA-SMI has failed"),
        ("nvidia-smi", "echo 'No devices were found'; exit 6", "No devices were found"),
        ("nvidia-smi", "kill -9 $$", "exit code -9"),
        ("nvidia-smi", "echo '<nvidia_smi_log><gpu'", "nvidia-smi -q -x"),
        ("rocm-smi", "echo 'ERROR: ROCk module is NOT loaded, possibly no GPU devices'; exit 2", "ROCk module"),
        ("npu-smi", "echo 'dcmi module initialize failed. ret is -8005' >&2; exit 1", "dcmi module"),
        ("npu-smi", "", "printed nothing"),
    ],
)
def test_a_tool_that_fails_is_a_failed_look(
    machine: Machine, install: Install, tool: str, body: str, word: str
) -> None:
    install(tool, body)
    look = machine.look()
    assert look.devices == ()
    assert word in look.problem


def test_a_tool_that_hangs_is_a_failed_look(
    machine: Machine, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "TOOL_LIMIT_S", 0.2)
    install("nvidia-smi", "exec sleep 60")
    assert "did not answer within" in machine.look().problem


def test_the_bus_tells_which_cards_this_system_may_drive(tmp_path: Path) -> None:
    for number, (vendor, kind, driver) in enumerate(
        [
            ("0x10de", "0x030200", "nvidia"),
            ("0x10de", "0x030000", ""),
            ("0x10de", "0x030200", "vfio-pci"),
            ("0x10de", "0x040300", "snd_hda_intel"),
            ("0x1002", "0x030000", "amdgpu"),
            ("0x1002", "0x120000", "amdgpu"),
            ("0x8086", "0x030000", "i915"),
        ]
    ):
        device = tmp_path / "devices" / f"0000:0{number}:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(vendor + "\n")
        (device / "class").write_text(kind + "\n")
        if driver:
            (tmp_path / driver).mkdir(exist_ok=True)
            (device / "driver").symlink_to(tmp_path / driver)
    assert devices_on_bus(tmp_path / "devices") == {"nvidia": 2, "amd": 1}
    assert devices_on_bus(tmp_path / "nowhere") == {}


# --- how engines are told ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ROWS)
def test_a_device_that_an_engine_cannot_be_shown_is_refused_and_any_other_is_shown(engine: str) -> None:
    whole = Device(id=DeviceId("GPU-1a2b"), index=0, kind="x", vendor="nvidia")
    part = Device(id=DeviceId("MIG-1a2b"), index=0, kind="x", vendor="nvidia")
    nameless = Device(id=DeviceId("0000:5d:00.0@3d12"), index=0, kind="x", vendor="nvidia")
    selection = ROWS[engine].devices.get("nvidia")
    if selection is None:
        pytest.skip("takes no such devices")
    by_uuid = selection.naming is DeviceNaming.UUID
    assert why_unnameable(selection, whole) == ""
    assert bool(why_unnameable(selection, part)) is not by_uuid
    assert bool(why_unnameable(selection, nameless)) is by_uuid


def test_vendors_without_uuids_are_named_as_the_node_knows_them() -> None:
    told: Any = DeviceSelection(naming=DeviceNaming.UUID, variables=("LLMGW_DEVICES",))
    made_up = Device(id=DeviceId("apple:0@3d12"), index=0, kind="Apple M2 Ultra", vendor="apple")
    assert why_unnameable(told, made_up) == ""
