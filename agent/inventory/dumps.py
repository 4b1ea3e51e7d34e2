"""What a saved output of any of the tools says: the form is told by its first words. Pure.

For people who want to know what the agent would make of a machine before it runs there, and for tests.
"""

from agent.inventory import (
    amd,
    amd_smi,
    amd_tables,
    apple,
    ascend,
    detector,
    intel,
    nvidia_csv,
    nvidia_smi,
    nvidia_table,
    nvidia_text,
    rocm_smi,
)
from agent.inventory.seen import Sight, first_lines, sober

UNKNOWN_FORM = "no list of devices that is known here: "


def read_dump(text: str) -> Sight:
    """The devices in it; a problem where the text is a complaint, or no output that is known here."""
    plain = text.lstrip("\ufeff \t\r\n").replace("\r\n", "\n")
    if (document := amd.document_in(plain)) is not None and (detected := detector.read(document)) is not None:
        return Sight(detected)  # the operator's word
    return sober(_read(plain, document))


def _read(plain: str, document: object) -> Sight:
    if "<nvidia_smi_log" in plain:
        return nvidia_smi.read_xml(plain)
    if isinstance(document, dict) and "SPDisplaysDataType" in document:
        return apple.read(plain)
    if intel.is_json(document) or intel.is_table(plain):
        return intel.read(plain) if intel.is_table(plain) else intel.read_json([document])
    if document is not None or plain.startswith(("{", "[{")):
        return amd.read(plain)
    if "npu-smi" in plain and "|" in plain:
        return ascend.read(plain)
    if _is_amd(plain):
        return amd.read(plain)
    if apple.TITLE in plain:
        return apple.read(plain)
    return _nvidia(plain)


def _is_amd(plain: str) -> bool:
    heads = any(line.casefold().startswith("device,") for line in plain.splitlines())
    lists = amd_smi.is_csv(plain) or amd_smi.is_text(plain) or rocm_smi.has_lines(plain)
    tables = amd_tables.is_table(plain) or amd_tables.is_monitor(plain)
    return "ROCm System Management" in plain or heads or lists or tables


def _nvidia(plain: str) -> Sight:
    if nvidia_text.is_text(plain):
        return nvidia_text.read_text(plain)
    if "NVIDIA-SMI" in plain and "+--" in plain:
        return nvidia_table.read_table(plain)
    if nvidia_csv.has_header(plain):
        return nvidia_csv.read_apps(plain) if nvidia_csv.lists_processes(plain) else nvidia_csv.read_csv(plain)
    if "UUID:" in plain:
        return nvidia_smi.read_list(plain)
    return Sight(problem=nvidia_smi.failure(plain) or UNKNOWN_FORM + first_lines(plain, 200))
