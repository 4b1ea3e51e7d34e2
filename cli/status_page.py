"""The fleet on one page, for people: what it does, what it has, what waits and why, what was refused, what happened."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cli.durations import age
from cli.listings import router_state
from cli.tables import counts, word
from cli.verdicts import held_text
from llmgw import views
from llmgw.sentences import counted

SHOWN_EVENTS = 8
SHOWN_REFUSALS = 3


def status_page(status: views.Status) -> RenderableType:
    """Sections that have nothing to say are left out."""
    parts = [_headline(status), _facts(status)]
    parts += [_section(title, rows) for title, rows in _lists(status) if rows]
    return Group(*parts)


def _headline(status: views.Status) -> RenderableType:
    return Text.assemble((status.fleet, "bold"), "  ", word(status.phase), "  ", status.phase_text)


def _facts(status: views.Status) -> RenderableType:
    grid = _grid()
    for name, value in _fact_rows(status):
        grid.add_row(Text(name, "dim"), value)
    return grid


def _fact_rows(status: views.Status) -> Iterator[tuple[str, Text]]:
    catalog = "none yet" if not status.digest else f"generation {status.generation}, digest {status.digest[:12]}"
    yield "catalog", Text(catalog)
    yield "models", counts(status.models)
    yield "replicas", counts(status.replicas)
    nodes = counts(status.nodes)
    yield "nodes", Text.assemble(nodes, f"; {_devices(status)}")
    yield "table", Text(f"revision {status.table_revision}, {counted(status.endpoints, 'endpoint')}")
    states = [router_state(router) for router in status.routers]
    yield "routers", counts({state: states.count(state) for state in dict.fromkeys(states)})
    if status.catalogs_note:
        yield "history", Text(status.catalogs_note)
    if status.acting:
        yield "worker", Text(status.acting)


def _devices(status: views.Status) -> str:
    """`5 of 8 devices free, 2 on closed nodes`."""
    closed = status.device_states.get(views.DeviceState.CLOSED, 0)
    more = f", {closed} on nodes that take nothing new" if closed else ""
    return f"{status.devices_free} of {counted(status.devices, 'device')} free{more}"


def _lists(status: views.Status) -> Iterator[tuple[str, list[tuple[str, Text]]]]:
    """Sections in the order in which an operator needs them: a title, and rows of an age and a sentence."""
    yield "Look at", [("", Text(text, "red")) for text in _alarms(status)]
    yield "Catalog held", [(age(h.age_s), Text(held_text(h.text))) for h in (status.held,) if h is not None]
    yield "Last catalog", [("", Text(text)) for text in _last_catalog(status)]
    more = status.waiting_total - len(status.waiting)
    said = [w for w in status.waiting if not _is_said_above(w)]
    waiting = [(age(w.age_s), Text.assemble((w.subject, "bold"), f": {_waits(w)}")) for w in said]
    yield "Waiting", waiting + ([("", Text(f"and {more} more", "dim"))] if more > 0 else [])
    yield "Drained", [(age(d.age_s), Text.assemble((d.node, "bold"), f": {d.text}")) for d in status.drains]
    behind = [r for r in status.routers if router_state(r) != "ready"]
    limited = [(r, limit) for r in status.routers for limit in r.limits]
    yield (
        "Routers",
        [
            *(("", Text.assemble((r.id, "bold"), f": {_router(r)}")) for r in behind),
            *(("", Text.assemble((r.id, "bold"), f" ({r.kind}) {limit}")) for r, limit in limited),
        ],
    )
    refusals = [
        (age(r.age_s), Text(f"{r.name}: {'; '.join(r.problems)}"))
        for r in status.refusals
        if not _is_told(status, r.problems)
    ]
    yield "Refused lately", refusals[:SHOWN_REFUSALS]
    tasks = status.tasks[:SHOWN_REFUSALS]
    yield "Answers of nodes", [(age(t.age_s), Text(f"{t.node}: {t.outcome}; {t.text}")) for t in tasks]
    yield (
        "Lately",
        [(age(e.age_s), Text.assemble((e.subject, "bold"), f": {e.text}")) for e in status.events[:SHOWN_EVENTS]],
    )


def _is_said_above(waiting: views.WaitingRow) -> bool:
    """What the fleet itself waits for is told by its phase, as a warning or as the held catalog."""
    return waiting.subject == "fleet" and waiting.code in ("hold", "brake", "held")


def _waits(waiting: views.WaitingRow) -> str:
    return "; ".join(part for part in (waiting.text, waiting.meanwhile) if part)


def _alarms(status: views.Status) -> Iterable[str]:
    safe_mode = f"safe mode: {status.safe_mode}" if status.safe_mode else ""
    fenced = f"fenced: {status.fenced_by}" if status.fenced_by else ""
    return (text for text in (safe_mode, fenced, *status.warnings) if text)


def _last_catalog(status: views.Status) -> Iterable[str]:
    """Only when it was refused: else the generation, or the held one, says it."""
    last = status.last_catalog
    if last is None or last.judgement != "refused":
        return ()
    return (last.text or str(last.judgement), *last.problems)


def _is_told(status: views.Status, problems: Sequence[str]) -> bool:
    """Whether these are the last catalog's, which are told in full."""
    last = status.last_catalog
    return last is not None and problems[:1] == last.problems[:1]


def _router(router: views.RouterRow) -> str:
    state = router_state(router)
    told = "confirmed no table yet" if router.confirmed_revision < 0 else f"has revision {router.confirmed_revision}"
    return f"{state}, {told}" + (f": {router.problem}" if router.problem else "")


def _section(title: str, rows: list[tuple[str, Text]]) -> RenderableType:
    grid = _grid()
    for left, text in rows:
        grid.add_row(Text(left, "dim"), text)
    return Group(Text(), Text(title, "bold"), grid)


def _grid() -> Table:
    """An indent, a narrow left column, and text that wraps."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(min_width=10, no_wrap=True)
    grid.add_column(overflow="fold")
    return grid
