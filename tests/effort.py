"""How hard properties and stories are tried: `EFFORT=20 make test` draws twenty times as many as the usual run."""

import os

EFFORT = float(os.environ.get("EFFORT", "1"))


def examples(count: int) -> int:
    """So many examples of a property, or seeds of a story, are drawn."""
    return max(1, round(count * EFFORT))
