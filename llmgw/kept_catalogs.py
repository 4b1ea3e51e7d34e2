"""The last ten different catalogs that were in force, compressed: to be shown, compared and put in force again. One
that came again is kept under its newest generation, and found under the earlier ones as well.

Bounded in number and in bytes: the oldest go first, and which ones went is said. Runs in workflow code, so it only
keeps and drops; nothing is ever decided on it.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter

MOST = 10
MAX_BYTES = 128 * 1024
"""Of all kept catalogs together, compressed."""


@dataclass(frozen=True, slots=True)
class KeptCatalog:
    generation: int
    digest: str
    at_s: float | None
    """When it came into force; None when that was before catalogs were kept."""
    packed: bytes = field(repr=False)
    also: tuple[int, ...] = ()
    """Earlier generations that were the same, the newest last."""

    def raw(self) -> object:
        """The catalog as it was sent, as JSON types."""
        return json.loads(zlib.decompress(self.packed))


@dataclass(frozen=True, slots=True)
class KeptCatalogs:
    """Oldest first; the last is the one in force, unless it alone is too large to be kept."""

    catalogs: tuple[KeptCatalog, ...] = ()
    dropped: int = 0
    """The newest generation that went for want of room; 0 = none."""

    def of(self, generation: int) -> KeptCatalog | None:
        return next((kept for kept in self.catalogs if generation in (kept.generation, *kept.also)), None)

    def note(self) -> str:
        """Which are missing and why; empty when only their number limits them."""
        newest = max((kept.generation for kept in self.catalogs), default=self.dropped)
        if not self.dropped or self.dropped <= newest - MOST:
            return ""
        limit = MAX_BYTES >> 10
        return f"catalogs up to generation {self.dropped} are not kept: together they would pass {limit} KB"


def keep(kept: KeptCatalogs, raw: object, generation: int, digest: str, at_s: float | None) -> KeptCatalogs:
    """With one more catalog, an earlier equal one dropped, and the oldest dropped until all fit."""
    same = [number for item in kept.catalogs if item.digest == digest for number in (*item.also, item.generation)]
    also = tuple(number for number in same if number != generation)[-MOST:]
    new = KeptCatalog(generation, digest, at_s, zlib.compress(_as_sent(raw), 9), also)
    others = [item for item in kept.catalogs if item.digest != digest]
    catalogs, dropped = [*others, new][-MOST:], kept.dropped
    while catalogs and sum(len(item.packed) for item in catalogs) > MAX_BYTES:
        dropped = catalogs.pop(0).generation
    return KeptCatalogs(tuple(catalogs), dropped)


def _as_sent(raw: object) -> bytes:
    """In the order in which it was written, for whoever reads it again."""
    return json.dumps(raw, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def pack(kept: KeptCatalogs) -> bytes:
    """One part of the carried state: a line of JSON that names them, then the compressed catalogs one by one."""
    head = {
        "dropped": kept.dropped,
        "catalogs": [[k.generation, k.digest, k.at_s, len(k.packed)] for k in kept.catalogs],
        "also": [k.also for k in kept.catalogs],
    }
    return b"".join((json.dumps(head).encode(), b"\n", *(k.packed for k in kept.catalogs))) if kept.catalogs else b""


def unpack(part: bytes) -> KeptCatalogs:
    """What `pack` made. Never raises: what cannot be read is forgotten, since nothing depends on it."""
    if not part:
        return KeptCatalogs()
    try:
        line, _, rest = part.partition(b"\n")
        head: Mapping[str, object] = json.loads(line)
        catalogs = tuple(_cut(_ROWS.validate_python(head["catalogs"]), rest))
        also = _ALSO.validate_python(head.get("also", [()] * len(catalogs)))
        told = tuple(replace(kept, also=numbers) for kept, numbers in zip(catalogs, also, strict=True))
        return KeptCatalogs(told, int(str(head["dropped"])))
    except (ValueError, KeyError, TypeError, zlib.error):
        return KeptCatalogs()


_ALSO: TypeAdapter[list[tuple[int, ...]]] = TypeAdapter(list[tuple[int, ...]])
_ROWS: TypeAdapter[list[tuple[int, str, float | None, int]]] = TypeAdapter(list[tuple[int, str, float | None, int]])


def _cut(rows: Sequence[tuple[int, str, float | None, int]], rest: bytes) -> Iterator[KeptCatalog]:
    for generation, digest, at_s, size in rows:
        packed, rest = rest[:size], rest[size:]
        zlib.decompress(packed)
        yield KeptCatalog(generation, digest, at_s, packed)
