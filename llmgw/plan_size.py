"""How much one plan may carry. It becomes a payload of the workflow's history, where a large one is packed: what counts
then is what cannot be packed, ids above all.

Sizes here are estimates from above, in bytes of the packed form. Together the parts stay under `MAX_BYTES`; what does
not fit follows in the next plan.
"""

import base64
import binascii
import zlib
from collections.abc import Mapping
from itertools import accumulate, takewhile

from llmgw.ids import NodeId
from llmgw.world import Assignment, Known

MAX_BYTES = 192 * 1024
"""No payload above 256 KB (DESIGN §7)."""
MAX_START_BYTES = 72 * 1024
"""New assignments: some 900 of one device each."""
MAX_KNOWN_BYTES = 32 * 1024
"""Identities of nodes: some 130 of eight devices each."""
MAX_WAITING = 1500
"""Changed reasons: words that many share, and a subject each."""
PACKED_FROM = 16 * 1024
"""Smaller ones stay readable."""

_ID = 28
"""A random id of 128 bits, packed: 16 bytes as base64 of what digits compress to."""
_MARK = "zlib:"


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


# --- packing -------------------------------------------------------------------------------------------------------


def packed(raw: bytes) -> str:
    """A JSON document as text that no plan of an earlier version is taken for: those are objects."""
    return _MARK + base64.b64encode(zlib.compress(raw, 6)).decode()


def unpacked(text: str) -> bytes:
    """ValueError where the text was not made by `packed`."""
    if not text.startswith(_MARK):
        raise ValueError("not a packed plan")
    try:
        return zlib.decompress(base64.b64decode(text.removeprefix(_MARK), validate=True))
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"not a packed plan: {error}") from error
