"""What `system_profiler SPDisplaysDataType -json` prints on a Mac. Pure.

Memory is unified: no size is the graphics unit's own, so it is unknown until an operator gives one.
"""

import json
from typing import Any

from agent.inventory.seen import Seen, Sight


def read(text: str) -> Sight:
    """Metal devices of Apple's own making; others are left out."""
    try:
        document: Any = json.loads(text)
        rows = document["SPDisplaysDataType"]
    except (ValueError, KeyError, TypeError):
        return Sight(problem="system_profiler printed no list of displays")
    names = [str(row.get("sppci_model") or row.get("_name") or "") for row in rows if isinstance(row, dict)]
    own = [name for name in names if name.startswith("Apple")]
    return Sight(tuple(Seen(index, name, "apple") for index, name in enumerate(own)))
