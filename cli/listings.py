"""What the listing commands ask for and how they show it: a row per command. Imported when one of them runs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel
from rich.console import Group, RenderableType
from rich.text import Text

from cli.asking import Plane
from cli.durations import age
from cli.look import Look
from cli.tables import Column, Rows, word
from llmgw import views
from llmgw.sentences import counted
from llmgw.wire import Endpoint, TableModel


class Device(NamedTuple):
    """A device and the node it is in."""

    node: str
    row: views.DeviceRow


async def model_rows(plane: Plane) -> list[views.ModelRow]:
    return [row for page in await plane.pages("models", views.ModelsPage) for row in page.models]


async def replica_rows(plane: Plane) -> list[views.ReplicaRow]:
    return [row for page in await plane.pages("replicas", views.ReplicasPage) for row in page.replicas]


async def node_rows(plane: Plane) -> list[views.NodeRow]:
    return [row for page in await plane.pages("nodes", views.NodesPage) for row in page.nodes]


async def _devices(plane: Plane) -> list[Device]:
    return [Device(node.id, device) for node in await node_rows(plane) for device in node.devices]


async def _routers(plane: Plane) -> Sequence[views.RouterRow]:
    return (await plane.one("status", views.Status)).routers


async def _endpoints(plane: Plane) -> Sequence[views.EndpointsPage]:
    return await plane.pages("endpoints", views.EndpointsPage)


def _dumped(rows: Iterable[BaseModel]) -> list[Any]:
    return [row.model_dump(mode="json") for row in rows]


# --- models and replicas -------------------------------------------------------------------------------------------


def _why(model: views.ModelRow) -> str:
    waiting = model.waiting
    parts = (model.override, *(() if waiting is None else (f"{age(waiting.age_s)}: {waiting.text}",)), _former(model))
    return "; ".join(part for part in parts if part)


def _former(model: views.ModelRow) -> str:
    if not model.former or (model.waiting is not None and not model.waiting.meanwhile):
        return ""
    return f"the version before the edit serves meanwhile ({model.former}/{model.wanted})"


MODELS: Sequence[Column[views.ModelRow]] = (
    Column("MODEL", lambda m: m.name),
    Column("STATE", lambda m: word(m.state)),
    Column("READY", lambda m: f"{m.ready}/{m.wanted}"),
    Column("BOUNDS", lambda m: f"{m.min}" if m.min == m.max else f"{m.min}-{m.max}", wide=True),
    Column("ALIASES", lambda m: ", ".join(m.aliases), wide=True),
    Column("PROFILES", lambda m: ", ".join(m.profiles), wide=True),
    Column("WAITING", _why),
)


REPLICAS: Sequence[Column[views.ReplicaRow]] = (
    Column("REPLICA", lambda r: r.id),
    Column("STATE", lambda r: word(r.state)),
    Column("AGE", lambda r: age(r.age_s)),
    Column("NODE", lambda r: r.node),
    Column("PROFILE", lambda r: r.profile),
    Column("MODEL", lambda r: r.model, wide=True),
    Column("DEVICES", lambda r: str(len(r.devices)), wide=True),
    Column("ROUTED", lambda r: "yes" if r.published else "no", wide=True),
    Column("REASON", lambda r: r.reason),
)

# --- machines ------------------------------------------------------------------------------------------------------


def _free(node: views.NodeRow) -> str:
    """Devices that may be used at once, of all; a node with very many tells only of the first ones."""
    free = sum(1 for device in node.devices if device.free)
    return f"{free}/{len(node.devices)}" + (f" +{node.more_devices}" if node.more_devices else "")


def _note(node: views.NodeRow) -> str:
    marks = [name for name in ("cordoned", "leaving") if getattr(node, name)]
    untold = f"{counted(node.outstanding, 'command')} outstanding" if node.outstanding else ""
    return "; ".join(
        part for part in (", ".join(marks), _drain(node), node.note, *node.problems, node.call_problem, untold) if part
    )


def _drain(node: views.NodeRow) -> str:
    """`drained`, or how far it is: `draining, 2 left, the rest is stopped in 9m`."""
    if not node.drained:
        return ""
    if not node.replicas:
        return "drained"
    end = f", the rest is stopped in {age(node.drain_left_s)}" if node.drain_left_s is not None else ""
    return f"draining, {node.replicas} left{end}"


NODES: Sequence[Column[views.NodeRow]] = (
    Column("NODE", lambda n: n.id),
    Column("STATE", lambda n: word(n.state)),
    Column("POOL", lambda n: n.pool),
    Column("FREE", _free),
    Column("REPLICAS", lambda n: str(n.replicas)),
    Column("ZONE", lambda n: n.zone or "", wide=True),
    Column("URL", lambda n: n.url, wide=True),
    Column("VERSION", lambda n: n.version, wide=True),
    Column("NOTE", _note),
)


def _holders(device: Device) -> str:
    """Who holds it; else whether something may: on a node that takes nothing new it is only unused."""
    unheld = "free" if device.row.free else "" if device.row.problem else "unused"
    return ", ".join(device.row.holders) or unheld


DEVICES: Sequence[Column[Device]] = (
    Column("NODE", lambda d: d.node),
    Column("INDEX", lambda d: str(d.row.index)),
    Column("KIND", lambda d: d.row.kind),
    Column("MEMORY", lambda d: "" if d.row.memory_mib is None else f"{d.row.memory_mib / 1024:.4g}GiB"),
    Column("HELD BY", _holders, whole=20),
    Column("ID", lambda d: d.row.id, wide=True),
    Column("PROBLEM", lambda d: d.row.problem),
)

ROUTERS: Sequence[Column[views.RouterRow]] = (
    Column("ROUTER", lambda r: r.id),
    Column("STATE", lambda r: word(router_state(r))),
    Column("TABLE", lambda r: "none" if r.confirmed_revision < 0 else f"revision {r.confirmed_revision}"),
    Column("CONFIRMED", lambda r: f"{age(r.confirmed_age_s)} ago" if r.confirmed_age_s is not None else "never"),
    Column("DRAINING", lambda r: str(r.draining), wide=True),
    Column("KIND", lambda r: r.kind, wide=True),
    Column("URL", lambda r: r.url, wide=True),
    Column("PROBLEM", lambda r: "; ".join(filter(None, (r.problem, *r.limits)))),
)


def router_state(router: views.RouterRow) -> str:
    """`ready` when it holds the newest table and is heard."""
    if router.heard is None:
        return "unknown"
    if not router.heard:
        return "silent"
    return "ready" if router.current else "behind"


# --- weights --------------------------------------------------------------------------------------------------------


async def _weights(plane: Plane) -> list[views.WeightsRow]:
    return [row for page in await plane.pages("weights", views.WeightsPage) for row in page.weights]


def _size(number: float) -> str:
    """`13.4GiB`: three digits, in the unit that leaves the fewest."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.3g}{unit}"
        number /= 1024
    return f"{number:.3g}TiB"


