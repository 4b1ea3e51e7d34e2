"""How tools of other versions, and sick ones, print: each output, what is told of it, and what must stay unknown.

Forms as public documents and reports show them; the figures are ours.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agent.devices import Holding, Known, Whose, judge
from agent.inventory import sources
from agent.inventory.dumps import read_dump
from agent.inventory.nvml import NvmlReader
from agent.inventory.seen import MOST_MIB, Seen, Sight, User, mib, sober
from agent.inventory.sources import Machine
from agent.proc import host_memory_mib
from llmgw.wire import DeviceHealth
from tests.agent.test_device_sources import MIB, Card, Nvml

HEAD = "index, name, uuid, memory.total [MiB], memory.used [MiB]\n"
TABLE_HEAD = (
    "+-----------------------------------------------------------------------------+\n"
    "| NVIDIA-SMI 535.161.07   Driver Version: 535.161.07   CUDA Version: 12.2     |\n"
    "|-------------------------------+----------------------+----------------------+\n"
)
TABLE_END = "+-------------------------------+----------------------+----------------------+\n"

Row = tuple[int, str, int | None, int | None, str]
"""(index, kind, total MiB, used MiB, what is wrong)."""


def rows(sight: Sight) -> list[Row]:
    return [(d.index, d.kind, d.total_mib, d.used_mib, d.sickness) for d in sight.devices if not d.unfit]


def test_a_fault_in_one_cell_is_that_cards_and_the_others_are_told() -> None:
    sight = read_dump(
        HEAD + "0, A100, GPU-a0, 40960 MiB, 3 MiB\n"
        "1, A100, GPU-a1, [Unknown Error], [Unknown Error]\n"
        "2, A100, GPU-a2, [GPU is lost], [GPU is lost]\n"
        "3, A100, GPU-a3, 40960 MiB, [Insufficient Permissions]\n"
        "4, A100, GPU-a4, [N/A], [Not Supported]\n"
    )
    assert rows(sight) == [
        (0, "A100", 40960, 3, ""),
        (1, "A100", None, None, "Unknown Error"),
        (2, "A100", None, None, "GPU is lost"),
        (3, "A100", 40960, None, ""),
        (4, "A100", None, None, ""),
    ]
    assert sight.problem == ""


@pytest.mark.parametrize(
    ("text", "told", "problem"),
    [
        ("0, A100, GPU-a0, 81,559 MiB, 3 MiB\n", [(0, "", None, None, "")], "1 rows do not have the 5 cells"),
        ("0, A100, GPU-a0, 81.559 MiB, 3 MiB\n", [(0, "A100", None, 3, "")], ""),
        ("0, A100, GPU-a0, 81559, 3\n", [(0, "A100", 81559, 3, "")], ""),
        ("0, A100, GPU-a0, 81559 MiB\n", [(0, "", None, None, "")], "1 rows do not have the 5 cells"),
        ("0, A100, GPU-a0, 81559 MiB, 3 MiB\n1, A100, GPU-a1, 81\n", [], "1 rows do not have"),
        ("0, A100, GPU-a0, 81559 MiB, 3 MiB\n1, A100, GPU-a1, 81559 MiB, 3", [], ""),
        ("", [], "told no card"),
    ],
    ids=["comma", "point", "no units", "a cell short", "cut in a row", "cut in a figure", "header alone"],
)
def test_a_row_whose_figures_may_have_moved_keeps_none(text: str, told: list[Row], problem: str) -> None:
    sight = read_dump(HEAD + text)
    assert problem in sight.problem
    assert bool(problem) is bool(sight.problem)
    if told:
        assert rows(sight) == told
    elif len(sight.devices) == 2:
        assert sight.devices[0].total_mib == 81559
        assert sight.devices[1].used_mib is None


def test_columns_are_known_by_the_header_in_any_order_and_figures_that_cannot_be_are_told_as_such() -> None:
    head = "memory.used [MiB], memory.total [MiB], uuid, name, index\n"
    assert rows(read_dump(head + "3 MiB, 81559 MiB, GPU-a0, A100, 4\n")) == [(4, "A100", 81559, 3, "")]
    ((_, _, total, used, sickness),) = rows(read_dump(head + "81559 MiB, 3 MiB, GPU-a0, A100, 4\n"))
    assert (total, used) == (None, None)
    assert "81559 MiB in use of 3" in sickness


@pytest.mark.parametrize("noise", ["WARNING: infoROM is corrupted at gpu 0000:65:00.0\n", "user@gpu07:~$ nvidia-smi\n"])
def test_what_stands_before_and_behind_a_csv_is_no_row(noise: str) -> None:
    text = noise + HEAD + "0, A100, GPU-a0, 40960 MiB, 3 MiB\n" + noise
    assert rows(read_dump(text)) == [(0, "A100", 40960, 3, "")]


def test_an_output_that_is_printed_again_tells_each_card_once_as_it_was_last() -> None:
    again = HEAD + "0, A100, GPU-a0, 40960 MiB, 3 MiB\n0, A100, GPU-a0, 40960 MiB, 5 MiB\n"
    assert rows(read_dump(again)) == [(0, "A100", 40960, 5, "")]


def test_a_csv_without_header_tells_nothing_and_a_card_out_of_reach_is_a_problem() -> None:
    assert "no list of devices" in read_dump("0, A100, GPU-1a2b, 40960 MiB, 3 MiB\n").problem
    lost = HEAD + "0, A100, GPU-a0, 40960 MiB, 3 MiB\n"
    lost += "Unable to determine the device handle for GPU0000:65:00.0: Unknown Error\n"
    sight = read_dump(lost)
    assert len(sight.devices) == 1
    assert "0000:65:00.0" in sight.problem


def test_health_columns_of_a_csv_are_its_health() -> None:
    head = "index, uuid, remapped_rows.failure, compute_mode, fan.speed [%]\n"
    text = (
        head
        + "0, GPU-a0, Yes, Default, 30 %\n1, GPU-a1, No, Prohibited, 30 %\n2, GPU-a2, No, Default, [Unknown Error]\n"
    )
    assert [d.sickness for d in read_dump(text).devices] == ["row remapping failed", "compute mode is Prohibited", ""]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            "|   0  GeForce GTX 1070    Off  | 00000000:03:00.0  On |                  N/A |\n"
            "|ERR!   43C    P8     9W / 250W |   8040MiB /  8111MiB |      0%      Default |\n",
            (0, "GeForce GTX 1070", 8111, 8040, ""),
        ),
        (
            "|   1  Tesla V100-SXM2...  On   | 00000000:04:00.0 Off |                 ERR! |\n"
            "|ERR!  ERR! ERR!    ERR! / ERR! |     16MiB / 16160MiB |    ERR!         ERR! |\n",
            (1, "Tesla V100-SXM2", 16160, 16, "ERR!"),
        ),
        (
            "|   0  NVIDIA GB10         On   | 0000000F:01:00.0 Off |                  N/A |\n"
            "|ERR!   35C    P8    N/A /  N/A | Not Supported        |    N/A       Default |\n"
            "|                               |                      |                 ERR! |\n",
            (0, "NVIDIA GB10", None, None, "ERR!"),
        ),
        (
            "|   0  NVIDIA GB10         On   | 0000000F:01:00.0 Off |                  N/A |\n"
            "| N/A   35C    P8     4W /  N/A | Not Supported        |      0%      Default |\n"
            "|                               |                      |                  N/A |\n",
            (0, "NVIDIA GB10", None, None, ""),
        ),
    ],
    ids=["a fan out of order", "a card out of order", "wants a reset", "unified memory"],
)
def test_err_in_the_table_is_a_sickness_where_it_is_the_cards_own(lines: str, told: Row) -> None:
    sight = read_dump(TABLE_HEAD + lines + TABLE_END)
    assert rows(sight) == [told]
    assert sight.problem == ""


def test_a_module_without_a_bus_and_with_the_machines_memory_is_a_device_of_unknown_size() -> None:
    row = (
        "|   0  Orin (nvgpu)             N/A  | N/A              N/A |                  N/A |\n"
        "| N/A   N/A  N/A       N/A /  N/A    | Not Supported        |     N/A          N/A |\n"
    )
    sight = read_dump(TABLE_HEAD + row + TABLE_END)
    assert rows(sight) == [(0, "Orin (nvgpu)", None, None, "")]
    assert sight.problem == ""


def test_a_table_that_breaks_off_is_a_problem() -> None:
    line = "|   0  GeForce GTX 1070    Off  | 00000000:03:00.0  On |                  N/A |\n"
    for cut in (TABLE_HEAD + line, TABLE_HEAD + line + TABLE_END[:20], TABLE_HEAD):
        assert read_dump(cut).problem


Q_TEXT = """
==============NVSMI LOG==============

