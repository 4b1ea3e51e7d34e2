"""Whether weights are whole on this disk, and how large they are. Reads names, sizes and headers, never the weights.

Whole = no link leads nowhere, every file of an index is there, shards that count themselves (`-00001-of-00004`) are
all there, no safetensors file is shorter than its header says, and sizes are those of the list that a pull left.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from agent.foreign import foreign_json
from agent.weights.hub_cache import links_of

_INDEXES = (".safetensors.index.json", ".bin.index.json")
"""By preference: where the first kind is there, files of the second are not needed."""
_SHARD = re.compile(r"(?P<stem>.+-)(?P<number>\d{5})(?P<of>-of-)(?P<count>\d{5})(?P<suffix>\.\w+)")
WEIGHT_SUFFIXES = frozenset({".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt", ".nemo", ".engine", ".onnx"})
_TOLD = 3
_LONGEST_HEADER = 100_000_000
_MOST_SHARDS = 10_000


@dataclass(frozen=True)
class Presence:
    """`lacking`: what is not there or not whole, each with why; empty when the weights can be loaded."""

    bytes: int = 0
    lacking: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return not self.lacking

    @property
    def why(self) -> str:
        """What lacks, in one line; empty when nothing does."""
        more = f" and {len(self.lacking) - _TOLD} more" if len(self.lacking) > _TOLD else ""
        return "; ".join(self.lacking[:_TOLD]) + more


NOTHING = Presence(lacking=("nothing is there",))


def look(place: Path, listed: Mapping[str, int] | None = None) -> Presence:
    """The presence of a file, or of a folder of weights. `listed`: name -> bytes of what must be there. Blocking."""
    if not place.exists():
        return Presence(lacking=("a link leads nowhere",)) if place.is_symlink() else NOTHING
    if not place.is_dir():
        return look_at_file(place, listed)
    files = {str(path.relative_to(place)): path for path in links_of(place)}
    lacking = [*_listed_lacking(files, listed or {}), *_lacking(files)]
    if not files:
        lacking.append("an empty folder")
    return Presence(total_bytes(files.values()), tuple(dict.fromkeys(lacking)))


def look_at_file(place: Path, listed: Mapping[str, int] | None = None) -> Presence:
    """As `look`, for one file, with the shards that its name counts."""
    shards = {name: place.with_name(name) for name in shards_of(place.name)} or {place.name: place}
    lacking = [*_listed_lacking(shards, listed or {}), *_lacking(shards)]
    return Presence(total_bytes(shards.values()), tuple(dict.fromkeys(lacking)))


def total_bytes(files: Iterable[Path]) -> int:
    """Bytes of what `files` lead to; what two links lead to counts once."""
    sizes: dict[tuple[int, int], int] = {}
    for path in files:
        try:
            stat = path.stat()
        except OSError:
            continue
        sizes[stat.st_dev, stat.st_ino] = stat.st_size
    return sum(sizes.values())


def shards_of(name: str) -> tuple[str, ...]:
    """All the shards that a shard's name counts, itself included; none when the name counts none."""
    directory, _, last = name.rpartition("/")
    if (matched := _SHARD.fullmatch(last)) is None or not 0 < int(matched["count"]) <= _MOST_SHARDS:
        return ()
    head = f"{directory}/{matched['stem']}" if directory else matched["stem"]
    count = int(matched["count"])
    tail = f"{matched['of']}{matched['count']}{matched['suffix']}"
    return tuple(f"{head}{number:05}{tail}" for number in range(1, count + 1))


def _listed_lacking(files: Mapping[str, Path], listed: Mapping[str, int]) -> Iterator[str]:
    for name, size in listed.items():
        path = files.get(name)
        found = _size(path) if path is not None else None
        if found is None:
            yield f"{name} is missing"
        elif found != size:
            yield f"{name} has {found} of {size} bytes"


def _lacking(files: Mapping[str, Path]) -> Iterator[str]:
    wanted: dict[str, None] = {}
    for name, path in files.items():
        size = _size(path)
        if size is None:
            yield f"{name} is missing"
        elif name.endswith(".safetensors") and (told := _told_bytes(path)) is not None and size < told:
            yield f"{name} has {size} of {told} bytes"
        wanted |= dict.fromkeys(shards_of(name))
    wanted |= dict.fromkeys(_indexed(files))
    for name in wanted:
        if name not in files:
            yield f"{name} is missing"


def _indexed(files: Mapping[str, Path]) -> Iterator[str]:
    """The files that the indexes name, relative as they are."""
    for kind in _INDEXES:
        indexes = [name for name in files if name.endswith(kind)]
        for name in indexes:
            folder = name.rpartition("/")[0]
            for shard in _index(files[name]):
                yield f"{folder}/{shard}" if folder else shard
        if indexes:
            return


def _index(path: Path) -> tuple[str, ...]:
    try:
        stat = path.stat()
    except OSError:
        return ()
    return _read_index(str(path), stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=256)
def _read_index(path: str, _changed_ns: int, _size: int) -> tuple[str, ...]:
    """The distinct files of an index's `weight_map`; none if it is not one."""
    try:
        document = foreign_json(Path(path).read_bytes())
        names = document["weight_map"].values()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str)))


def _told_bytes(path: Path) -> int | None:
    """Bytes that a safetensors file has by its own header; None when it cannot be read."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return _read_header(str(path), stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=2048)
def _read_header(path: str, _changed_ns: int, size: int) -> int | None:
    """Eight bytes of length, a JSON header with `data_offsets` per tensor, then the data (safetensors format)."""
    try:
        with Path(path).open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size, _LONGEST_HEADER):
                return max(8, length + 8) if length <= _LONGEST_HEADER else None
            header = foreign_json(file.read(length))
        ends = [row["data_offsets"][1] for name, row in header.items() if name != "__metadata__"]
        return 8 + length + max(ends, default=0)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
