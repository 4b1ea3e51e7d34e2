"""Replicas, models and nodes as rows, a page at a time."""

from llmgw.catalog import Model
from llmgw.demand import desired
from llmgw.ids import DeviceId, ModelName, NodeId, ReplicaId
from llmgw.nodes import NodeState, NodeView
from llmgw.replica_state import ReplicaState
from llmgw.sentences import counted, cut, lasting
from llmgw.showing.devices import DeviceRow, device_row
from llmgw.showing.paging import PAGE_SIZE, Cut, View, cut_page
from llmgw.showing.scene import Scene
from llmgw.wire import MetricNames, ModelState
from llmgw.world import Assignment, Waiting, World

MAX_NAMES = 50
MAX_DEVICES = 64
MAX_WAITING_CHARS = 600
"""Shown of one row at most, so that a row never is larger than a page."""
NO_METRICS = MetricNames()
"""Of an engine that names no gauge."""


class WaitingRow(View):
    """Something wanted and not done. `left_s`: until the latest moment it waits for."""

    subject: str
    code: str
    text: str
    age_s: float
    left_s: float | None = None
    meanwhile: str = ""
    """Of a model: what serves while it waits, when that is not the catalog's version."""


class ReplicaRow(View):
    id: ReplicaId
    model: ModelName
    profile: str
    node: NodeId
    devices: tuple[DeviceId, ...]
    state: ReplicaState
    reason: str = ""
    age_s: float
    """In this state; since it was decided while it waits, since the wish while it stops."""
    url: str | None = None
    engine: str = ""
    metrics_path: str | None = None
    """Where the engine tells its own figures, below `url`; None when it tells none."""
    attempt: int
    published: bool
    exit_code: int | None = None
    former: bool = False
    """Of the version before the catalog's."""


class ReplicasPage(View):
    replicas: tuple[ReplicaRow, ...]
    total: int
    next_page: int | None = None


class ModelRow(View):
    name: ModelName
    aliases: tuple[str, ...] = ()
    """As the catalog has them; those in force are in the table (`endpoints`)."""
    state: ModelState
    wanted: int
    ready: int
    """Replicas that may take traffic."""
    former: int = 0
    """How many of those are of the version before the catalog's: they serve while the new one waits or rolls."""
    replicas: dict[ReplicaState, int]
    min: int
    max: int
    priority: int = 0
    profiles: tuple[str, ...] = ()
    override: str = ""
    """What moved the count away from the minimum."""
    failures: int = 0
    """Failed attempts that still count."""
    waiting: WaitingRow | None = None


class ModelsPage(View):
    models: tuple[ModelRow, ...]
    total: int
    next_page: int | None = None


class NodeRow(View):
    id: NodeId
    url: str
    state: NodeState
    pool: str
    zone: str | None = None
    labels: dict[str, str]
    note: str = ""
    """Why it is not simply healthy."""
    cordoned: bool = False
    drained: bool = False
    drain_left_s: float | None = None
    """Until what finds no place elsewhere is stopped; None: there is no such moment, or it is over."""
    leaving: bool = False
    replicas: int = 0
    devices: tuple[DeviceRow, ...] = ()
    more_devices: int = 0
    outstanding: int = 0
    """Commands it still has to be told."""
    call_problem: str = ""
    disk_free_bytes: int | None = None
    hostname: str = ""
    version: str = ""
    problems: tuple[str, ...] = ()
    """What its agent says is wrong with the node itself."""


class NodesPage(View):
    nodes: tuple[NodeRow, ...]
    total: int
    next_page: int | None = None


def replicas(world: World, now_s: float, page: int = 0, page_size: int = PAGE_SIZE) -> ReplicasPage:
    """All assigned replicas, by id."""
    scene = Scene.of(world, now_s)
    found = [a for _, a in sorted(world.assignments.items())]
    cut: Cut[ReplicaRow] = cut_page(found, page, page_size, lambda a: replica_row(scene, a))
    return ReplicasPage(replicas=cut.rows, total=len(found), next_page=cut.next_page)


def models(world: World, now_s: float, page: int = 0, page_size: int = PAGE_SIZE) -> ModelsPage:
    """All models of the catalog, by name."""
    scene = Scene.of(world, now_s)
    found = [] if world.catalog is None else sorted(world.catalog.models, key=lambda m: m.name)
    cut: Cut[ModelRow] = cut_page(found, page, page_size, lambda m: model_row(scene, m))
    return ModelsPage(models=cut.rows, total=len(found), next_page=cut.next_page)


def nodes(world: World, now_s: float, page: int = 0, page_size: int = PAGE_SIZE) -> NodesPage:
    """All nodes that are observed, by id."""
    scene = Scene.of(world, now_s)
    found = list(scene.survey.nodes.values())
    cut: Cut[NodeRow] = cut_page(found, page, page_size, lambda view: node_row(scene, view))
    return NodesPage(nodes=cut.rows, total=len(found), next_page=cut.next_page)


