"""What `nvidia-smi -q` prints for people: the XML's content, indented. It is read as that document. Pure."""

import re
from xml.etree import ElementTree

from agent.inventory.nvidia_smi import read_document
from agent.inventory.nvidia_words import failure, lost_cards
from agent.inventory.seen import Sight, first_lines

_CARD = re.compile(r"^GPU\s+(?P<bus>[0-9A-Fa-f:.]+)\s*$")
_ROW = re.compile(r"^(?P<indent>\s+)(?P<key>[^\s:][^:]*?)\s*(?P<colon>:(?=\s|$)\s*(?P<value>.*?))?\s*$")
_ATTACHED = re.compile(r"^Attached GPUs\s*:\s*(?P<count>\d+)\s*$", re.MULTILINE)

# Where the text has other words than the XML's elements; by (section, key), either in small letters.
_NAMES = {
    ("", "gpu_uuid"): "uuid",
    ("mig_mode", "current"): "current_mig",
    ("remapped_rows", "remapping_failure_occurred"): "remapped_row_failure",
    ("gpu_reset_status", "drain_and_reset_recommended"): "drain_and_reset_recommended",
}


def is_text(text: str) -> bool:
    return "NVSMI LOG" in text or bool(_ATTACHED.search(text))


def read_text(text: str) -> Sight:
    """All cards of it. Fewer than it says there are is a problem."""
    document = ElementTree.Element("nvidia_smi_log")
    card: list[str] = []
    for line in text.splitlines():
        if found := _CARD.match(line):
            card = [found["bus"]]
            document.append(ElementTree.Element("gpu", id=found["bus"]))
        elif card and (row := _ROW.match(line.expandtabs())):
            _add(document[-1], row)
    attached = _ATTACHED.search(text)
    if not len(document):
        none = attached is not None and int(attached["count"]) == 0
        return Sight(problem="" if none else failure(text) or f"nvidia-smi -q told no card: {first_lines(text, 100)}")
    _with_processes(document)
    problem = lost_cards(text)
    if attached is not None and len(document) < int(attached["count"]):
        problem = problem or f"nvidia-smi -q tells {len(document)} of {attached['count']} attached cards"
    return read_document(document, problem=problem)


def _add(card: ElementTree.Element, row: re.Match[str]) -> None:
    """Below the last element that is indented less."""
    indent, parent = len(row["indent"]), card
    while len(parent) and int(parent[-1].get("indent", "0")) < indent:
        parent = parent[-1]
    key = re.sub(r"[^a-z0-9]+", "_", row["key"].casefold()).strip("_")
    section = "" if parent is card else parent.tag
    element = ElementTree.SubElement(parent, _NAMES.get((section, key), key or "_"), indent=str(indent))
    element.text = row["value"]


def _with_processes(document: ElementTree.Element) -> None:
    """`Process ID` and what stands below it, as the XML's `process_info`; the instance's ids stand before it."""
    for section in list(document.iter("processes")):
        instance: dict[str, str] = {}
        for element in list(section):
            if element.tag in ("gpu_instance_id", "compute_instance_id"):
                instance[element.tag] = element.text or ""
            elif element.tag == "process_id":
                names = {"name": "process_name", "used_gpu_memory": "used_memory"}
                told = {names.get(child.tag, child.tag): child.text or "" for child in element}
                info = ElementTree.SubElement(section, "process_info")
                for tag, value in {"pid": element.text or "", **instance, **told}.items():
                    ElementTree.SubElement(info, tag).text = value
