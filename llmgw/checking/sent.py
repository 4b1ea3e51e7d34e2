"""What a rule is given: the input as it was sent, and what is known around it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from llmgw.problems import Finding, Lines


@dataclass(frozen=True, slots=True)
class Sent:
    """The raw input, the positions of its parts, and the kinds of routers that have a sink."""

    raw: object
    lines: Lines = field(default_factory=dict)
    router_kinds: frozenset[str] = frozenset({"native"})


Rule = Callable[[Sent], Iterator[Finding]]
"""Looks at raw input of any shape; finds problems and never raises."""
