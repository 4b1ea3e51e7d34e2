"""How much one plan may carry. It becomes a payload of the workflow's history, where a large one is packed
(`llmgw.packing`): what counts then is what cannot be packed, ids above all.

Sizes here are estimates from above, in bytes of the packed form. Together the parts stay under `packing.MAX_BYTES`;
what does not fit follows in the next plan.
"""

from collections.abc import Mapping
from itertools import accumulate, takewhile

from llmgw.ids import NodeId
from llmgw.world import Assignment, Known

MAX_START_BYTES = 72 * 1024
"""New assignments: some 900 of one device each."""
MAX_KNOWN_BYTES = 32 * 1024
"""Identities of nodes: some 130 of eight devices each."""
MAX_WAITING = 1500
"""Changed reasons: words that many share, and a subject each."""

_ID = 28
"""A random id of 128 bits, packed: 16 bytes as base64 of what digits compress to."""


def start_bytes(model: str, profile: str, devices: int) -> int:
    """One new assignment, with the reason for which it waits and the command. A name may be as random as an id."""
    return 36 + 2 * len(model.encode()) + len(profile.encode()) + _ID * devices


def of_start(assignment: Assignment) -> int:
    return start_bytes(assignment.model, assignment.profile, len(assignment.claims))


def _known_bytes(node: NodeId, known: Known) -> int:
    return len(node.encode()) + len(known.machine) + len(known.boot) + _ID * len(known.devices)


def fitting_known(changes: Mapping[NodeId, Known]) -> dict[NodeId, Known]:
    """The first of the identities, by node, at least one."""
    ordered = sorted(changes)
    sizes = accumulate(_known_bytes(id_, changes[id_]) for id_ in ordered)
    fits = sum(1 for _ in takewhile(lambda size: size <= MAX_KNOWN_BYTES, sizes))
    return {id_: changes[id_] for id_ in ordered[: max(1, fits)]}
