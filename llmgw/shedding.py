"""What of the carried state goes first when it does not fit (DESIGN §7): what people read, then what is closed.

Never what the care of the fleet needs: assignments, routes, wishes, identities.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from llmgw.world import World


@dataclass(frozen=True, slots=True)
class State:
    """All that is carried. `extra`: what the workflow keeps for people."""

    world: World
    catalog_raw: object
    extra: Mapping[str, Any]


def _without_recent(state: State) -> State:
    return replace(state, extra={})


def _without_reasons(state: State) -> State:
    """They are said anew by the next plan; only their ages begin anew."""
    return replace(state, world=replace(state.world, waiting={}))


def _without_log_lines(state: State) -> State:
    failures = {k: tuple(replace(f, log_tail=()) for f in v) for k, v in state.world.failures.items()}
    return replace(state, world=replace(state.world, failures=failures))


def _without_answered_failures(state: State) -> State:
    failures = {k: tuple(f for f in v if not f.replaced) for k, v in state.world.failures.items()}
    return replace(state, world=replace(state.world, failures={k: v for k, v in failures.items() if v}))


def _without_resting_ports(state: State) -> State:
    """They rest out their hour on the nodes."""
    return replace(state, world=replace(state.world, resting={}))


def _without_held_catalog(state: State) -> State:
    return replace(state, world=replace(state.world, held=None))


def _without_refusals(state: State) -> State:
    """The nodes refuse again when they are told again."""
    return replace(state, world=replace(state.world, refused={}))


SHED: tuple[tuple[str, str, Callable[[State], State]], ...] = (
    ("rest", "recent events, results and refusals", _without_recent),
    ("rest", "the ages of reasons to wait", _without_reasons),
    ("rest", "log lines of failed attempts", _without_log_lines),
    ("rest", "failed attempts that were answered", _without_answered_failures),
    ("rest", "ports that rest", _without_resting_ports),
    ("catalog", "the catalog that was held", _without_held_catalog),
    ("assignments", "what nodes refused", _without_refusals),
)
"""In order: which part of the carried state is too large, what goes for it, and how."""
