"""What a rule is given: the input as it was sent, and what is known around it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from llmgw.problems import Finding, Lines


@dataclass(frozen=True, slots=True)
class Sent:
    """The raw input, and the positions of its parts."""

    raw: object
    lines: Lines = field(default_factory=dict)


Rule = Callable[[Sent], Iterator[Finding]]
"""Looks at raw input of any shape; finds problems and never raises."""
