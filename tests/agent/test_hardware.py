"""Every saved output of a real tool, and what the agent must make of it; `hardware/NOTICE.md` tells where from."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.declared import declared_devices, parse_declared
from agent.devices import STEP_MIB, Holding, Known, Whose, judge, stepped
from agent.inventory import amd, nvidia_smi
from agent.inventory.dumps import read_dump
from agent.inventory.seen import Seen, Sight, User, bus_id, known, mib
from agent.inventory.sources import complete
from agent.inventory.topology import read_links, read_slice_profiles
from llmgw.ids import DeviceId
from llmgw.wire import DeviceHealth

HARDWARE = Path(__file__).parent / "hardware"
ZERO = "GPU-00000000-0000-0000-0000-000000000000"
MI100 = "Arcturus GL-XL [Instinct MI100]"

Row = tuple[int, str, int | None, int | None]
"""(index, kind, total MiB, used MiB) of a device that work may run on."""


def cards(count: int, kind: str, total: int | None, used: int | None) -> list[Row]:
    return [(index, kind, total, used) for index in range(count)]


def slices(*parts: tuple[str, int | None, int | None]) -> list[Row]:
    return [(0, f"MIG {profile}".strip(), total, used) for profile, total, used in parts]


H100 = "NVIDIA H100 80GB HBM3"
EXPECTED: dict[str, list[Row]] = {
    "nvidia/a100-sxm4-v12.xml": slices(*[("", 19968, 12)] * 4),
    "nvidia/a10g.xml": cards(1, "NVIDIA A10G", 23028, 22),
    "nvidia/tesla-t4.xml": cards(1, "Tesla T4", 15360, 1032),
    "nvidia/gtx-1070-ti.xml": cards(1, "GeForce GTX 1070 Ti", 4096, 42),
    "nvidia/rtx-4000-sff-ada-v13.xml": cards(1, "NVIDIA RTX 4000 SFF Ada Generation", 20475, 3534),
    "nvidia/rtx-3090-v12.xml": cards(1, "NVIDIA GeForce RTX 3090", 24576, 1),
    "nvidia/h100-80gb.L-topo-table.txt": cards(1, H100, 81559, 19818),
    "nvidia/h100-80gb.query-gpu.idle.csv": cards(1, H100, 81559, 0),
    "nvidia/h100-80gb.query-gpu.load.csv": cards(1, H100, 81559, 19818),
    "nvidia/h100-80gb.compute-apps.load.csv": cards(1, "", None, None),
    "nvidia/h100-mig.L-topo-table.txt": slices(
        ("3g.40gb", 40448, 11091), ("2g.20gb", 20096, 17), ("1g.10gb", 9984, 9), ("1g.10gb", 9984, 9)
    ),
    "nvidia/h100-mig.query-gpu.idle.csv": [],
    "nvidia/h100-mig.query-gpu.load.csv": [],
    "nvidia/h100-mig.compute-apps.load.csv": cards(1, "", None, None),
    "nvidia/h200-mig.L-topo-table.txt": slices(
        ("1c.3g.71gb", 71424, 16925),
        ("2c.3g.71gb", 71424, 16925),
        ("2g.35gb", 33280, 17),
        ("1g.18gb", 16384, 9),
        ("1g.18gb", 16384, 9),
    ),
    "nvidia/h200-mig.query-gpu.idle.csv": [],
    "nvidia/h200-mig.query-gpu.load.csv": [],
    "nvidia/h200-mig.compute-apps.load.csv": cards(1, "", None, None),
    "nvidia/l40s.L-topo-table.txt": cards(1, "NVIDIA L40S", 46068, 1235),
    "nvidia/l40s.query-gpu.idle.csv": cards(1, "NVIDIA L40S", 46068, 0),
    "nvidia/l40s.query-gpu.load.csv": cards(1, "NVIDIA L40S", 46068, 1235),
    "nvidia/l40s.compute-apps.load.csv": cards(1, "", None, None),
    "nvidia/win-rtx2080s.L-topo-table.txt": cards(1, "NVIDIA GeForce RTX 2080 SUPER", 8192, 1296),
    "nvidia/win-rtx2080s.query-gpu.idle.csv": cards(1, "NVIDIA GeForce RTX 2080 SUPER", 8192, 702),
    "nvidia/win-rtx2080s.query-gpu.load.csv": cards(1, "NVIDIA GeForce RTX 2080 SUPER", 8192, 1296),
    "nvidia/win-rtx2080s.compute-apps.load.csv": cards(1, "", None, None),
    "nvidia/h100-sxm-x8.table.txt": cards(8, H100, 81559, 1),
    "nvidia/gb10.query.csv": cards(1, "", None, None),
    "nvidia/gb10.index-name.query.csv": cards(1, "NVIDIA GB10", None, None),
    "nvidia/vgpu-memory-na.query.csv": cards(1, "NVIDIA H100L-2-24C", 24576, None),
    "nvidia/L-mig-a100-7x1g.txt": slices(*[("1g.10gb", None, None)] * 7),
    "amd/mi100_rocm602.json": cards(4, MI100, 32752, 6),
    "amd/mi100_rocm571.json": cards(6, MI100, 32752, 6),
    "amd/rx6700xt_rocm612.json": cards(1, "Navi 22 [Radeon RX 6700/6700 XT / 6800M]", 12272, 1499),
    "amd/vega-10-XT.json": cards(1, "AMD 0x6861", 16368, 16),
    "amd/mi300x-x4.rocm-smi.table.txt": cards(4, "AMD Instinct MI300X", None, None),
    "amd/rocm-smi-igpu.csv": cards(1, "Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]", 16368, 660),
    "amd/rocm-memuse-na.json": cards(2, "AMD", None, None),
    "amd/rocm-strix-halo-gtt.csv": cards(1, "AMD", None, None),
    "amd/rocm-vram-na.table.txt": [(1, "AMD", None, None)],
    "ascend/npu-smi-910b3.txt": [(index, "910B3", 65536, used) for index, used in enumerate((34416, 3386, 3380, 3377))],
    "ascend/npu-smi-a3-dual-chip.txt": [
        (index, "Ascend910", 65536, used) for index, used in enumerate((3397, 3186, 3411, 3180))
    ],
    "ascend/npu-smi-910prob-32g.txt": cards(1, "910ProB", 32768, 18),
    "normalized/detect_output_nvidia_gb10.json": cards(1, "NVIDIA GB10", 138932, 21348),
    "normalized/detect_output_nvidia_h100_mig.json": [
        (8, "1g.20gb", 20096, 16),
        (9, "1g.10gb", 9984, 16),
        (10, "1g.10gb", 9984, 16),
        *[(index, H100, 81559, 482) for index in (1, 2)],
        (32, "1c.3g.40gb", 40448, 46),
        (33, "1c.3g.40gb", 40448, 46),
        *[(index, H100, 81559, 482) for index in (4, 5, 6, 7)],
    ],
    "normalized/detect_output_amd_mi300x.json": cards(2, "AMD Instinct MI300X OAM", 196592, 284),
    "normalized/detect_output_ascend_910b2.json": [
        (index, "910B2", 65536, used) for index, used in enumerate((3432, 3427, 3420, 3421, 3421, 3420, 3419, 3426))
    ],
    "inventory/linux_nvidia_18_4090_24gx4_4080_16gx4.json": [
        *[(index, "NVIDIA RTX 4090", 24576, 409 if index == 0 else 590) for index in range(4)],
        *[(index, "NVIDIA RTX 4080", 16384, 590) for index in range(4, 8)],
    ],
    "inventory/linux_nvidia_21_4090_24gx4_3060_12gx4.json": [
        *[(index, "NVIDIA RTX 4090", 24576, 409 if index == 0 else 590) for index in range(4)],
        *[(index, "NVIDIA RTX 3060", 12288 if index < 7 else 24576, 590) for index in range(4, 8)],
    ],
    "inventory/linux_nvidia_26_H200_141gx8.json": [
        (index, "H200 SXM5", 144492, 590 if index % 2 else 409) for index in range(8)
    ],
    "inventory/linux_ascend_1_910b_64gx8.json": cards(8, "910B1", 65536, 3276),
    "inventory/macos_metal_3_m2ultra_192g.json": cards(1, "Apple M2 Ultra", 191488, 2396),
    "inventory/linux_cpu_1.json": [],
}
OTHERWISE = {  # read by tests of their own below
    "nvidia/errors.txt",
    "nvidia/topo-m-2gpu-blank-affinity.txt",
    "nvidia/topo-m-2x5090-phb.txt",
    "nvidia/topo-m-4gpu-26nic-spaces.txt",
    "nvidia/mig-lgip-0-free.txt",
    "nvidia/mig-lgip-gh200-free.txt",
    "normalized/topology_output_nvidia_h100.json",
    "normalized/topology_output_ascend_910b2.json",
}


def text_of(name: str) -> str:
    return (HARDWARE / name).read_text()


def usable(sight: Sight) -> list[Seen]:
    return [device for device in sight.devices if not device.unfit]


def foreign(_: int) -> Whose:
    return Whose.FOREIGN


def judged(sight: Sight, before: Known | None = None, **holding: object) -> Known:
    whose: Callable[[int], Whose] = holding.pop("whose", foreign)  # type: ignore[assignment]
    claimed = frozenset(DeviceId(str(name)) for name in holding.pop("claimed", ()))  # type: ignore[attr-defined]
    return judge(sight, Holding(whose, claimed), before or Known(), "0123456789abcdef", {})


def test_every_saved_output_is_read_by_a_test() -> None:
    files = {str(path.relative_to(HARDWARE)) for path in HARDWARE.rglob("*") if path.is_file()}
    assert files - {"NOTICE.md"} == set(EXPECTED) | OTHERWISE


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_saved_output_tells_its_devices(name: str, ends: str) -> None:
    sight = read_dump(text_of(name).replace("\r\n", "\n").replace("\n", ends))
    assert sight.problem == ""
    assert [(d.index, d.kind, d.total_mib, d.used_mib) for d in usable(sight)] == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_devices_of_one_machine_have_identities_of_their_own_that_stay(name: str) -> None:
    sight = read_dump(text_of(name))
    once, again = judged(sight), judged(sight)
    names = [device.id for device in once.inventory.devices]
    assert len(names) == len(set(names)) == len(usable(sight))
    assert once == again
    elsewhere = judge(sight, Holding(foreign), Known(), "another machine", {})
    without_uuid = [device for device in names if "@0123" in device]
    assert {device.id for device in elsewhere.inventory.devices} & set(without_uuid) == set()


# --- NVIDIA --------------------------------------------------------------------------------------------------------


def test_a_card_in_mig_mode_is_no_device_and_its_slices_carry_their_own_uuids() -> None:
    sight = read_dump(text_of("nvidia/L-mig-a100-7x1g.txt"))
    assert [device.unfit for device in sight.devices if device.unfit] == [nvidia_smi.MIG_PARENT]
    assert all(device.uuid.startswith("MIG-") for device in usable(sight))
    document, listed = (
        text_of("nvidia/a100-sxm4-v12.xml"),
        "GPU 0: A100 (UUID: GPU-f28ead8f-b171-a0b0-f696-84bbd71b307f)\n",
    )
    listed += "".join(f"  MIG 2g.20gb     Device  {n}: (UUID: MIG-{n}{n}{n}{n})\n" for n in range(4))
    both = usable(nvidia_smi.read_xml(document, listed))
    assert [(device.uuid, device.kind) for device in both] == [(f"MIG-{n * 4}", "MIG 2g.20gb") for n in "0123"]
    alone = usable(nvidia_smi.read_xml(document))
    assert alone[0].uuid == "MIG-GPU-f28ead8f-b171-a0b0-f696-84bbd71b307f/3/0", "as drivers called them before"


def test_slices_of_one_gpu_instance_know_their_own_processes() -> None:
    first, second, *_ = usable(read_dump(text_of("nvidia/h200-mig.L-topo-table.txt")))
    assert first.processes == ()
    assert [user.pid for user in second.processes] == [12249, 12250, 12267]


def test_processes_and_what_they_hold_are_known_where_the_tool_tells() -> None:
    (ada,) = usable(read_dump(text_of("nvidia/rtx-4000-sff-ada-v13.xml")))
    assert [(user.pid, user.mib) for user in ada.processes] == [(1842, 410), (3190, 451), (4937, 160), (34626, 183)]
    (device,) = judged(Sight((ada,))).inventory.devices
    assert device.foreign_mib == 3584, "a desktop holds 3,534 MiB: no idle device"
    (windows,) = usable(read_dump(text_of("nvidia/win-rtx2080s.compute-apps.load.csv")))
    assert len(windows.processes) == 12
    assert {user.mib for user in windows.processes} == {None}
    apps = text_of("nvidia/h100-80gb.compute-apps.load.csv")
    (h100,) = nvidia_smi.read_csv(text_of("nvidia/h100-80gb.query-gpu.load.csv"), apps).devices
    assert [user.mib for user in h100.processes] == [2566, 1542, 15690]


def test_a_process_name_may_hold_a_comma() -> None:
    text = "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\nGPU-1, 7, /opt/a, b/run, 12 MiB\n"
    assert nvidia_smi.read_apps(text).devices[0].processes == (User(7, "/opt/a, b/run", 12),)


def error_blocks() -> list[tuple[int, str]]:
    found = re.findall(r"--- exit (\d+)\n(.*?)(?=--- exit|\Z)", text_of("nvidia/errors.txt"), re.DOTALL)
    return [(int(code), text) for code, text in found]


@pytest.mark.parametrize(("code", "text"), error_blocks(), ids=[str(code) for code, _ in error_blocks()])
def test_a_failing_tool_is_a_failed_look_that_keeps_what_was_known(code: int, text: str) -> None:
    problem = nvidia_smi.failure(text, code)
    assert text.split(maxsplit=1)[0] in problem
    assert nvidia_smi.failure(text) == problem, "the exit code may be lost in a pipe"
    assert read_dump(text) == Sight(problem=problem)
    before = judged(read_dump(text_of("nvidia/h100-sxm-x8.table.txt")))
    after = judged(Sight(problem=problem), before)
    assert not after.inventory.complete
    assert [device.id for device in after.inventory.devices] == [device.id for device in before.inventory.devices]
    assert {device.health for device in after.inventory.devices} == {DeviceHealth.BAD}, "nothing new is put there"
    assert after.ordinals == before.ordinals, "what runs can still be named"
    back = judged(read_dump(text_of("nvidia/h100-sxm-x8.table.txt")), after)
    assert back.inventory == before.inventory


def test_one_lost_card_is_named_by_its_place_and_the_others_serve_on() -> None:
    listed = (
        "GPU 0: NVIDIA A10 (UUID: GPU-aaaa1111)\n"
        "Unable to determine the device handle for GPU0000:65:00.0: Unknown Error\n"
        "GPU 2: NVIDIA A10 (UUID: GPU-cccc3333)\n"
    )
    sight = read_dump(listed)
    assert [device.index for device in sight.devices] == [0, 2]
    assert "0000:65:00.0: Unknown Error" in sight.problem


@pytest.mark.parametrize(
    ("element", "sickness"),
    [
        ("<gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>", "requires a reset"),
        (
            "<ecc_errors><volatile><dram_uncorrectable>2</dram_uncorrectable></volatile></ecc_errors>",
            "2 uncorrected ECC",
        ),
        ("<ecc_errors><aggregate><dram_uncorrectable>2</dram_uncorrectable></aggregate></ecc_errors>", ""),
        ("<remapped_rows><remapped_row_failure>Yes</remapped_row_failure></remapped_rows>", "row remapping failed"),
        ("<gpu_recovery_action>Reboot</gpu_recovery_action>", "recovery action: Reboot"),
        ("<gpu_recovery_action>None</gpu_recovery_action>", ""),
        ("<compute_mode>Prohibited</compute_mode>", "compute mode is Prohibited"),
        ("<fb_memory_usage><total>[GPU is lost]</total></fb_memory_usage>", "GPU is lost"),
        ("<fb_memory_usage><total>[N/A]</total></fb_memory_usage>", ""),
    ],
)
def test_errors_of_a_card_are_its_health(element: str, sickness: str) -> None:
    text = f'<nvidia_smi_log><gpu id="0000:01:00.0"><uuid>GPU-1a</uuid>{element}</gpu></nvidia_smi_log>'
    (device,) = judged(nvidia_smi.read_xml(text)).inventory.devices
    assert sickness in device.reason
    assert device.health is (DeviceHealth.BAD if sickness else DeviceHealth.OK)


# --- AMD -----------------------------------------------------------------------------------------------------------


def test_amd_cards_are_known_by_their_unique_id_as_rocm_writes_it() -> None:
    assert usable(read_dump(text_of("amd/vega-10-XT.json")))[0].uuid == "GPU-0c2c8f14d225f681"
    assert usable(read_dump(text_of("amd/mi100_rocm602.json")))[1].uuid == "GPU-0932a582f295690c"
    assert [device.bus for device in usable(read_dump(text_of("amd/mi100_rocm571.json")))][:2] == [
        "0000:1e:00.0",
        "0000:22:00.0",
    ]


def test_a_carve_out_beside_a_card_is_no_device_and_alone_its_size_is_unknown() -> None:
    sight = read_dump(text_of("amd/rocm-smi-igpu.csv"))
    assert [device.unfit for device in sight.devices] == ["", "a graphics unit within a processor (64 MiB of its own)"]
    (halo,) = usable(read_dump(text_of("amd/rocm-strix-halo-gtt.csv")))
    assert halo.total_mib is None
    big = amd.read(
        "device,VRAM Total Memory (B),GTT Total Memory (B),GFX Version\ncard0,103079215104,16777216000,gfx1151\n"
    )
    assert big.devices[0].total_mib == 98304, "given 96 GiB for good, that is its memory"


def rocm(rows: dict[str, dict[str, str]]) -> str:
    return json.dumps({**rows, "system": {"Driver version": "6.10.5"}})


@pytest.mark.parametrize(
    ("reported_gib", "each_mib"),
    [(192, 24576), (24, 24576), (48, 24576)],
    ids=["whole card each", "own part", "a domain"],
)
def test_partitions_of_a_card_never_add_up_to_more_than_was_told_of_each(reported_gib: int, each_mib: int) -> None:
    row = {"Card Series": "AMD Instinct MI300X", "Compute Partition": "CPX", "Unique ID": "0xcee36ddc4255115"}
    row["VRAM Total Memory (B)"] = str(reported_gib << 30)
    sight = amd.read(rocm({f"card{n}": row for n in range(8)}))
    assert [device.total_mib for device in sight.devices] == [each_mib] * 8
    assert len({device.id for device in judged(sight).inventory.devices}) == 8


def test_hip_numbers_follow_the_nodes_of_kfd() -> None:
    one = {"VRAM Total Memory (B)": str(16 << 30)}
    sight = amd.read(rocm({"card1": {**one, "Node ID": "2"}, "card2": {**one, "Node ID": "1"}}))
    known_ = judged(sight)
    assert [known_.ordinals[device.id] for device in known_.inventory.devices] == [0, 1]
    assert [device.index for device in known_.inventory.devices] == [2, 1]


def test_amd_smi_is_read_from_several_answers() -> None:
    listing = [{"gpu": 0, "bdf": "0000:26:00.0", "uuid": "ccff74a1-0000-1000-80ce-e36ddc425511", "hip_id": 3}]
    static = {
        "gpu_data": [
            {
                "gpu": 0,
                "asic": {"market_name": "AMD Instinct MI300X OAM", "asic_serial": "0x0CEE36DDC4255115"},
                "vram": {"size": {"value": 196592, "unit": "MB"}},
                "partition": {"compute_partition": "SPX"},
            }
        ]
    }
    used = {"total_vram": {"value": 196592, "unit": "MB"}, "used_vram": {"value": 284, "unit": "MB"}}
    metric = [{"gpu": 0, "mem_usage": used, "ecc": {"total_uncorrectable_count": 1}}]
    info = {"name": "python", "pid": 77, "memory_usage": {"vram_mem": {"value": 1073741824, "unit": "B"}}}
    process = [{"gpu": 0, "process_list": [{"process_info": info}]}]
    (device,) = amd.read_amd_smi([listing, static, metric, process]).devices
    assert (device.uuid, device.bus, device.kind) == ("GPU-0cee36ddc4255115", "0000:26:00.0", "AMD Instinct MI300X OAM")
    assert (device.total_mib, device.used_mib, device.ordinal) == (196592, 284, 3)
    assert device.processes == (User(77, "python", 1024),)
    assert device.sickness == "1 uncorrected ECC errors"
    assert amd.read_amd_smi([{}]).problem


# --- Ascend --------------------------------------------------------------------------------------------------------


def test_chips_are_numbered_as_engines_number_them_and_hold_their_own_processes() -> None:
    known_ = judged(read_dump(text_of("ascend/npu-smi-910b3.txt")))
    first, second, *_ = known_.inventory.devices
    assert (first.foreign_mib, first.foreign_processes) == (31232, ("pid 20211 (python)",))
    assert (first.baseline_mib, second.baseline_mib, second.foreign_mib) == (3584, 3584, 0)
    a3 = judged(read_dump(text_of("ascend/npu-smi-a3-dual-chip.txt")))
    assert sorted(a3.ordinals.values()) == [0, 1, 2, 3]


@pytest.mark.parametrize(("health", "is_bad"), [("OK", False), ("Warning", False), ("Alarm", True), ("Critical", True)])
def test_a_warning_is_no_sickness_of_a_chip_and_an_alarm_is(health: str, is_bad: bool) -> None:
    text = text_of("ascend/npu-smi-910prob-32g.txt").replace("Warning ", health.ljust(8))
    assert bool(usable(read_dump(text))[0].sickness) is is_bad


# --- links and slices ----------------------------------------------------------------------------------------------


def test_links_are_read_by_column_whatever_separates_them() -> None:
    assert read_links(text_of("nvidia/topo-m-2gpu-blank-affinity.txt")) == {(0, 1): "NV12"}
    assert read_links(text_of("nvidia/topo-m-2x5090-phb.txt")) == {(0, 1): "PHB"}, "not the second matrix"
    four = read_links(text_of("nvidia/topo-m-4gpu-26nic-spaces.txt"))
    assert four == {(a, b): "NV12" for a in range(4) for b in range(a + 1, 4)}
    assert read_links(text_of("nvidia/h100-mig.L-topo-table.txt")) == {}
    coloured = "\x1b[4mGPU0\tGPU1\tCPU Affinity\x1b[0m\nGPU0\t X \tSYS\t0-9\nGPU1\tSYS\t X \t0-9\n"
    assert read_links(coloured) == {(0, 1): "SYS"}


def test_slice_profiles_tell_what_could_still_be_made() -> None:
    taken = read_slice_profiles(text_of("nvidia/mig-lgip-0-free.txt"))
    assert [(p.name, p.free, p.total) for p in taken] == [
        ("1g.10gb", 0, 7),
        ("1g.10gb+me", 0, 1),
        ("2g.20gb", 0, 3),
        ("3g.40gb", 0, 2),
    ]
    free = read_slice_profiles(text_of("nvidia/mig-lgip-gh200-free.txt"))
    assert {p.name: (p.free, p.memory_mib) for p in free}["1g.36gb"] == (4, 36096)


@pytest.mark.parametrize("name", ["topology_output_nvidia_h100", "topology_output_ascend_910b2"])
def test_a_matrix_of_distances_is_no_list_of_devices(name: str) -> None:
    assert read_dump(text_of(f"normalized/{name}.json")).devices == ()


# --- declared by a detector's output -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.startswith(("normalized/", "inventory/"))])
def test_a_detectors_output_may_declare_a_nodes_devices(name: str) -> None:
    devices = declared_devices(parse_declared(str(HARDWARE / name)), "machine", "n1")
    assert [(d.index, d.kind, d.memory_mib) for d in devices] == [row[:3] for row in EXPECTED[name]]
    assert len({device.id for device in devices}) == len(devices)
    assert {device.vendor for device in devices} <= {"nvidia", "amd", "ascend", "apple"}


# --- figures and words ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "[N/A]",
        "N/A",
        "n/a",
        "",
        "  ",
        "-",
        "[Not Supported]",
        "[Unknown Error]",
        "[Insufficient Permissions]",
        "ERR!",
        None,
    ],
)
def test_unknown_in_every_spelling_is_neither_zero_nor_a_figure(text: str | None) -> None:
    assert known(text) is None
    assert mib(text, "B") is None


@pytest.mark.parametrize(
    ("text", "unit", "figure"),
    [
        ("81559 MiB", "", 81559),
        ("3386MB", "", 3386),
        ("17163091968", "B", 16368),
        ("1.5 GB", "", 1536),
        ("8x", "", None),
    ],
)
def test_figures_are_whole_mib(text: str, unit: str, figure: int | None) -> None:
    assert mib(text, unit) == figure


@pytest.mark.parametrize("text", ["00000000:5D:00.0", "0000:5D:00.0", "5d:00.0", "0:5D:0.0"])
def test_a_place_on_the_bus_has_one_spelling(text: str) -> None:
    assert bus_id(text) == "0000:5d:00.0"


# --- judging -------------------------------------------------------------------------------------------------------

CARD = Seen(0, "H100", "nvidia", uuid="GPU-1a", total_mib=80000)


def with_use(used: int | None, *users: User, reserved: int = 0) -> Sight:
    return Sight((Seen(0, "H100", "nvidia", "GPU-1a", "", 80000, used, reserved, users),))


@pytest.mark.parametrize(
    ("sight", "foreign_mib", "baseline_mib"),
    [
        (with_use(600, reserved=480), 0, 1280),
        (with_use(6000), 0, 6144),
        (with_use(20000), 20224, 0),
        (with_use(20000, User(7, "python", 19000)), 19200, 1024),
        (with_use(700, User(7, "dwm", None)), 768, 0),
        (with_use(None, User(7, "python", 300)), 512, 0),
        (with_use(None), 0, 0),
    ],
    ids=[
        "driver",
        "a great baseline",
        "somebody unseen",
        "a process",
        "a process of unknown size",
        "no sum",
        "nothing told",
    ],
)
def test_memory_of_others_comes_apart_into_what_is_held_and_what_is_never_to_be_had(
    sight: Sight, foreign_mib: int, baseline_mib: int
) -> None:
    (device,) = judged(sight).inventory.devices
    assert (device.foreign_mib, device.baseline_mib) == (foreign_mib, baseline_mib)


def test_our_own_engine_is_never_foreign_and_does_not_raise_the_baseline() -> None:
    before = judged(with_use(900))
    ours = judged(with_use(70000, User(5, "vllm", 60000)), before, claimed=["GPU-1a"], whose=lambda _: Whose.OURS)
    hidden = judged(with_use(70000), before, claimed=["GPU-1a"])
    elsewhere = judged(with_use(70000, User(5, "", 60000)), before, claimed=["GPU-1a"], whose=lambda _: Whose.UNSEEN)
    assert ours.inventory == hidden.inventory == elsewhere.inventory == before.inventory
    intruder = judged(with_use(75000, User(6, "miner", 5000)), before, claimed=["GPU-1a"])
    assert intruder.inventory.devices[0].foreign_processes == ("pid 6 (miner)",)


def test_memory_of_the_dead_is_held_by_somebody_once_the_device_is_nobodys() -> None:
    (device,) = judged(with_use(3000, User(9, "", 2900)), whose=lambda _: Whose.UNSEEN).inventory.devices
    assert (device.foreign_mib, device.foreign_processes) == (3072, ("pid 9",))


def test_what_breathes_makes_no_news() -> None:
    told = stepped(1000, 0)
    assert told == 1024
    for breath in (1020, 800, 1024, 600):
        assert stepped(breath, told) == told
    assert stepped(1025, told) == 1280
    assert stepped(told - 2 * STEP_MIB, told) == 512


def test_the_operators_size_stands_over_the_tools() -> None:
    sight = read_dump(text_of("nvidia/gb10.index-name.query.csv"))
    (device,) = judge(sight, Holding(foreign), Known(), "m", {"NVIDIA GB10": 112640}).inventory.devices
    assert device.memory_mib == 112640


@pytest.mark.parametrize(
    ("sight", "on_bus", "problem"),
    [
        (None, 0, ""),
        (None, 8, "shows 8 nvidia devices, and no driver or tool tells of them"),
        (Sight(), 2, "shows 2 nvidia devices, the driver 0"),
        (Sight((CARD,)), 1, ""),
        (Sight((CARD,)), 2, "shows 2 nvidia devices, the driver 1"),
    ],
    ids=["no such machine", "driver not up yet", "none found yet", "all there", "one fell off the bus"],
)
def test_what_the_bus_shows_and_no_tool_tells_of_is_a_failed_look_not_an_empty_machine(
    sight: Sight | None, on_bus: int, problem: str
) -> None:
    assert problem in complete("nvidia", sight, on_bus).problem
    assert bool(complete("nvidia", sight, on_bus).problem) is bool(problem)
