"""Search attributes: phase, generation and whether the last catalog was refused. Written only when they change."""

from typing import Any

from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from llmgw.plan import Judgement
from llmgw.recent import Recent
from workflows import names

PHASE = SearchAttributeKey.for_keyword(names.PHASE_ATTRIBUTE)
GENERATION = SearchAttributeKey.for_int(names.GENERATION_ATTRIBUTE)
REJECTED = SearchAttributeKey.for_bool(names.REJECTED_ATTRIBUTE)


class Shown:
    """What was last written; each change costs one event."""

    def __init__(self) -> None:
        self._last: tuple[str, int, bool] | None = None

    def changes(self, phase: str, generation: int, recent: Recent) -> list[SearchAttributeUpdate[Any]]:
        rejected = recent.last_catalog is not None and recent.last_catalog.judgement is Judgement.REFUSED
        now = ("safe_mode" if recent.safe_mode else phase, generation, rejected)
        if now == self._last:
            return []
        self._last = now
        return [PHASE.value_set(now[0]), GENERATION.value_set(now[1]), REJECTED.value_set(now[2])]
