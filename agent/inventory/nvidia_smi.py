"""What `nvidia-smi` prints, in each of its forms: XML (`-q -x`), CSV (`--query-gpu`), the list (`-L`), the table.

The XML is what the agent asks for where NVML's library cannot be loaded; the list adds the UUIDs of MIG slices, which
the XML does not tell. A card in MIG mode is no device: its slices are. Pure.
Format: https://docs.nvidia.com/deploy/nvidia-smi/ ; elements differ between versions, so each may be missing.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from xml.etree import ElementTree

from agent.inventory.seen import Seen, Sight, User, bus_id, fault, first_lines, known, mib, number

MIG_PARENT = "in MIG mode: its slices are the devices"

_LOST = re.compile(r"Unable to determine the device handle for gpu\s*(?P<bus>[0-9a-fA-F:.]+?):?\s+(?P<why>.*)", re.I)
_FAILURE = re.compile(
    r"Failed to initialize NVML|NVIDIA-SMI has failed|No devices were found|couldn't communicate|command not found"
    r"|No such file or directory|GPU is lost|Unknown Error|Unable to determine|Insufficient Permissions",
    re.I,
)
_CARD = re.compile(r"^GPU\s+(?P<index>\d+):\s*(?P<kind>.*?)\s*\(UUID:\s*(?P<uuid>\S+?)\)")
_SLICE = re.compile(r"^\s+MIG\s+(?P<profile>\S+)\s+Device\s+(?P<number>\d+):\s*\(UUID:\s*(?P<uuid>\S+?)\)")


def failure(text: str, exit_code: int = 0) -> str:
    """What the tool complains of, or empty when it printed what it was asked for."""
    complaints = [line for line in text.splitlines() if _FAILURE.search(line)]
    if exit_code or (complaints and not _CARD.search(text) and "<gpu " not in text):
        return "nvidia-smi: " + first_lines(" ".join(complaints) or text or f"exit code {exit_code}")
    return ""


def lost_cards(text: str) -> dict[str, str]:
    """PCI bus id -> what the tool says of a card it cannot reach."""
    return {bus_id(match["bus"]): first_lines(match["why"], 100) for match in _LOST.finditer(text)}


# --- XML -----------------------------------------------------------------------------------------------------------


def read_xml(text: str, listed: str = "") -> Sight:
    """`nvidia-smi -q -x`, with the slices' UUIDs from `nvidia-smi -L` in `listed`."""
    if (problem := failure(text)) and "<gpu" not in text:
        return Sight(problem=problem)
    start = text.find("<nvidia_smi_log")
    if start < 0:
        return Sight(problem="nvidia-smi -q -x printed no document")
    try:
        # From the first element on: the document type, and with it every entity, is left out.
        document = ElementTree.fromstring(text[start:])  # noqa: S314
    except ElementTree.ParseError as error:
        return Sight(problem=f"nvidia-smi -q -x: {error}")
    slices = {(card, place): (profile, uuid) for card, place, profile, uuid in _slices_listed(listed)}
    devices: list[Seen] = []
    for index, element in enumerate(document.findall("gpu")):
        card = _card(element, index)
        devices.append(card)
        devices += _slices(element, card, slices)
    return Sight(tuple(devices), "; ".join(f"nvidia-smi: {bus}: {why}" for bus, why in lost_cards(text).items()))


def _card(element: ElementTree.Element, index: int) -> Seen:
    memory = element.find("fb_memory_usage")  # a child of its own: the slices have theirs, and stand before it
    total, used, reserved = (_text(memory, name) for name in ("total", "used", "reserved"))
    in_mig = (known(_text(element, "mig_mode/current_mig")) or "").casefold() == "enabled"
    return Seen(
        index=index,
        kind=known(_text(element, "product_name")) or "",
        vendor="nvidia",
        uuid=known(_text(element, "uuid")) or "",
        bus=bus_id(element.get("id")) or bus_id(_text(element, "pci/pci_bus_id")),
        total_mib=mib(total) or None,
        used_mib=mib(used),
        reserved_mib=mib(reserved) or 0,
        processes=tuple(_users(element.iter("process_info"))),
        sickness=fault(total) or _sickness(element),
        unfit=MIG_PARENT if in_mig else "",
    )


