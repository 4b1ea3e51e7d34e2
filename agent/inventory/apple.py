"""What `system_profiler SPDisplaysDataType` prints on a Mac, as JSON or as text. Pure.

Memory is unified: no size is the graphics unit's own, so it is unknown until an operator gives one.
"""

import re
from collections.abc import Iterable

from agent.inventory.amd import document_in
from agent.inventory.seen import Seen, Sight

TITLE = "Graphics/Displays:"
_MODEL = re.compile(r"^\s+Chipset Model:\s*(.+?)\s*$", re.MULTILINE)


def read(text: str) -> Sight:
    """Metal devices of Apple's own making; others are left out."""
    document = document_in(text)
    rows = document.get("SPDisplaysDataType") if isinstance(document, dict) else None
    if isinstance(rows, list):
        return _own(str(row.get("sppci_model") or row.get("_name") or "") for row in rows if isinstance(row, dict))
    if TITLE in text and (names := _MODEL.findall(text)):
        return _own(names)
    return Sight(problem="system_profiler printed no list of displays")


def _own(names: Iterable[str]) -> Sight:
    own = [name for name in names if name.startswith("Apple")]
    return Sight(tuple(Seen(index, name, "apple") for index, name in enumerate(own)))
