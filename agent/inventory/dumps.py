"""What a saved output of any of the tools says: the form is told by its first words. Pure.

For people who want to know what the agent would make of a machine before it runs there, and for tests.
"""

import json

from agent.inventory import amd, apple, ascend, detector, nvidia_smi, nvidia_table
from agent.inventory.seen import Sight, first_lines

UNKNOWN_FORM = "no list of devices that is known here: "


def read_dump(text: str) -> Sight:
    """The devices in it; a problem where the text is a complaint, or no output that is known here."""
    plain = text.lstrip("\ufeff \t\r\n")
    if "<nvidia_smi_log" in plain:
        return nvidia_smi.read_xml(plain)
    if plain.startswith(("{", "[")) and not plain.startswith("[4m"):
        return _json(plain)
    if "npu-smi" in plain and "|" in plain:
        return ascend.read(plain)
    if "ROCm System Management" in plain or plain.casefold().startswith("device,"):
        return amd.read(plain)
    if "NVIDIA-SMI" in plain and "+--" in plain:
        return nvidia_table.read_table(plain)
    head = plain.splitlines()[0].casefold() if plain else ""
    if "," in head and any(word in head for word in ("memory.", "uuid", "gpu_name", "pci.bus_id")):
        return (
            nvidia_smi.read_apps(plain)
            if "pid" in [cell.strip() for cell in head.split(",")]
            else nvidia_smi.read_csv(plain)
        )
    if "UUID:" in plain:
        return nvidia_smi.read_list(plain)
    return Sight(problem=nvidia_smi.failure(plain) or UNKNOWN_FORM + first_lines(plain, 200))


def _json(text: str) -> Sight:
    try:
        document = json.loads(text)
    except ValueError:
        return amd.read(text)
    if (detected := detector.read(document)) is not None:
        return Sight(detected)
    if isinstance(document, dict) and "SPDisplaysDataType" in document:
        return apple.read(text)
    return amd.read(text)
