"""The fleet on one page: what an operator sees first."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

from llmgw import members, router_kinds
from llmgw.catalog import Router
from llmgw.ids import NodeId, RouterId
from llmgw.nodes import NodeState, NodeView
from llmgw.plan import Judgement, Verdict
from llmgw.recent import FinishedTask, Recent, Refusal
from llmgw.replica_state import ReplicaState
from llmgw.sentences import counted, cut, cut_list, lasting, names_shown
from llmgw.showing.fleet_rows import WaitingRow, waiting_row
from llmgw.showing.paging import MAX_PAGE_BYTES, View, size_of
from llmgw.showing.phases import Phase, phase, unfinished
from llmgw.showing.scene import Scene
from llmgw.wire import Device, DeviceHealth, ModelState, Outcome
from llmgw.world import Event, HeldCatalog, RouterFacts, SilenceLevel, Waiting, World

SHOWN = 20
SHOWN_ROUTERS = 100


class RouterRow(View):
    id: RouterId
    url: str
    kind: str
    heard: bool | None = None
    """False: silent. None: nothing is known yet."""
    confirmed_revision: int = -1
    """The last table revision it confirmed; -1 = none yet."""
    current: bool = False
    """It confirmed the newest table, and holds it by its own word."""
    confirmed_age_s: float | None = None
    """Seconds since its last confirmation."""
    draining: int = 0
    """Withdrawn endpoints with requests in flight."""
    problem: str = ""
    limits: tuple[str, ...] = ()
    """What of the table its kind cannot express."""


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


class DeviceState(StrEnum):
    FREE = "free"
    CLOSED = "closed"  # unused, on a node that takes nothing: cordoned, drained, leaving or not heard
    USED = "used"  # a replica is assigned to it
    QUARANTINED = "quarantined"
    BAD = "bad"


class DrainRow(View):
    """A node that is being emptied."""

    node: NodeId
    age_s: float
    """Since the order; 0 for a node that was removed and leaves."""
    left: int
    """Replicas that are still on it."""
    text: str
    """What is left, and what becomes of it."""
    left_s: float | None = None
    """Until what finds no place elsewhere is stopped; None: it stays, or the time is over."""


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
    devices = _device_states(scene)
    routers = sorted(members.routers(world).values(), key=lambda r: r.id)
    longest = sorted(world.waiting.values(), key=lambda w: (w.since_s, w.subject))
    return _fitted(
        Status(
            fleet=world.fleet,
            phase=now_phase,
            phase_text=cut(_phase_text(scene, recent, now_phase)),
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
            drains=_drains(scene)[:SHOWN],
            routers=tuple(router_row(scene, r) for r in routers[:SHOWN_ROUTERS]),
            routers_total=len(routers),
            last_catalog=_last_catalog(recent.last_catalog),
            held=_held(scene, world.held),
            fenced_by=_holder(world),
            safe_mode=cut(recent.safe_mode),
            waiting=tuple(waiting_row(scene, w) for w in longest[:SHOWN]),
            waiting_total=len(longest),
            waiting_by=dict(sorted(Counter(w.code for w in longest).items())),
            warnings=cut_list(_warnings(scene, recent, longest), SHOWN),
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


def _device_states(scene: Scene) -> dict[DeviceState, int]:
    found: Counter[DeviceState] = Counter()
    for view in scene.survey.nodes.values():
        devices = () if view.seen is None else view.seen.inventory.devices
        found.update(_device_state(scene, view, device) for device in devices)
    return dict(sorted(found.items()))


def _device_state(scene: Scene, view: NodeView, device: Device) -> DeviceState:
    quarantined = {} if view.seen is None else view.seen.quarantined
    if device.id in quarantined or device.health is DeviceHealth.QUARANTINED:
        return DeviceState.QUARANTINED
    if device.health is not DeviceHealth.OK:
        return DeviceState.BAD
    if scene.by_device.get(device.id):
        return DeviceState.USED
    is_open = view.judges and not (view.cordoned or view.leaving or view.drain is not None)
    return DeviceState.FREE if is_open else DeviceState.CLOSED


def _drains(scene: Scene) -> tuple[DrainRow, ...]:
    emptied = [v for v in scene.survey.nodes.values() if v.drain is not None or v.leaving]
    rows = (_drain(scene, view) for view in emptied)
    return tuple(sorted(rows, key=lambda row: (-row.age_s, row.node)))


def _drain(scene: Scene, view: NodeView) -> DrainRow:
    mine, drain = scene.by_node.get(view.node.id, ()), view.drain
    names = names_shown([a.replica for a in mine])
    left_s = None if drain is None else scene.left_s(drain.deadline_s)
    if not mine:
        text = "nothing is left on it"
    elif drain is None or drain.deadline_s is None:
        text = f"{counted(len(mine), 'replica')} left ({names}); what finds no place elsewhere stays"
    elif left_s is None:
        text = f"{counted(len(mine), 'replica')} left ({names}); its deadline is over, so they are stopped"
    else:
        end = f"what finds no place elsewhere is stopped in {lasting(left_s)}"
        text = f"{counted(len(mine), 'replica')} left ({names}); {end}"
    age_s = 0.0 if drain is None else scene.age_s(drain.since_s)
    return DrainRow(node=view.node.id, age_s=age_s, left=len(mine), text=cut(text), left_s=left_s)


def router_row(scene: Scene, router: Router) -> RouterRow:
    world = scene.world
    facts = world.routers.get(router.id, RouterFacts())
    silence = world.silence.get(f"router/{router.id}")
    heard = None if silence is None else silence.level is SilenceLevel.HEARD
    if heard is None and facts.confirmed_s is not None:
        heard = True
    newest = facts.acked_revision == world.table_revision and facts.held_digest == world.table.digest
    problem = facts.problem or world.troubles.get(f"router/{router.id}", "")
    return RouterRow(
        id=router.id,
        url=router.url,
        kind=router.kind,
        heard=heard,
        confirmed_revision=facts.acked_revision,
        current=newest,
        confirmed_age_s=None if facts.confirmed_s is None else scene.age_s(facts.confirmed_s),
        draining=len(facts.draining),
        problem=cut(problem),
        limits=router_kinds.limits(router.kind, world.table.models.values(), world.table.endpoints.values()),
    )


def _phase_text(scene: Scene, recent: Recent, now: Phase) -> str:
    """What the phase means right now, and what ends it."""
    match now:
        case Phase.ENDING:
            return (
                f"everything is withdrawn, drained and stopped; {counted(len(scene.world.assignments), 'replica')} left"
            )
        case Phase.FENCED:
            return f"{_holder(scene.world)}: nothing is commanded. `llmgw takeover` is the only way on"
        case Phase.SAFE_MODE:
            return f"nothing is started or stopped until deciding works again: {recent.safe_mode}"
        case Phase.OVERTAKEN:
            return f"newer commands than ours are remembered out there; {_heard(scene)} before anything is commanded"
        case Phase.PAUSED:
            return _paused(scene)
        case Phase.SETTLING:
            return f"nothing is started or stopped before the nodes are heard; {_heard(scene)}"
        case Phase.NO_CATALOG:
            return "nothing is wanted yet: `llmgw apply FILE` gives the fleet its catalog"
        case Phase.HELD:
            return "a catalog waits for a confirmation, and the one in force goes on"
        case Phase.CONVERGING:
            return "; ".join(unfinished(scene.world, scene.now_s))
        case Phase.DEGRADED:
            return f"nothing is under way; out of order: {'; '.join(_out_of_order(scene))}"
        case Phase.STEADY:
            return "everything wanted is ready"


def _paused(scene: Scene) -> str:
    pause = scene.world.wishes.pause
    if pause is None:
        return ""
    why = f"{pause.reason}; " if pause.reason else ""
    left_s = scene.left_s(pause.until_s)
    ends = "`llmgw resume` goes on" if left_s is None else f"goes on in {lasting(left_s)}, or with `llmgw resume`"
    return f"{why}nothing is started or stopped for {lasting(scene.age_s(pause.since_s))} already; {ends}"


def _out_of_order(scene: Scene) -> list[str]:
    """What nothing is being done about, in words; the longest first."""
    longest = sorted(scene.world.waiting.values(), key=lambda w: (w.since_s, w.subject))
    return [f"{w.subject} {w.text}" for w in longest[:3]] or list(unfinished(scene.world, scene.now_s))


def _heard(scene: Scene) -> str:
    states = Counter(view.state for view in scene.survey.nodes.values())
    return f"{len(scene.survey.nodes) - states[NodeState.UNKNOWN]} of {len(scene.survey.nodes)} heard"


def _holder(world: World) -> str:
    if (by := world.fenced_by) is None:
        return ""
    return f"installation {by.installation} commands fleet {by.fleet} under epoch {by.epoch}"


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


def _warnings(scene: Scene, recent: Recent, longest: Sequence[Waiting]) -> list[str]:
    """What needs a person, though the fleet goes on."""
    doubtful = [v for v in scene.survey.nodes.values() if v.state in (NodeState.SET_ASIDE, NodeState.FOREIGN)]
    silent = [v.node.id for v in scene.survey.nodes.values() if v.is_silent]
    back = sorted(w.subject for w in longest if w.code == "rolled_back")
    given_up = sorted(w.subject for w in longest if w.code == "failed")
    overdue = sorted(w.subject.partition("/")[2] for w in longest if w.code == "wake_overdue")
    said = [
        scene.survey.brake,
        *(f"node {v.node.id} is {v.state.replace('_', ' ')}: {v.note}" for v in doubtful),
        f"silent: {names_shown(silent)}" if silent else "",
        f"not as the catalog has it, the last good version runs: {names_shown(back)}" if back else "",
        *_left_out(scene),
        f"given up after repeated failures: {names_shown(given_up)}" if given_up else "",
        f"asked for and still not ready: {names_shown(overdue)}" if overdue else "",
        *(f"carried {what} could not be read and is set aside: {why}" for what, why in recent.unreadable.items()),
        *(
            f"the carried record of {name} could not be read: {record.problem}"
            for name, record in sorted(scene.world.unreadable.items())
        ),
        *(f"not carried over, for its size: {text}" for text in recent.shed),
        *_quarantined(scene),
        *_complaints(scene),
    ]
    if longest and (age_s := scene.age_s(longest[0].since_s)) > LONG_WAIT_S:
        said.append(f"{longest[0].subject} has been waiting for {lasting(age_s)}: `llmgw explain {longest[0].subject}`")
    return [text for text in said if text]


LONG_WAIT_S = 3600.0


def _left_out(scene: Scene) -> list[str]:
    """Routers whose silence has lasted beyond the limit: stops do not wait for their word."""
    silent = sorted(
        id_
        for id_ in members.routers(scene.world)
        if (s := scene.world.silence.get(f"router/{id_}")) is not None and s.level is not SilenceLevel.HEARD
    )
    return [f"silent routers are left out, stops do not wait for them: {names_shown(silent)}"] if silent else []


def _quarantined(scene: Scene) -> list[str]:
    seen = [view.seen for view in scene.survey.nodes.values() if view.seen is not None]
    return [f"node {s.node} keeps device {d} out of use: {why}" for s in seen for d, why in s.quarantined.items()]


def _complaints(scene: Scene) -> list[str]:
    """What agents say is wrong with their own nodes; many that say the same are one line."""
    said: dict[str, list[str]] = {}
    for view in scene.survey.nodes.values():
        for problem in view.seen.problems if view.seen is not None else ():
            said.setdefault(problem, []).append(view.node.id)
    return [f"{'nodes' if len(ids) > 1 else 'node'} {names_shown(ids)}: {problem}" for problem, ids in said.items()]
