"""When each source of weights was last used here, kept on disk; and which pulled weights go when the disk fills up.

Only what a pull brought is ever a candidate: what people put there is theirs.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent.foreign import foreign_json

LEAST_IDLE_S = 3600.0
"""Weights used, or pulled, within this time are never collected."""
_KEEP_S = 60.0
"""Uses are written down at most so often."""


class Uses:
    """`clock`: seconds since the epoch, the one clock that outlives a reboot; set back, it makes idle shorter only."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._last: dict[str, float] = _read(path)
        self._written_s = 0.0

    def note(self, sources: Iterable[str]) -> None:
        """These are in use now. Blocking."""
        now_s = self._clock()
        new = dict.fromkeys(sources, now_s)
        fresh = new.keys() - self._last.keys()
        self._last |= new
        if new and (fresh or now_s - self._written_s >= _KEEP_S):
            self._written_s = now_s
            with suppress(OSError):
                draft = self._path.with_suffix(".new")
                draft.write_text(json.dumps(self._last))
                draft.replace(self._path)

    def forget(self, source: str) -> None:
        self._last.pop(source, None)

    def idle_s(self, source: str, since_s: float | None = None) -> float | None:
        """Seconds since its last use, or since `since_s` if that is later; None when neither is known."""
        known = [moment for moment in (self._last.get(source), since_s) if moment is not None]
        return max(0.0, self._clock() - max(known)) if known else None


@dataclass(frozen=True)
class Candidate:
    source: str
    idle_s: float


def to_collect(pulled: Mapping[str, float], uses: Uses, needed: Iterable[str]) -> tuple[Candidate, ...]:
    """What may be collected, the longest idle first. `pulled`: source -> when; `needed`: in use, or on their way."""
    kept = set(needed)
    idle = {source: uses.idle_s(source, since_s) for source, since_s in pulled.items() if source not in kept}
    found = [Candidate(source, s) for source, s in idle.items() if s is not None and s >= LEAST_IDLE_S]
    return tuple(sorted(found, key=lambda candidate: (-candidate.idle_s, candidate.source)))


def _read(path: Path) -> dict[str, float]:
    try:
        return {str(source): float(moment) for source, moment in foreign_json(path.read_bytes()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
