"""Help texts from docstrings: paragraphs as one line each, which the terminal folds."""

from collections.abc import Callable
from inspect import getdoc
from typing import Any


def told(command: Callable[..., Any]) -> str:
    """The docstring of `command`, as its help."""
    return "\n\n".join(" ".join(part.split()) for part in (getdoc(command) or "").split("\n\n"))
