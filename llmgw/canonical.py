"""Canonical JSON and the digests made of it. The one place where "equal content" is defined.

Never include anything here that depends on the process: key order, locale and hash seed do not matter.
"""

import hashlib
import json
from collections.abc import Iterable

_SET_BITS = 128
_SET_MASK = (1 << _SET_BITS) - 1
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical_json(value: object) -> bytes:
    """`value` (JSON types only) as UTF-8 JSON with sorted keys and no white space."""
    return _ENCODER.encode(value).encode("utf-8", "surrogatepass")


def digest(value: object, size: int = 16) -> str:
    """Hex BLAKE2b of the canonical JSON of `value`; `size` in bytes."""
    return digest_of(canonical_json(value), size)


def digest_of(written: bytes, size: int = 16) -> str:
    """The same for a value that is written already."""
    return hashlib.blake2b(written, digest_size=size).hexdigest()


def item_number(kind: str, value: object) -> int:
    """One item of a set digest: a 128-bit number that depends on the kind and the whole content."""
    raw = hashlib.blake2b(canonical_json([kind, value]), digest_size=_SET_BITS // 8).digest()
    return int.from_bytes(raw, "big")


def set_sum(numbers: Iterable[int], start: int = 0) -> int:
    """Sum modulo 2^128: order does not matter, and an item is taken out by adding its negative.

    Kept incrementally this costs a change, not the size of the set (AdHash, Bellare and Micciancio 1997; it guards
    against mistakes here, not against an enemy).
    """
    total = start
    for number in numbers:
        total += number
    return total & _SET_MASK


def set_digest(total: int) -> str:
    """The set sum as 32 hex digits."""
    return f"{total & _SET_MASK:032x}"