def replica_row(scene: Scene, assignment: Assignment) -> ReplicaRow:
    row, state = scene.row(assignment), scene.state(assignment)
    spec = scene.world.specs.get(assignment.spec)
    if assignment.stop is not None:
        age_s = scene.age_s(assignment.stop.since_s)
    else:
        age_s = scene.age_s(assignment.created_s) if row is None else scene.reported_age_s(row, assignment.node)
    return ReplicaRow(
        id=assignment.replica,
        model=assignment.model,
        profile=assignment.profile,
        node=assignment.node,
        devices=tuple(c.device for c in assignment.claims[:MAX_DEVICES]),
        state=state,
        reason=scene.reason(assignment),
        age_s=age_s,
        url=row.url if row is not None else None,
        engine="" if spec is None else spec.engine,
        metrics_path=None if spec is None or spec.metrics == NO_METRICS else spec.metrics.path,
        attempt=assignment.attempt,
        published=scene.is_published(assignment.replica),
        exit_code=row.exit_code if row is not None else None,
        former=scene.is_former(assignment),
    )


def model_row(scene: Scene, model: Model) -> ModelRow:
    mine = scene.by_model.get(model.name, ())
    published = scene.world.table.models.get(model.name)
    waiting = scene.waiting("model", model.name)
    counts: dict[ReplicaState, int] = {}
    for assignment in mine:
        state = scene.state(assignment)
        counts[state] = counts.get(state, 0) + 1
    return ModelRow(
        name=model.name,
        aliases=model.aliases[:MAX_NAMES],
        state=ModelState.UNAVAILABLE if published is None else published.state,
        wanted=desired(scene.world, model, scene.now_s),
        ready=sum(1 for a in mine if scene.is_published(a.replica)),
        former=scene.former(model.name),
        replicas=counts,
        min=model.replicas.min,
        max=model.replicas.max,
        priority=model.priority,
        profiles=tuple(p.name for p in model.profiles[:MAX_NAMES]),
        override=override(scene, model),
        failures=len(scene.world.failures.get(model.name, ())),
        waiting=None if waiting is None else waiting_row(scene, waiting),
    )


def override(scene: Scene, model: Model) -> str:
    """What moved a model's count away from its minimum, in words that go on after "it is"."""
    wishes = scene.world.wishes
    scale = wishes.scales.get(model.name)
    if scale is not None and (scale.until_s is None or scale.until_s > scene.now_s):
        left_s = scene.left_s(scale.until_s)
        return f"scaled to {scale.replicas}" + (f" for another {lasting(left_s)}" if left_s is not None else "")
    if model.name not in wishes.wakes or model.replicas.min > 0:
        return ""
    if model.idle_timeout_s is None:
        return "awake, and stays so: it has no idle_timeout_s"
    return f"awake until it was not used for {lasting(model.idle_timeout_s)}"


def node_row(scene: Scene, view: NodeView) -> NodeRow:
    node, seen, world = view.node, view.seen, scene.world
    devices = () if seen is None else seen.inventory.devices
    call = world.calls.get(node.id)
    return NodeRow(
        id=node.id,
        url=node.url,
        state=view.state,
        pool=node.pool,
        zone=node.zone,
        labels=dict(list(node.labels.items())[:MAX_NAMES]),
        note=view.note or ("" if seen is None else seen.inventory.problem),
        cordoned=view.cordoned,
        drained=view.drain is not None,
        drain_left_s=None if view.drain is None else scene.left_s(view.drain.deadline_s),
        leaving=view.leaving,
        replicas=len(scene.by_node.get(node.id, ())),
        devices=tuple(device_row(scene, view, device) for device in devices[:MAX_DEVICES]),
        more_devices=max(0, len(devices) - MAX_DEVICES),
        outstanding=len(world.outbox.get(node.id, ())),
        call_problem=call.problem if call is not None and call.failures else "",
        disk_free_bytes=None if seen is None or seen.disk is None else seen.disk.free_bytes,
        hostname="" if seen is None else seen.hostname,
        version="" if seen is None else seen.version,
        problems=() if seen is None else seen.problems,
    )


def waiting_row(scene: Scene, waiting: Waiting) -> WaitingRow:
    return WaitingRow(
        subject=waiting.subject,
        code=waiting.code,
        text=cut(waiting.text, MAX_WAITING_CHARS),
        age_s=scene.age_s(waiting.since_s),
        left_s=scene.left_s(waiting.until_s),
        meanwhile=_meanwhile(scene, waiting),
    )


def _meanwhile(scene: Scene, waiting: Waiting) -> str:
    kind, _, name = waiting.subject.partition("/")
    former = scene.former(ModelName(name)) if kind == "model" and waiting.code not in TOLD else 0
    return f"the version before the edit serves meanwhile, with {counted(former, 'endpoint')}" if former else ""


TOLD = ("rolled_back", "canary")
"""Codes of waiting entries whose text says which version serves."""
