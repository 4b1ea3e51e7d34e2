"""The tables that `amd-smi` prints for people, of several versions, whole, cut and with cards out of order.

Forms as public reports show them; the figures are ours.
"""

import pytest

from agent.inventory.dumps import read_dump
from agent.inventory.seen import Sight

HEAD = """+------------------------------------------------------------------------------+
| AMD-SMI 26.0.2+39589fda      amdgpu version: Linuxver ROCm version: 7.0.2    |
| VBIOS version: 00107962                                                      |
| Platform: Linux Baremetal                                                    |
|-------------------------------------+----------------------------------------|
| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |
| GPU  HIP-ID  OAM-ID  Partition-Mode | GFX-Uti    Fan               Mem-Usage |
|=====================================+========================================|
"""
LINE = "|-------------------------------------+----------------------------------------|\n"
END = "+-------------------------------------+----------------------------------------+\n"
USERS = """+------------------------------------------------------------------------------+
| Processes:                                                                   |
|  GPU        PID  Process Name          GTT_MEM  VRAM_MEM  MEM_USAGE     CU % |
|==============================================================================|
|    0     213952  python3.12             7.9 MB   19.6 GB    20.1 GB  N/A     |
|    1       5300  N/A                     0.0 B     0.0 B      0.0 B  N/A     |
+------------------------------------------------------------------------------+
"""
WHOLE = """| 0000:26:00.0 ...Instinct MI325X OAM | 0 %      41 °C   3          141/1000 W |
|   2       5       6        SPX/NPS1 | 0 %        N/A        149820/262128 MB |
"""
FIRST_OF_TWO = """| 0000:05:00.0    AMD Instinct MI300X | 0 %      40 °C   0           142/750 W |
|   0       0       7        DPX/NPS1 | 0 %        N/A           283/196592 MB |
"""
SECOND_OF_TWO = """| 0000:05:00.1    AMD Instinct MI300X | N/A        N/A   0                 N/A |
|   1       1     N/A             N/A | N/A        N/A            492/98296 MB |
"""
RADEON = """| 0000:04:00.0  AMD Radeon RX 9070 XT | 0 %      41 °C   0            16/304 W |
|   0       0     N/A             N/A | 0 %      0.0 %             84/16304 MB |
"""
GRAPHICS = """| 0000:c5:00.0    AMD Radeon Graphics | N/A        N/A   0             N/A/0 W |
|   1       1     N/A             N/A | N/A        N/A              161/512 MB |
"""


def told(sight: Sight) -> list[tuple[int, int | None, str, int | None, int | None, str]]:
    """(index, HIP's number, kind, total, used, what is wrong) of what is there to run on."""
    return [(d.index, d.ordinal, d.kind, d.total_mib, d.used_mib, d.sickness) for d in sight.devices if not d.unfit]


def test_the_default_table_tells_cards_partitions_and_processes() -> None:
    sight = read_dump(HEAD + FIRST_OF_TWO + LINE + SECOND_OF_TWO + LINE + WHOLE + END + USERS)
    assert told(sight) == [
        (0, 0, "AMD Instinct MI300X", 98296, 283, ""),
        (1, 1, "AMD Instinct MI300X", 98296, 492, ""),
        (2, 5, "Instinct MI325X OAM", 262128, 149820, "3 uncorrected ECC errors"),
    ]
    assert [d.bus for d in sight.devices] == ["0000:05:00.0", "0000:05:00.1", "0000:26:00.0"]
    assert [[(u.pid, u.name, u.mib) for u in d.processes] for d in sight.devices] == [
        [(213952, "python3.12", 20070)],
        [(5300, "", 0)],
        [],
    ]
    assert sight.problem == ""


@pytest.mark.parametrize("change", [str, lambda t: t.replace("\n", "\r\n"), lambda t: "user@host:~$ amd-smi\n" + t])
def test_a_graphics_unit_beside_a_card_is_left_out(change: type[str]) -> None:
    sight = read_dump(change(HEAD + RADEON + LINE + GRAPHICS + END))
    assert told(sight) == [(0, 0, "AMD Radeon RX 9070 XT", 16304, 84, "")]
    assert sight.problem == ""


@pytest.mark.parametrize(
    ("text", "totals", "problem"),
    [
        (HEAD + FIRST_OF_TWO + LINE + SECOND_OF_TWO.splitlines()[0], [98296], "nothing more is told of 0000:05:00.1"),
        (HEAD + FIRST_OF_TWO + LINE, [98296], "breaks off"),
        (HEAD + RADEON.splitlines()[0] + "\n" + LINE + WHOLE + END, [262128], "nothing more is told of 0000:04:00.0"),
        (HEAD + END, [], "told no GPU"),
    ],
    ids=["cut in a card", "cut between cards", "a line lost", "no card"],
)
def test_a_table_that_is_not_whole_is_a_problem_and_a_partition_never_the_whole_card(
    text: str, totals: list[int], problem: str
) -> None:
    sight = read_dump(text)
    assert [device.total_mib for device in sight.devices] == totals
    assert problem in sight.problem


MONITOR = (
    "GPU  POWER  GPU_TEMP  GFX_UTIL     THROTTLE  SINGLE_ECC  DOUBLE_ECC  PCIE_REPLAY  VRAM_USED  VRAM_TOTAL\n\n"
    "  0   11 W     43 °C      84 %  UNTHROTTLED           0           2            0     227 MB    25476 MB\n"
)
CROWD = "GPU  POWER  VRAM_USED  VRAM_TOTAL\n" + "".join(f"{n:3}  248 W     283 MB   196300 MB\n" for n in range(16))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MONITOR, [(0, 0, "", 25476, 227, "2 uncorrected ECC errors")]),
        (
            "GPU  VRAM_USED   VRAM_FREE  VRAM_TOTAL    VRAM%\n  0     174 MB    16011 MB    16185 MB   0.01 %\n"
            "  1      78 MB      347 MB      425 MB   0.18 %\n",
            [(0, 0, "", 16185, 174, "")],
        ),
        (
            "GPU  VRAM_USED  VRAM_TOTAL\n  0     10 MB    65501 MB\n\n"
            "GPU  VRAM_USED  VRAM_TOTAL\n  0  39671 MB    65501 MB\n",
            [(0, 0, "", 65501, 39671, "")],
        ),
        ("GPU  POWER  GPU_TEMP\n  0   11 W     43 °C\n", [(0, 0, "", None, None, "")]),
        (CROWD, [(n, n, "", None, None, "") for n in range(16)]),
    ],
    ids=["whole", "free too", "printed anew", "no memory asked", "partitions"],
)
def test_the_monitors_columns_are_read_by_their_names(text: str, expected: list[object]) -> None:
    sight = read_dump(text)
    assert told(sight) == expected
    assert sight.problem == ""


def test_a_row_of_the_monitor_that_is_cut_keeps_no_figure_and_is_a_problem() -> None:
    sight = read_dump("GPU  VRAM_USED  VRAM_TOTAL\n  0     10 MB    65501 MB\n  1     10 MB")
    assert [(d.index, d.total_mib) for d in sight.devices] == [(0, 65501), (1, None)]
    assert sight.problem == "amd-smi: 1 rows do not have the 3 cells of the header"