WEIGHTS: Sequence[Column[views.WeightsRow]] = (
    Column("NODE", lambda w: w.node),
    Column("SOURCE", lambda w: w.source),
    Column("SIZE", lambda w: _size(w.bytes)),
    Column("STATE", lambda w: word("complete" if w.complete else "partial")),
    Column("MODELS", lambda w: ", ".join(w.models) or Text("none", "dim")),
    Column("UNUSED FOR", lambda w: age(w.idle_s), wide=True),
    Column("PATH", lambda w: w.path, wide=True),
)

# --- what routers are told -----------------------------------------------------------------------------------------

ENDPOINTS: Sequence[Column[Endpoint]] = (
    Column("ENDPOINT", lambda e: e.id),
    Column("MODELS", lambda e: ", ".join(e.models)),
    Column("URL", lambda e: e.url),
    Column("PRIORITY", lambda e: str(e.priority)),
    Column("WEIGHT", lambda e: str(e.weight)),
    Column("SERVED NAME", lambda e: e.served_name, wide=True),
    Column("ENGINE", lambda e: e.engine, wide=True),
    Column("POOL", lambda e: e.pool, wide=True),
)

TABLE_MODELS: Sequence[Column[TableModel]] = (
    Column("MODEL", lambda m: m.name),
    Column("STATE", lambda m: word(m.state)),
    Column("ALIASES", lambda m: ", ".join(m.aliases)),
)


def _table_page(pages: Sequence[views.EndpointsPage]) -> RenderableType:
    head = Text(f"table revision {pages[-1].revision}, digest {pages[-1].digest[:12] or 'none'}", "dim")
    models = [model for page in pages for model in page.models]
    endpoints = [endpoint for page in pages for endpoint in page.endpoints]
    return Group(
        head,
        Text(),
        Rows(TABLE_MODELS, models, "routers know no model"),
        Text(),
        Rows(ENDPOINTS, endpoints, "no endpoints"),
    )


def _table_plain(pages: Sequence[views.EndpointsPage]) -> object:
    return {
        "revision": pages[-1].revision,
        "digest": pages[-1].digest,
        "models": _dumped(model for page in pages for model in page.models),
        "endpoints": _dumped(endpoint for page in pages for endpoint in page.endpoints),
    }


LISTINGS: Mapping[str, Look[Any]] = {
    "models": Look(model_rows, lambda rows: Rows(MODELS, rows, "no models: `llmgw apply FILE` gives some"), _dumped),
    "replicas": Look(replica_rows, lambda rows: Rows(REPLICAS, rows, "no replicas"), _dumped),
    "nodes": Look(node_rows, lambda rows: Rows(NODES, rows, "no nodes: `llmgw nodes add URL` adds one"), _dumped),
    "devices": Look(
        _devices,
        lambda rows: Rows(DEVICES, rows, "no devices are reported"),
        lambda rows: [{"node": d.node, **d.row.model_dump(mode="json")} for d in rows],
    ),
    "routers": Look(
        _routers, lambda rows: Rows(ROUTERS, rows, "no routers: `llmgw routers add URL` adds one"), _dumped
    ),
    "weights": Look(_weights, lambda rows: Rows(WEIGHTS, rows, "no node reports any weights"), _dumped),
    "endpoints": Look(_endpoints, _table_page, _table_plain),
}
