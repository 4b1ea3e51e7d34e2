"""`nvidia-smi --query-gpu=… --format=csv` and `--query-compute-apps=…`, with any columns. Pure.

Cells are known by the header alone, so an output without one tells nothing; what stands before it (warnings of a
shell or a driver) is passed over. A row that has not as many cells as the header keeps none of its figures: they may
have moved.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.inventory.nvidia_words import MIG_PARENT, failure, lost_cards
from agent.inventory.seen import Seen, Sight, User, bus_id, fault, known, mib, number

_COLUMN = re.compile(r"[a-z][a-z0-9_.]*")
_IDENTITIES = frozenset({"index", "uuid", "gpu_uuid", "name", "gpu_name", "pci.bus_id", "gpu_bus_id", "pid"})
_UUID = re.compile(r"GPU-[0-9a-fA-F][0-9a-fA-F-]*")
_FIGURES = ("memory.total", "memory.used", "memory.reserved", "used_gpu_memory", "used_memory")
_TELLING = ("name", "gpu_name", "uuid", "gpu_uuid", "memory.", "mig.", "ecc.", "compute_mode")
"""Columns that a card in order always fills; a fan or a sensor may be broken and the card work."""
_UNIT = re.compile(r"[0-9]\s*[a-zA-Z]+$")


@dataclass(frozen=True, slots=True)
class _Table:
    names: tuple[str, ...] = ()
    rows: tuple[Mapping[str, str], ...] = ()
    problem: str = ""
    """Rows that could not be read."""


def has_header(text: str) -> bool:
    """Whether a line of it names columns of `nvidia-smi`."""
    return any(_header(line) for line in text.splitlines())


def lists_processes(text: str) -> bool:
    """Whether it is an answer to `--query-compute-apps`."""
    return "pid" in _table(text).names


def read_csv(text: str, apps: str = "") -> Sight:
    """`--query-gpu`, with `--query-compute-apps` in `apps`."""
    table = _table(text)
    if not table.names:
        return Sight(problem=failure(text) or "nvidia-smi printed no header: ask for --format=csv, not noheader")
    users = tuple(_apps(apps))
    alone = len(table.rows) == 1
    devices = []
    for place, row in enumerate(table.rows):
        uuid = known(row.get("uuid", row.get("gpu_uuid"))) or ""
        bus = bus_id(row.get("pci.bus_id", row.get("gpu_bus_id")))
        index = number(row.get("index"))
        in_mig = (row.get("mig.mode.current") or "").strip().casefold() == "enabled"
        devices.append(
            Seen(
                index=place if index is None or index < 0 else index,
                kind=known(row.get("name", row.get("gpu_name"))) or "",
                vendor="nvidia",
                uuid=uuid,
                bus=bus,
                total_mib=mib(row.get("memory.total")) or None,
                used_mib=mib(row.get("memory.used")),
                reserved_mib=mib(row.get("memory.reserved")) or 0,
                processes=tuple(user for place_of, user in users if alone or place_of in {uuid, bus} - {""}),
                sickness=_sickness(row),
                unfit=MIG_PARENT if in_mig else "",
            )
        )
    empty = "" if devices else failure(text) or "nvidia-smi told no card"
    return Sight(tuple(devices), "; ".join(filter(None, (lost_cards(text), table.problem, empty))))


def read_apps(text: str) -> Sight:
    """`--query-compute-apps` alone: devices of which nothing but their processes is told."""
    table = _table(text)
    if not table.names:
        return Sight(problem=failure(text) or "nvidia-smi printed no header: ask for --format=csv, not noheader")
    users: dict[tuple[str, str], list[User]] = {}
    for row in table.rows:
        place = (known(row.get("gpu_uuid")) or "", bus_id(row.get("gpu_bus_id")))
        users.setdefault(place, []).extend(user for _, user in _users_of_row(row))
    devices = tuple(
        Seen(index, "", "nvidia", uuid, bus, processes=tuple(found))
        for index, ((uuid, bus), found) in enumerate(users.items())
    )
    empty = "" if devices else "a list of processes without any tells of no card"
    return Sight(devices, "; ".join(filter(None, (lost_cards(text), table.problem, empty))))


def _sickness(row: Mapping[str, str]) -> str:
    """What makes the card unfit for new work; the first that holds is told."""
    broken = next((words for name in row if name.startswith(_TELLING) and (words := fault(row[name]))), "")
    errors = number(row.get("ecc.errors.uncorrected.volatile.total")) or 0
    action = known(row.get("gpu_recovery_action")) or ""
    facts = (
        (bool(broken), broken),
        (bool(errors), f"{errors} uncorrected ECC errors since the driver was loaded"),
        (_says(row, "remapped_rows.failure"), "row remapping failed"),
        (_says(row, "reset_status.reset_required"), "requires a reset"),
        (bool(action), f"recovery action: {action}"),
        ((row.get("compute_mode") or "") == "Prohibited", "compute mode is Prohibited"),
    )
    return next((text for holds, text in facts if holds), "")


def _says(row: Mapping[str, str], column: str) -> bool:
    return (known(row.get(column)) or "").casefold() in ("yes", "1")


def _apps(text: str) -> Iterable[tuple[str, User]]:
    """(uuid or bus id of the device, process) per row."""
    for row in _table(text).rows:
        yield from _users_of_row(row)


def _users_of_row(row: Mapping[str, str]) -> Iterable[tuple[str, User]]:
    pid = number(row.get("pid"))
    if pid is not None:
        where = known(row.get("gpu_uuid")) or bus_id(row.get("gpu_bus_id"))
        name = known(row.get("process_name", row.get("name"))) or ""
        yield where, User(pid, name, mib(row.get("used_gpu_memory", row.get("used_memory"))))


# --- cells ---------------------------------------------------------------------------------------------------------


def _table(text: str) -> _Table:
    lines = [line.strip() for line in text.lstrip("\ufeff").splitlines() if line.strip()]
    at = next((place for place, line in enumerate(lines) if _header(line)), None)
    if at is None:
        return _Table()
    names = _header(lines[at])
    read = [_row(line, names) for line in lines[at + 1 :] if _header(line) != names and not failure_line(line)]
    rows = tuple(row for row in read if row is not None)
    broken = sum(len(row) < len(names) for row in rows)
    problem = f"nvidia-smi: {broken} rows do not have the {len(names)} cells of the header" if broken else ""
    return _Table(names, _with_units(rows), problem)


def failure_line(line: str) -> bool:
    """Whether a line is a complaint of the tool's, and no row: a row's own faults stand in brackets."""
    return bool(failure(line)) and "[" not in line


def _header(line: str) -> tuple[str, ...]:
    """The columns' names, units cut off; none when the line is no header."""
    names = tuple(re.sub(r"\s*\[.*\]$", "", cell.strip()).casefold() for cell in line.strip("\ufeff \t\r\n").split(","))
    shaped = all(_COLUMN.fullmatch(name) for name in names) and not any(name.startswith("gpu-") for name in names)
    return names if shaped and any(name in _IDENTITIES or "." in name for name in names) else ()


