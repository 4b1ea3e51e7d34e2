"""A machine with two pretended NVIDIA cards: an `nvidia-smi` that tells of them what a meter file says.

Each line of the meter is memory that a process holds: {device, mib, pid, kept}. It counts while the process lives, or
for as long as the line stands where it is `kept`. Run as a program, it is that `nvidia-smi`.
"""

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CARDS = ("GPU-aaaaaaaa-0001", "GPU-bbbbbbbb-0002")
TOTAL_MIB, IDLE_MIB = 81559, 600


class Meter:
    """The cards' memory, seen from a test."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "meter"
        self.file.touch()
        tools = folder / "tools"
        tools.mkdir()
        tool = tools / "nvidia-smi"
        tool.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {self.file} "$@"\n')
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        self.env = {"PATH": f"{tools}:{os.environ['PATH']}"}
        self._broken = folder / "broken"

    def enter(self, device: str, mib: int, pid: int, *, kept: bool = False) -> None:
        with self.file.open("a") as meter:
            meter.write(json.dumps({"device": device, "mib": mib, "pid": pid, "kept": kept}) + "\n")

    def let_go(self, device: str) -> None:
        rows = [row for row in rows_of(self.file) if row["device"] != device]
        self.file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows_of(meter: Path) -> Iterator[dict[str, Any]]:
    for line in meter.read_text().splitlines():
        yield json.loads(line)


def document(meter: Path, alive: Callable[[int], bool]) -> str:
    """What `nvidia-smi -q -x` would print."""
    rows = [row for row in rows_of(meter) if row["kept"] or alive(row["pid"])]
    cards = []
    for number, uuid in enumerate(CARDS):
        own = [row for row in rows if row["device"] == uuid]
        used = IDLE_MIB + sum(row["mib"] for row in own)
        processes = "".join(
            f"<process_info><pid>{row['pid']}</pid><process_name>x</process_name>"
            f"<used_memory>{row['mib']} MiB</used_memory></process_info>"
            for row in own
        )
        cards.append(
            f'<gpu id="00000000:0{number}:00.0"><product_name>NVIDIA H100</product_name><uuid>{uuid}</uuid>'
            f"<fb_memory_usage><total>{TOTAL_MIB} MiB</total><used>{used} MiB</used></fb_memory_usage>"
            f"<processes>{processes}</processes></gpu>"
        )
    return f"<nvidia_smi_log>{''.join(cards)}</nvidia_smi_log>"


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


if __name__ == "__main__":
    print(document(Path(sys.argv[1]), _is_alive))
