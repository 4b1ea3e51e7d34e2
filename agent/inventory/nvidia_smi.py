"""What `nvidia-smi -q -x` prints: what the agent asks for where NVML's library cannot be loaded. Pure.

The list (`-L`) adds the UUIDs of MIG slices, which the XML does not tell. A card in MIG mode is no device: its slices
are. Format: https://docs.nvidia.com/deploy/nvidia-smi/ ; elements differ between versions, so each may be missing.
"""

from collections.abc import Iterable, Mapping
from xml.etree import ElementTree

from agent.inventory.nvidia_csv import read_apps, read_csv
from agent.inventory.nvidia_list import read_list, slices_listed
from agent.inventory.nvidia_words import MIG_PARENT, failure, lost_cards
from agent.inventory.seen import Seen, Sight, User, bus_id, fault, known, mib, number

__all__ = ["MIG_PARENT", "failure", "read_apps", "read_csv", "read_document", "read_list", "read_xml"]


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
    return read_document(document, listed, lost_cards(text))


def read_document(document: ElementTree.Element, listed: str = "", problem: str = "") -> Sight:
    """The elements `gpu` of a document, whatever it was read from."""
    slices = {(card, place): (profile, uuid) for card, place, profile, uuid in slices_listed(listed)}
    devices: list[Seen] = []
    for index, element in enumerate(document.findall("gpu")):
        card = _card(element, index)
        devices.append(card)
        devices += _slices(element, card, slices)
    # `attached_gpus` counts those that were not asked about (`-i`) too: it says nothing of what is missing.
    empty = "" if devices else "nvidia-smi told no card"
    return Sight(tuple(devices), "; ".join(filter(None, (problem, empty))))


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
        sickness=_fault(element) or _sickness(element),
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


def _fault(element: ElementTree.Element) -> str:
    """Words of a card out of order in the place of what every card tells."""
    told = ("uuid", "product_name", "fb_memory_usage/total", "fb_memory_usage/used", "mig_mode/current_mig")
    return next((words for path in told if (words := fault(_text(element, path)))), "")


def _sickness(element: ElementTree.Element) -> str:
    """An ordered list of what makes a card unfit for new work; the first that holds is told."""
    counters = [found for found in element.findall("ecc_errors/volatile/*") if "uncorr" in found.tag]
    counters += element.findall("ecc_errors/volatile/double_bit/total")  # before driver 410
    errors = sum(number(found.text) or 0 for found in counters)
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
