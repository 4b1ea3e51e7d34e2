"""The fleet on one page, for people: what it does, what it has, what waits and why, what was refused, what happened."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cli.asking import Plane
from cli.durations import age
from cli.listings import router_state
from cli.look import Look
from cli.tables import counts, word
from cli.verdicts import held_text
from llmgw import views
from llmgw.sentences import counted

SHOWN_EVENTS = 8
SHOWN_REFUSALS = 3


class Seen(NamedTuple):
    """What the fleet says, and seconds since each worker last asked Temporal for its work."""

    status: views.Status
    polls: Mapping[str, float]


async def _seen(plane: Plane) -> Seen:
    return Seen(await plane.one("status", views.Status), await plane.polls())


def _plain(seen: Seen) -> object:
    return {**seen.status.model_dump(mode="json"), "workers": dict(sorted(seen.polls.items()))}


def _page(seen: Seen) -> RenderableType:
    """Sections that have nothing to say are left out."""
    status = seen.status
    parts = [_headline(status), _facts(seen)]
    parts += [_section(title, rows) for title, rows in _lists(status) if rows]
    return Group(*parts)


def _headline(status: views.Status) -> RenderableType:
    return Text.assemble((status.fleet, "bold"), "  ", word(status.phase), "  ", status.phase_text)


def _facts(seen: Seen) -> RenderableType:
    grid = _grid()
    for name, value in _fact_rows(seen.status):
        grid.add_row(Text(name, "dim"), value)
    if seen.status.acting or seen.polls:
        grid.add_row(Text("worker", "dim"), Text(_workers(seen)))
    return grid


def _workers(seen: Seen) -> str:
    """Who observes, by its last word, and when it last asked for work: a dead one is listed until another speaks."""
    host, colon, process = seen.status.acting.rpartition(":")
    own = f"{process}@{host}" if colon else process
    others = [f"{identity} {age(s)} ago" for identity, s in sorted(seen.polls.items()) if identity != own]
    if own in seen.polls:
        acts = f"{own} acts, asked for work {age(seen.polls[own])} ago"
    else:
        acts = f"{own} acted last" if others else f"{own} acts"
    parts = (acts if seen.status.acting else "", f"also {', '.join(others[:4])}" if others else "")
    return "; ".join(part for part in parts if part)


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


def _devices(status: views.Status) -> str:
    """`5 of 8 devices free, 2 on closed nodes`."""
    closed = status.device_states.get(views.DeviceState.CLOSED, 0)
    more = f", {closed} on nodes that take nothing new" if closed else ""
    return f"{status.devices_free} of {counted(status.devices, 'device')} free{more}"


def _lists(status: views.Status) -> Iterator[tuple[str, list[tuple[str, Text]]]]:
    """Sections in the order in which an operator needs them: a title, and rows of an age and a sentence."""
    yield "Look at", [("", Text(text, "red")) for text in _alarms(status)]
    yield "Catalog held", [(age(h.age_s), Text(held_text(h.text))) for h in (status.held,) if h is not None]
    yield "Last catalog", [(left, Text(text)) for left, text in _last_catalog(status)]
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


def _last_catalog(status: views.Status) -> Iterator[tuple[str, str]]:
    """Only when it was refused: else the generation, or the held one, says it. How long ago, where that is known."""
    last = status.last_catalog
    if last is None or last.judgement != "refused":
        return
    ages_s = [r.age_s for r in status.refusals if r.problems[:1] == last.problems[:1]]
    yield age(min(ages_s)) if ages_s else "", last.text or str(last.judgement)
    yield from (("", problem) for problem in last.problems)


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


STATUS = Look(_seen, _page, _plain)
