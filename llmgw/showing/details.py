"""The small table that Temporal's UI shows as the workflow's current details. Made after every plan, so it is cheap."""

from collections import Counter

from llmgw import members
from llmgw.demand import desired
from llmgw.ids import ModelName
from llmgw.sentences import counted, cut, lasting
from llmgw.showing.phases import routers_behind
from llmgw.world import SilenceLevel, World

MAX_ROWS = 30


def fleet_table(world: World, now_s: float) -> str:
    """Markdown: a line about the fleet, then the models, those that lack something first."""
    lines = [_headline(world), ""]
    if world.catalog is None:
        return "\n".join([*lines, "No catalog yet: `llmgw apply FILE` gives the fleet one."])
    ready = Counter(e.models[0] for e in world.table.endpoints.values() if e.models)
    rows = [(m.name, ready[m.name], desired(world, m, now_s)) for m in world.catalog.models]
    rows.sort(key=lambda row: (row[1] >= row[2], row[0]))
    lines += ["| model | ready / wanted | state | waits |", "|---|---|---|---|"]
    lines += [_row(world, now_s, *row) for row in rows[:MAX_ROWS]]
    if len(rows) > MAX_ROWS:
        lines += ["", f"and {len(rows) - MAX_ROWS} more models; `llmgw status` has them all"]
    return "\n".join(lines)


def _headline(world: World) -> str:
    silent = {t for t, s in world.silence.items() if s.level is not SilenceLevel.HEARD and t.startswith("node/")}
    nodes, routers = members.nodes(world), members.routers(world)
    behind = len(routers_behind(world))
    said = [
        f"**{_cell(world.fleet)}**",
        f"generation {world.generation}",
        counted(len(nodes), "node") + (f" ({len(silent)} silent)" if silent else ""),
        counted(len(routers), "router") + (f" ({behind} behind)" if behind else ""),
        counted(len(world.table.endpoints), "endpoint"),
    ]
    if world.held is not None:
        said.append("a catalog is held")
    if world.fenced_by is not None:
        said.append("fenced: another plane commands")
    return " · ".join(said)


def _row(world: World, now_s: float, name: str, ready: int, wanted: int) -> str:
    published = world.table.models.get(ModelName(name))
    waiting = world.waiting.get(f"model/{name}")
    waits = "" if waiting is None else f"{cut(waiting.text, 120)} (since {lasting(now_s - waiting.since_s)})"
    state = "unavailable" if published is None else published.state
    return f"| {_cell(name)} | {ready} / {wanted} | {state} | {_cell(waits)} |"


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