def _slices(
    element: ElementTree.Element, card: Seen, listed: Mapping[tuple[str, int], tuple[str, str]]
) -> Iterable[Seen]:
    for place, part in enumerate(element.findall("mig_devices/mig_device")):
        own = number(_text(part, "index"))
        gi, ci = (known(_text(part, name)) for name in ("gpu_instance_id", "compute_instance_id"))
        profile, uuid = listed.get((card.uuid, place if own is None else own), ("", ""))
        users = [p for p in element.iter("process_info") if _of_slice(p, gi, ci)]
        errors = number(_text(part, "ecc_error_count/volatile_count/sram_uncorrectable"))
        yield Seen(
            index=card.index,
            kind=f"MIG {profile}".strip(),
            vendor="nvidia",
            uuid=known(_text(part, "uuid")) or uuid or f"MIG-{card.uuid}/{gi}/{ci}",  # the name before driver 470
            bus=card.bus,
            total_mib=mib(_text(part, "fb_memory_usage/total")) or None,
            used_mib=mib(_text(part, "fb_memory_usage/used")),
            reserved_mib=mib(_text(part, "fb_memory_usage/reserved")) or 0,
            processes=tuple(_users(users)),
            sickness=f"{errors} uncorrected ECC errors" if errors else card.sickness,
        )


def _of_slice(process: ElementTree.Element, gi: str | None, ci: str | None) -> bool:
    return (known(_text(process, "gpu_instance_id")), known(_text(process, "compute_instance_id"))) == (gi, ci)


def _users(elements: Iterable[ElementTree.Element]) -> Iterable[User]:
    for element in elements:
        if (pid := number(_text(element, "pid"))) is not None:
            yield User(pid, known(_text(element, "process_name")) or "", mib(_text(element, "used_memory")))


def _sickness(element: ElementTree.Element) -> str:
    """An ordered list of what makes a card unfit for new work; the first that holds is told."""
    errors = sum(number(found.text) or 0 for found in element.findall("ecc_errors/volatile/*") if "uncorr" in found.tag)
    action = known(_text(element, "gpu_recovery_action") or _text(element, "gpu_reset_status/recovery_action")) or ""
    facts = (
        (_says(element, "gpu_reset_status/reset_required"), "requires a reset"),
        (_says(element, "gpu_reset_status/drain_and_reset_recommended"), "should be drained and reset"),
        (bool(errors), f"{errors} uncorrected ECC errors since the driver was loaded"),
        (_says(element, "remapped_rows/remapped_row_failure"), "row remapping failed"),
        (_says(element, "ecc_errors/unrepairable_memory"), "has memory that cannot be repaired"),
        (bool(action), f"recovery action: {action}"),
        ((_text(element, "compute_mode") or "").strip() == "Prohibited", "compute mode is Prohibited"),
    )
    return next((text for holds, text in facts if holds), "")


def _says(element: ElementTree.Element, path: str) -> bool:
    return (known(_text(element, path)) or "").casefold() == "yes"


def _text(element: ElementTree.Element | None, path: str) -> str | None:
    return element.findtext(path) if element is not None else None


# --- CSV -----------------------------------------------------------------------------------------------------------


def read_csv(text: str, apps: str = "") -> Sight:
    """`--query-gpu=… --format=csv` (any columns, header needed), with `--query-compute-apps=…` in `apps`."""
    if problem := failure(text):
        return Sight(problem=problem)
    users = tuple(_apps(apps))
    rows = _rows(text)
    alone = len(rows) == 1
    devices = []
    for place, row in enumerate(rows):
        uuid, bus = (
            known(row.get("uuid", row.get("gpu_uuid"))) or "",
            bus_id(row.get("pci.bus_id", row.get("gpu_bus_id"))),
        )
        sick = fault(row.get("memory.total")) or _csv_sickness(row)
        index = number(row.get("index"))
        in_mig = (row.get("mig.mode.current") or "").strip().casefold() == "enabled"
        devices.append(
            Seen(
                index=place if index is None else index,
                kind=known(row.get("name", row.get("gpu_name"))) or "",
                vendor="nvidia",
                uuid=uuid,
                bus=bus,
                total_mib=mib(row.get("memory.total")) or None,
                used_mib=mib(row.get("memory.used")),
                reserved_mib=mib(row.get("memory.reserved")) or 0,
                processes=tuple(user for place_of, user in users if alone or place_of in {uuid, bus} - {""}),
                sickness=sick,
                unfit=MIG_PARENT if in_mig else "",
            )
        )
    return Sight(tuple(devices))