def _row(line: str, names: tuple[str, ...]) -> Mapping[str, str] | None:
    """Cells by column. Only a process name may hold a comma of its own. None for a line that is no row at all."""
    cells = line.split(",")
    if (extra := len(cells) - len(names)) > 0 and "process_name" in names:
        at = names.index("process_name")
        cells[at : at + extra + 1] = [",".join(cells[at : at + extra + 1])]
    cells = [cell.strip() for cell in cells]
    if len(cells) == len(names):
        return dict(zip(names, cells, strict=True))
    if len(cells) == 1 and not _UUID.search(line):
        return None  # a prompt, a word of the shell
    return _who(line, cells, names)


def _who(line: str, cells: list[str], names: tuple[str, ...]) -> Mapping[str, str]:
    """Of a row that does not fit: who it is about, as far as that needs no counting of cells."""
    uuid = _UUID.search(line)
    first = {"index": cells[0]} if names[0] == "index" and cells[0].isdigit() else {}
    return {**first, **({"uuid": uuid[0], "gpu_uuid": uuid[0]} if uuid and len(names) > len(first) + 2 else {})}


def _with_units(rows: tuple[Mapping[str, str], ...]) -> tuple[Mapping[str, str], ...]:
    """Where figures have units, one without was cut off in its midst, and is no figure."""
    figures = [row[name] for row in rows for name in _FIGURES if name in row]
    if not any(_UNIT.search(cell) for cell in figures):
        return rows
    return tuple(
        {name: "" if name in _FIGURES and cell.isdigit() else cell for name, cell in row.items()} for row in rows
    )