Driver Version                            : 570.158.01
Attached GPUs                             : 2
GPU 00000000:04:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    MIG Mode
        Current                           : Disabled
    GPU UUID                              : GPU-1ffe36ef
    GPU Reset Status
        Reset Required                    : No
    FB Memory Usage
        Total                             : 81559 MiB
        Reserved                          : 551 MiB
        Used                              : 2048 MiB
    BAR1 Memory Usage
        Total                             : 131072 MiB
    ECC Errors
        Volatile
            DRAM Uncorrectable            : 0
        Aggregate
            DRAM Uncorrectable            : 5
    Remapped Rows
        Remapping Failure Occurred        : No
    Processes
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 4711
            Type                          : C
            Name                          : python
            Used GPU Memory               : 1500 MiB
GPU 00000000:05:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    MIG Mode
        Current                           : Enabled
    MIG Devices
        MIG Device
            Index                         : 0
            GPU Instance ID               : 1
            Compute Instance ID           : 0
            FB Memory Usage
                Total                     : 40448 MiB
                Used                      : 11091 MiB
        MIG Device
            Index                         : 1
            GPU Instance ID               : 5
            Compute Instance ID           : 0
            FB Memory Usage
                Total                     : 20096 MiB
                Used                      : 17 MiB
    GPU UUID                              : GPU-2ffe36ef
    FB Memory Usage
        Total                             : 81559 MiB
        Used                              : 11108 MiB
    Processes
        GPU instance ID                   : 1
        Compute instance ID               : 0
        Process ID                        : 99
            Name                          : python
            Used GPU Memory               : 11000 MiB