def read_apps(text: str) -> Sight:
    """`--query-compute-apps` alone: devices of which nothing but their processes is told."""
    users: dict[tuple[str, str], list[User]] = {}
    for row in _rows(text):
        place = (known(row.get("gpu_uuid")) or "", bus_id(row.get("gpu_bus_id")))
        users.setdefault(place, []).extend(user for _, user in _users_of_row(row))
    devices = (
        Seen(index, "", "nvidia", uuid, bus, processes=tuple(found))
        for index, ((uuid, bus), found) in enumerate(users.items())
    )
    return Sight(tuple(devices))


def _csv_sickness(row: Mapping[str, str]) -> str:
    errors = number(row.get("ecc.errors.uncorrected.volatile.total")) or 0
    action = known(row.get("gpu_recovery_action")) or ""
    if errors:
        return f"{errors} uncorrected ECC errors since the driver was loaded"
    return f"recovery action: {action}" if action else ""


def _apps(text: str) -> Iterable[tuple[str, User]]:
    """(uuid or bus id of the device, process) per row of `--query-compute-apps`."""
    for row in _rows(text):
        yield from _users_of_row(row)


def _users_of_row(row: Mapping[str, str]) -> Iterable[tuple[str, User]]:
    pid = number(row.get("pid"))
    if pid is not None:
        where = known(row.get("gpu_uuid")) or bus_id(row.get("gpu_bus_id"))
        name = known(row.get("process_name", row.get("name"))) or ""
        yield where, User(pid, name, mib(row.get("used_gpu_memory", row.get("used_memory"))))


def _rows(text: str) -> list[dict[str, str]]:
    """Cells by column, units cut from the column's name. Only a process name may hold a comma of its own."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines:
        return []
    names = [re.sub(r"\s*\[.*\]$", "", cell.strip()).casefold() for cell in lines[0].split(",")]
    return [dict(zip(names, _cells(line, names), strict=False)) for line in lines[1:]]


def _cells(line: str, names: list[str]) -> list[str]:
    cells = line.split(",")
    if (extra := len(cells) - len(names)) > 0 and "process_name" in names:
        at = names.index("process_name")
        cells[at : at + extra + 1] = [",".join(cells[at : at + extra + 1])]
    return [cell.strip() for cell in cells]


# --- the list and the table ----------------------------------------------------------------------------------------


def read_list(text: str) -> Sight:
    """`nvidia-smi -L`: identities; memory is not told."""
    if problem := failure(text):
        return Sight(problem=problem)
    devices: list[Seen] = []
    for line in text.splitlines():
        if card := _CARD.match(line):
            devices.append(Seen(int(card["index"]), card["kind"], "nvidia", uuid=card["uuid"]))
        elif (part := _SLICE.match(line)) and devices:
            parent = next(device for device in reversed(devices) if not device.uuid.startswith("MIG-"))
            devices[devices.index(parent)] = replace(parent, unfit=MIG_PARENT)
            # Not the card's name too: whoever asks for an h100 means a whole one.
            devices.append(Seen(parent.index, f"MIG {part['profile']}", "nvidia", uuid=part["uuid"]))
    lost = "; ".join(f"nvidia-smi: {bus}: {why}" for bus, why in lost_cards(text).items())
    return Sight(tuple(devices), lost)


def _slices_listed(text: str) -> Iterable[tuple[str, int, str, str]]:
    """(card's UUID, slice number, profile, slice's UUID)."""
    card = ""
    for line in text.splitlines():
        if found := _CARD.match(line):
            card = found["uuid"]
        elif part := _SLICE.match(line):
            yield card, int(part["number"]), part["profile"], part["uuid"]
