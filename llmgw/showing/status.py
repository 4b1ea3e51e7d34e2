"""The fleet on one page: what an operator sees first."""

from collections import Counter
from collections.abc import Mapping, Sequence

from llmgw import members
from llmgw.ids import NodeId
from llmgw.nodes import NodeState, NodeView
from llmgw.plan import Judgement, Verdict
from llmgw.recent import FinishedTask, Recent, Refusal
from llmgw.replica_state import ReplicaState
from llmgw.sentences import cut, cut_list
from llmgw.showing.devices import DeviceState, device_states
from llmgw.showing.drains import DrainRow, drains
from llmgw.showing.fleet_rows import WaitingRow, waiting_row
from llmgw.showing.paging import MAX_PAGE_BYTES, View, size_of
from llmgw.showing.phase_text import holder, phase_text
from llmgw.showing.phases import Phase, phase
from llmgw.showing.router_rows import RouterRow, router_row
from llmgw.showing.scene import Scene
from llmgw.showing.warnings import warnings
from llmgw.wire import ModelState, Outcome
from llmgw.world import Event, HeldCatalog, World

SHOWN = 20
SHOWN_ROUTERS = 100


class CatalogRow(View):
    """The last catalog that was sent, and what became of it."""

    judgement: Judgement
    text: str = ""
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class HeldRow(View):
    digest: str
    age_s: float
    text: str


class RefusalRow(View):
    name: str
    age_s: float
    problems: tuple[str, ...]


class EventRow(View):
    age_s: float
    subject: str
    text: str


class TaskRow(View):
    """What a node answered to an order that is not about replicas."""

    node: NodeId
    age_s: float
    outcome: Outcome
    text: str = ""


class RunRow(View):
    """The workflow's own history, which continues as new before it grows long."""

    events: int = 0
    bytes: int = 0
    continued: int = 0
    """How often it has continued as new."""


class Status(View):
    fleet: str
    phase: Phase
    phase_text: str = ""
    generation: int
    """How many catalogs have been accepted."""
    digest: str
    epoch: int
    seq: int
    acting: str = ""
    """The worker process that observes."""
    table_revision: int
    table_digest: str
    endpoints: int
    models: dict[ModelState, int]
    replicas: dict[ReplicaState, int]
    nodes: dict[NodeState, int]
    coming_up: int = 0
    """Nodes that are heard and whose devices are still coming up."""
    devices: int = 0
    """All that the nodes report."""
    devices_free: int = 0
    """Those that may be used at once."""
    device_states: Mapping[DeviceState, int] = {}
    drains: tuple[DrainRow, ...] = ()
    """Nodes that are being emptied, or are empty for it, oldest first."""
    routers: tuple[RouterRow, ...] = ()
    routers_total: int = 0
    last_catalog: CatalogRow | None = None
    held: HeldRow | None = None
    fenced_by: str = ""
    safe_mode: str = ""
    waiting: tuple[WaitingRow, ...] = ()
    """Longest first."""
    waiting_total: int = 0
    waiting_by: Mapping[str, int] = {}
    """How many wait, by the code of the reason."""
    warnings: tuple[str, ...] = ()
    refusals: tuple[RefusalRow, ...] = ()
    """Newest first, as are events and tasks."""
    events: tuple[EventRow, ...] = ()
    tasks: tuple[TaskRow, ...] = ()
    run: RunRow = RunRow()
    catalogs_note: str = ""
    """Which earlier catalogs are not kept, and why."""
    shortened: tuple[str, ...] = ()
    """Lists that were cut so that the page stays small."""


