"""What happened lately, numbered, so that whoever follows sees each once; and what lies on the nodes' disks."""

from collections import defaultdict
from collections.abc import Iterator

from llmgw.catalog import Catalog
from llmgw.ids import ModelName, NodeId
from llmgw.recent import Recent
from llmgw.rendering import weights_of
from llmgw.sentences import cut
from llmgw.showing.paging import PAGE_SIZE, View, cut_page
from llmgw.wire import WeightsReport
from llmgw.world import World


class NumberedEvent(View):
    number: int
    """One higher than that of the event before; never used again."""
    age_s: float
    subject: str
    text: str


class EventsPage(View):
    """Oldest first."""

    events: tuple[NumberedEvent, ...]
    newest: int
    """Number of the newest event there ever was; 0 = none yet."""
    missed: int = 0
    """Events after the asked one that are no longer kept."""


class WeightsRow(View):
    node: NodeId
    source: str
    path: str
    bytes: int
    complete: bool
    idle_s: float | None = None
    models: tuple[ModelName, ...] = ()
    """Models of the catalog that are started from it; none: nothing needs it."""


class WeightsPage(View):
    weights: tuple[WeightsRow, ...]
    total: int
    next_page: int | None = None


def events(recent: Recent, now_s: float, after: int = 0) -> EventsPage:
    """Every kept event with a number above `after`."""
    newest = max(recent.event_count, len(recent.events))
    first = newest - len(recent.events) + 1
    rows = tuple(
        NumberedEvent(
            number=number,
            age_s=round(max(0.0, now_s - event.at_s), 1),
            subject=event.subject,
            text=cut(event.text),
        )
        for number, event in enumerate(recent.events, first)
        if number > after
    )
    missed = max(0, first - 1 - after) if after else 0
    return EventsPage(events=rows, newest=newest, missed=missed)


def weights(world: World, page: int = 0, page_size: int = PAGE_SIZE) -> WeightsPage:
    """What nodes report of weights, by node and source."""
    users = _users(world.catalog)
    found = sorted(_reported(world), key=lambda item: (item[0], item[1].source, item[1].path))
    cut_ = cut_page(found, page, page_size, lambda item: _row(*item, users.get(item[1].source, ())))
    return WeightsPage(weights=cut_.rows, total=len(found), next_page=cut_.next_page)


def _reported(world: World) -> Iterator[tuple[NodeId, WeightsReport]]:
    for id_, seen in world.seen.items():
        yield from ((id_, item) for item in seen.weights)


def _row(node: NodeId, item: WeightsReport, models: tuple[ModelName, ...]) -> WeightsRow:
    return WeightsRow(
        node=node,
        source=item.source,
        path=item.path,
        bytes=item.bytes,
        complete=item.complete,
        idle_s=item.idle_s,
        models=models,
    )


def _users(catalog: Catalog | None) -> dict[str, tuple[ModelName, ...]]:
    """Models by the source of their weights."""
    found: defaultdict[str, set[ModelName]] = defaultdict(set)
    for model in () if catalog is None else catalog.models:
        for source in filter(None, (weights_of(model, profile) for profile in model.profiles)):
            found[source].add(model.name)
    return {source: tuple(sorted(models)) for source, models in found.items()}
