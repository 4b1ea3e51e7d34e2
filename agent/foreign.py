"""What others wrote: engines, tools, repositories of a hub, and files that may be damaged."""

import json
from typing import Any


def foreign_json(text: str | bytes) -> Any:
    """A JSON document. ValueError for whatever is none, also for what is nested too deep or is no Unicode."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