def status(world: World, recent: Recent, now_s: float, run: RunRow | None = None, catalogs_note: str = "") -> Status:
    """One page about the whole fleet, at most about 64 KB."""
    scene = Scene.of(world, now_s)
    now_phase = phase(world, recent, now_s)
    devices = device_states(scene)
    routers = sorted(members.routers(world).values(), key=lambda r: r.id)
    longest = sorted(world.waiting.values(), key=lambda w: (w.since_s, w.subject))
    return _fitted(
        Status(
            fleet=world.fleet,
            phase=now_phase,
            phase_text=cut(phase_text(scene, recent, now_phase)),
            generation=world.generation,
            digest=world.digest,
            epoch=world.epoch,
            seq=world.seq,
            acting=recent.acting,
            table_revision=world.table_revision,
            table_digest=world.table.digest,
            endpoints=len(world.table.endpoints),
            models=dict(Counter(m.state for m in world.table.models.values())),
            replicas=dict(Counter(scene.state(a) for a in world.assignments.values())),
            nodes=dict(Counter(view.state for view in scene.survey.nodes.values())),
            coming_up=sum(1 for view in scene.survey.nodes.values() if _is_coming_up(view)),
            devices=sum(devices.values()),
            devices_free=devices.get(DeviceState.FREE, 0),
            device_states=devices,
            drains=drains(scene)[:SHOWN],
            routers=tuple(router_row(scene, r) for r in routers[:SHOWN_ROUTERS]),
            routers_total=len(routers),
            last_catalog=_last_catalog(recent.last_catalog),
            held=_held(scene, world.held),
            fenced_by=holder(world),
            safe_mode=cut(recent.safe_mode),
            waiting=tuple(waiting_row(scene, w) for w in longest[:SHOWN]),
            waiting_total=len(longest),
            waiting_by=dict(sorted(Counter(w.code for w in longest).items())),
            warnings=cut_list(warnings(scene, recent, longest), SHOWN),
            refusals=tuple(_refusal(scene, r) for r in reversed(recent.refusals[-SHOWN:])),
            events=tuple(_event(scene, e) for e in reversed(recent.events[-2 * SHOWN :])),
            tasks=tuple(_task(scene, t) for t in reversed(recent.tasks[-SHOWN:])),
            run=run or RunRow(),
            catalogs_note=catalogs_note,
        )
    )


_LISTS = ("refusals", "drains", "events", "tasks", "waiting", "warnings", "routers")


def _fitted(made: Status) -> Status:
    """`made` with its longest lists halved until it fits; which ones is said in `shortened`."""
    while size_of(made) > MAX_PAGE_BYTES:
        lists: dict[str, Sequence[object]] = {name: getattr(made, name) for name in _LISTS}
        longest = max(lists, key=lambda name: len(str(lists[name])))
        if not lists[longest]:
            break
        kept = lists[longest][: len(lists[longest]) // 2]
        shortened = tuple(sorted({*made.shortened, longest}))
        made = made.model_copy(update={longest: kept, "shortened": shortened})
    return made


def _is_coming_up(view: NodeView) -> bool:
    if view.seen is None or not view.judges:
        return False
    return not view.seen.inventory.complete and not view.seen.inventory.problem


def _last_catalog(verdict: Verdict | None) -> CatalogRow | None:
    if verdict is None:
        return None
    problems, warnings = cut_list(verdict.problems, 10), cut_list(verdict.warnings, 10)
    return CatalogRow(judgement=verdict.judgement, text=verdict.text, problems=problems, warnings=warnings)


def _held(scene: Scene, held: HeldCatalog | None) -> HeldRow | None:
    return None if held is None else HeldRow(digest=held.digest, age_s=scene.age_s(held.since_s), text=held.text)


def _refusal(scene: Scene, refusal: Refusal) -> RefusalRow:
    return RefusalRow(name=refusal.name, age_s=scene.age_s(refusal.at_s), problems=cut_list(refusal.problems, 5))


def _event(scene: Scene, event: Event) -> EventRow:
    return EventRow(age_s=scene.age_s(event.at_s), subject=event.subject, text=cut(event.text))


def _task(scene: Scene, task: FinishedTask) -> TaskRow:
    result = task.result.result
    if result.refusal is not None:
        text = result.refusal.message
    else:
        text = "; ".join(
            f"{p.path}: {p.outcome.replace('_', ' ')}" + (f", {p.freed_bytes:,} bytes" if p.freed_bytes else "")
            for p in result.paths
        )
    return TaskRow(node=task.node, age_s=scene.age_s(task.at_s), outcome=result.outcome, text=cut(text, 1000))