"""


def test_the_text_of_nvidia_smi_q_is_read_as_its_xml() -> None:
    sight = read_dump(Q_TEXT)
    assert rows(sight) == [
        (0, "NVIDIA H100 80GB HBM3", 81559, 2048, ""),
        (1, "MIG", 40448, 11091, ""),
        (1, "MIG", 20096, 17, ""),
    ]
    whole, _, first, second = sight.devices
    assert (whole.uuid, whole.bus, whole.reserved_mib) == ("GPU-1ffe36ef", "0000:04:00.0", 551)
    assert whole.processes == (User(4711, "python", 1500),)
    assert (first.processes, second.processes) == ((User(99, "python", 11000),), ())
    assert sight.problem == ""


@pytest.mark.parametrize(
    ("was", "becomes", "sickness"),
    [
        ("DRAM Uncorrectable            : 0", "DRAM Uncorrectable            : 3", "3 uncorrected ECC errors"),
        ("Reset Required                    : No", "Reset Required                    : Yes", "requires a reset"),
        ("Failure Occurred        : No", "Failure Occurred        : Yes", "row remapping failed"),
        (
            "Total                             : 81559 MiB\n        Reserved",
            "Total : Unknown Error\n        Reserved",
            "Unknown Error",
        ),
        ("Total                             : 81559 MiB\n        Reserved", "Total : N/A\n        Reserved", ""),
    ],
)
def test_what_the_text_says_of_health_is_health(was: str, becomes: str, sickness: str) -> None:
    assert was in Q_TEXT
    first = read_dump(Q_TEXT.replace(was, becomes, 1)).devices[0]
    assert sickness in first.sickness
    assert bool(first.sickness) is bool(sickness)


def test_a_text_with_fewer_cards_than_it_says_are_attached_is_cut() -> None:
    sight = read_dump(Q_TEXT[: Q_TEXT.index("GPU 00000000:05")])
    assert len(sight.devices) == 1
    assert "tells 1 of 2 attached cards" in sight.problem


def test_a_list_whose_line_is_cut_is_a_problem() -> None:
    sight = read_dump("GPU 0: A100 (UUID: GPU-a0)\nGPU 1: A100 (UUID: GPU-a")
    assert [d.uuid for d in sight.devices] == ["GPU-a0"]
    assert "GPU 1" in sight.problem


def test_double_bit_errors_of_old_drivers_are_uncorrected_errors() -> None:
    ecc = "<ecc_errors><volatile><double_bit><total>2</total></double_bit></volatile></ecc_errors>"
    (card,) = read_dump(
        f'<nvidia_smi_log><gpu id="0000:01:00.0"><uuid>GPU-1a</uuid>{ecc}</gpu></nvidia_smi_log>'
    ).devices
    assert "2 uncorrected" in card.sickness


# --- NVML ----------------------------------------------------------------------------------------------------------


def test_figures_that_nvml_cannot_mean_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = 2**64 - 1
    cards = [
        Card("GPU-a", memory=none, used=none),
        Card("GPU-b", memory=80 * 1024 * MIB, used=90 * 1024 * MIB),
        Card("GPU-c", memory=80 * 1024 * MIB, used=1024 * MIB, processes=[(2**22 + 7, none)]),
        Card("GPU-d", memory=0, used=0),
    ]
    sight = sober(NvmlReader(Nvml(cards)).read())
    assert [(d.total_mib, d.used_mib) for d in sight.devices] == [
        (None, None),
        (None, None),
        (81920, 1024),
        (None, None),
    ]
    assert sight.devices[2].processes == (User(2**22 + 7, "", None),)
    assert [bool(d.sickness) for d in sight.devices] == [True, True, False, False]


def test_a_tool_that_answers_what_nobody_foresaw_is_a_failed_look_of_its_own_vendor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Odd(Nvml):
        def nvmlDeviceGetMigMode(self, card: Card) -> tuple[int, int]:  # noqa: N802
            return 1  # type: ignore[return-value]

    monkeypatch.setattr(sources, "load_nvml", lambda: Odd([Card("GPU-a")]))
    monkeypatch.setattr(sources, "devices_on_bus", dict)
    rocm = tmp_path / "rocm-smi"
    rocm.write_text("#!/bin/sh\necho '" + json.dumps({"card0": {"VRAM Total Memory (B)": str(16 << 30)}}) + "'\n")
    rocm.chmod(0o755)
    look = Machine(str(tmp_path)).look()
    assert [d.total_mib for d in look.devices] == [16384]
    assert "nvidia tool" in look.problem


# --- AMD -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "gpu,total_vram,used_vram,free_vram,total_visible_vram,total_gtt,used_gtt\n0,32752,8192,24560,256,32119,755\n",
            [(0, "", 32752, 8192, "")],
        ),
        (
            'WARNING: the user is not in group render\n[\n  {"gpu": 1, "mem_usage": {"total_vram": {"value": 196592,'
            ' "unit": "MB"}, "used_vram": {"value": 49148, "unit": "MB"}}}]',
            [(1, "", 196592, 49148, "")],
        ),
        ('{"gpu_data": [{"gpu": 0, "mem_usage": {"total_vram": {"value": "16384"}}}]}', [(0, "", 16384, None, "")]),
        ('[{"gpu": 0, "mem_usage": {"total_vram": "N/A", "used_vram": "N/A"}}]', [(0, "", None, None, "")]),
        ("gpu,power_usage,vram_used,vram_total\n0,142,283,196592\n", [(0, "", 196592, 283, "")]),
        (
            '[{"gpu": 0, "vram_used": {"value": 283, "unit": "MB"}, "vram_total": {"value": 16185, "unit": "MB"}}]',
            [(0, "", 16185, 283, "")],
        ),
        (
            "GPU: 0\n    ASIC:\n        MARKET_NAME: AMD Instinct MI350X\n        ASIC_SERIAL: 0x0CEE36DDC4255115\n"
            "    VRAM:\n        TYPE: HBM3E\n        SIZE: 294896 MB\n\nGPU: 1\n    VRAM:\n        SIZE: N/A\n",
            [(0, "AMD Instinct MI350X", 294896, None, ""), (1, "", None, None, "")],
        ),
        (
            "GPU[0]\t\t: VRAM Total Memory (B): 34342961152\nGPU[0]\t\t: VRAM Total Used Memory (B): 7028736\n"
            "ERROR: GPU[1] \t\t: Unable to get GPU memory use.\n",
            [(0, "AMD", 32752, 6, ""), (1, "AMD", None, None, "")],
        ),
        (
            "WARNING: AMD GPU device(s) is/are in a low-power state.\n\n"
            "device,GPU use (%),VRAM Total Memory (B),VRAM Total Used Memory (B),Card Series\n"
            "card0,0,21458059264,27856896,Radeon RX 7900 XT\n",
            [(0, "Radeon RX 7900 XT", 20464, 26, "")],
        ),
        (
            'WARNING: {low power}\n\n{"card0": {"VRAM Total Memory (B)": "21458059264", "Card Series": "X"}}\nBye\n',
            [(0, "X", 20464, None, "")],
        ),
    ],
    ids=[
        "amd-smi csv",
        "warned list",
        "gpu_data",
        "N/A",
        "monitor csv",
        "monitor json",
        "amd-smi text",
        "rocm-smi lines",
        "warned csv",
        "warned json",
    ],
)
def test_amd_tools_of_every_version_are_read(text: str, told: list[Row]) -> None:
    sight = read_dump(text)
    assert rows(sight) == told
    assert sight.problem == ""


@pytest.mark.parametrize(
    "text",
    [
        "device,VRAM Total Memory (B),VRAM Total Used Memory (B)\ncard0,21458059264,27856896\ncard1,21458059264\n",
        "gpu,total_vram,used_vram\n0,20464,26\n1,20464,26,7\n",
    ],
)
def test_a_row_of_an_amd_csv_whose_figures_may_have_moved_keeps_none(text: str) -> None:
    sight = read_dump(text)
    assert [d.total_mib for d in sight.devices] == [20464, None]
    assert "1 rows do not have the 3 cells" in sight.problem


@pytest.mark.parametrize(
    "text",
    [
        '[{"gpu": 0, "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}}},\n {"gpu": 1, "mem_us',
        '{"card0": {"VRAM Total Memory (B)": "21458059264"}, "card1": {"VRAM',
        "WARNING: No JSON data to report\n",
        "ERROR:root:Driver not initialized (amdgpu not found in modules)\n",
        "",
    ],
)
def test_an_amd_output_that_is_cut_or_none_is_a_problem_and_no_part_of_it_is_taken_for_all(text: str) -> None:
    sight = read_dump(text)
    assert sight.devices == ()
    assert sight.problem


def test_a_graphics_unit_in_a_processor_is_known_by_its_name_where_the_tool_tells_no_other() -> None:
    head = "device,VRAM Total Memory (B),GTT Total Memory (B),Card Series\n"
    text = head + f"card0,{4 << 30},{16 << 30},AMD Radeon 780M\ncard1,{16 << 30},{32 << 30},Radeon RX 7800 XT\n"
    assert rows(read_dump(text)) == [(1, "Radeon RX 7800 XT", 16384, None, "")]


def test_amd_smi_is_asked_where_rocm_smi_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "load_nvml", lambda: None)
    monkeypatch.setattr(sources, "devices_on_bus", dict)
    listing = json.dumps([{"gpu": 0, "vram": {"size": {"value": 16368, "unit": "MB"}}}])
    for name, body in (("rocm-smi", "echo 'WARNING: No JSON data to report'"), ("amd-smi", f"echo '{listing}'")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    look = Machine(str(tmp_path)).look()
    assert ([d.total_mib for d in look.devices], look.problem) == ([16368], "")
    (tmp_path / "amd-smi").write_text("#!/bin/sh\necho 'ERROR: no permission'; exit 1\n")
    assert "No JSON data" in Machine(str(tmp_path)).look().problem


# --- Ascend, Apple -------------------------------------------------------------------------------------------------

NPU_HEAD = """+-------------------------------+-----------------+------------------------------------------------------+
| npu-smi 23.0.0                                   Version: 23.0.0                                       |
+-------------------------------+-----------------+------------------------------------------------------+
| NPU     Name                  | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |
+===============================+=================+======================================================+
"""
BOARD = """| 0       310B4                 | Alarm           | 0.0          45                15    / 15            |
| 0       0                     | NA              | 0            1676 / 11577                            |
"""
DUO = """| 32      310P3                 | OK              | NA           46                0    / 0              |
| 0       0                     | 0000:AF:00.0    | 0            934  / 44216                            |
+-------------------------------+-----------------+------------------------------------------------------+
| 32      310P3                 | OK              | NA           45                0    / 0              |
| 1       1                     | 0000:AF:00.0    | 0            935  / 43693                            |
"""
NPU_END = "+===============================+=================+======================================================+\n"


def test_chips_without_a_place_on_a_bus_and_chips_that_share_one_are_chips() -> None:
    assert rows(read_dump(NPU_HEAD + BOARD + NPU_END)) == [(0, "310B4", 11577, 1676, "health Alarm")]
    duo = read_dump(NPU_HEAD + DUO + NPU_END)
    assert rows(duo) == [(0, "310P3", 44216, 934, ""), (1, "310P3", 43693, 935, "")]
    known = judge(duo, Holding(lambda _: Whose.FOREIGN), Known(), "machine", {})
    assert len({device.id for device in known.inventory.devices}) == 2


@pytest.mark.parametrize(
    "text",
    [
        NPU_HEAD + DUO.splitlines(keepends=True)[0] + DUO.splitlines(keepends=True)[3] + NPU_END,
        NPU_HEAD + DUO[:-60],
        NPU_HEAD + DUO,
        NPU_HEAD,
    ],
    ids=["a card without chip", "cut in a row", "no end", "nothing"],
)
def test_a_table_of_npus_that_is_not_whole_is_a_problem(text: str) -> None:
    sight = read_dump(text)
    assert sight.problem
    assert {device.total_mib for device in sight.devices} <= {44216, 43693}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "Graphics/Displays:\n\n    Apple M1 Max:\n\n      Chipset Model: Apple M1 Max\n      Type: GPU\n",
            ["Apple M1 Max"],
        ),
        ('a warning\n{"SPDisplaysDataType": [{"_name": "kHW", "sppci_model": "Apple M2 Ultra"}]}', ["Apple M2 Ultra"]),
        ('{"SPDisplaysDataType": [{"sppci_model": "AMD Radeon Pro 5500M", "spdisplays_vram": "8 GB"}]}', []),
        ('{"SPDisplaysDataType": [{"sppci_model": "Apple M2 Ultra"}', None),
    ],
)
def test_a_mac_tells_its_own_graphics_unit_and_no_size(text: str, names: list[str] | None) -> None:
    sight = read_dump(text)
    assert [d.kind for d in sight.devices] == (names or [])
    assert {d.total_mib for d in sight.devices} <= {None}
    assert bool(sight.problem) is (names is None)


# --- figures, the machine's own memory -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "figure"),
    [
        ("81.559 MiB", None),
        ("81,559 MiB", None),
        ("81 559 MiB", None),
        ("17.163.091.968", None),
        ("9" * 400, None),
        ("191.984 GB", 196591),
        ("80.5 GiB", 82432),
        ("1e9 MiB", None),
        ("-5 MiB", None),
        ("81559 Mi", None),
    ],
)
def test_a_figure_that_may_mean_two_things_means_none(text: str, figure: int | None) -> None:
    assert mib(text) == figure


def test_memory_no_device_has_is_unknown_and_the_device_is_bad() -> None:
    device = Seen(0, "H100", "nvidia", "GPU-1a", total_mib=MOST_MIB + 1, used_mib=7)
    known = judge(sober(Sight((device,))), Holding(lambda _: Whose.FOREIGN), Known(), "machine", {})
    (row,) = known.inventory.devices
    assert (row.memory_mib, row.health) == (None, DeviceHealth.BAD)
    assert "told as" in row.reason
    assert sober(Sight((replace(device, total_mib=81920),))).devices[0].total_mib == 81920


@pytest.mark.parametrize(
    ("meminfo", "limits", "expected"),
    [
        ("MemTotal:       263856496 kB\nMemFree: 1 kB\n", {}, 257672),
        ("MemFree: 1 kB\n", {}, None),
        ("MemTotal:\n", {}, None),
        ("MemTotal: lots kB\n", {}, None),
        ("MemTotal: 0 kB\n", {}, None),
        (None, {}, None),
        ("MemTotal:       263856496 kB\n", {"a": "max", "a/b": "34359738368"}, 32768),
        ("MemTotal:       263856496 kB\n", {"a": "17179869184", "a/b": "34359738368"}, 16384),
        ("MemTotal:       263856496 kB\n", {"a/b": "9223372036854771712"}, 257672),
        ("MemTotal:       263856496 kB\n", {"a/b": "unreadable"}, 257672),
    ],
)
def test_main_memory_is_what_the_kernel_tells_and_no_more_than_this_agents_own_limit(
    tmp_path: Path, meminfo: str | None, limits: dict[str, str], expected: int | None
) -> None:
    proc, mount = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (mount / "a/b").mkdir(parents=True)
    if meminfo is not None:
        (proc / "meminfo").write_text(meminfo)
    (proc / "self/cgroup").write_text("0::/a/b\n")
    (proc / "self/mountinfo").write_text(f"30 25 0:26 / {mount} rw,nosuid - cgroup2 cgroup2 rw\n")
    for folder, limit in limits.items():
        (mount / folder / "memory.max").write_text(limit + "\n")
    assert host_memory_mib(proc) == expected
