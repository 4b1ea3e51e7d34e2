"""What a catalog would lead to: the deciding itself, followed on a copy of the world until nothing is left to do.

Pure, and the same code as the plane's: a pass is `decide`, `merge`, and an imagined fleet that does what it is told.
What cannot be foreseen (failures, requests in flight, how long an engine takes to load) is said, not guessed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from llmgw import holding, imagined
from llmgw.catalog import Catalog
from llmgw.decide import decide
from llmgw.demand import desired
from llmgw.ids import DeviceId, ModelName, NodeId, ReplicaId
from llmgw.imagined import START_S, Scene
from llmgw.judging import judge
from llmgw.merge import accepted_catalog, merge
from llmgw.nodes import NodeState, survey
from llmgw.plan import Judgement, Plan, Verdict
from llmgw.replica_state import ReplicaState
from llmgw.showing import scene as views
from llmgw.showing.paging import View
from llmgw.showing.phases import Phase
from llmgw.stamp import plan_hash
from llmgw.world import Assignment, Input, InputKind, StopCause, World

MAX_PASSES = 400
MAX_IMAGINED_S = 4 * 3600.0
MAX_IDLE = 20
"""Beyond these a plan is not followed any further, and says so. After so many moments in a row at which nothing came
of it, nothing more is expected."""


class StepKind(StrEnum):
    START = "start"
    STOP = "stop"
    MOVE = "move"  # a stop, and a start of the same model on another node
    REPLACE = "replace"  # a stop, and a start of the same model on the same node
    EVICT = "evict"  # a stop for the sake of another model


class Step(View):
    """One thing that would be done. Of a move or a replacement, `replica` is the new one."""

    kind: StepKind
    model: ModelName
    replica: ReplicaId
    node: NodeId
    profile: str
    devices: tuple[DeviceId, ...] = ()
    replaces: ReplicaId | None = None
    from_node: NodeId | None = None
    why: str = ""
    order: int
    """Steps of equal order begin together."""


class ModelOutlook(View):
    """What becomes of one model, the steps in order."""

    model: ModelName
    endpoints_before: int
    endpoints_after: int
    wanted: int
    """0 for a model that leaves."""
    leaves: bool = False
    least: int
    """Fewest endpoints at any moment on the way."""
    down_starts: int = 0
    """So many engine starts, one after the other, is it expected to be without any endpoint; 0 = it stays up."""
    steps: tuple[Step, ...] = ()
    waits: str = ""
    """Why something of it is still not done when nothing more happens by itself."""
    waits_code: str = ""
    """The reason's code, as in `llmgw status --json`."""
    former_after: int = 0
    """How many of the endpoints are then still of the version before this catalog's."""


class Fetch(View):
    """Weights that a node does not report to have in full."""

    node: NodeId
    source: str
    models: tuple[ModelName, ...]


class Foresight(View):
    """The answer to `llmgw plan`."""

    hash: str
    """Of the world and the catalog: `apply --plan` refuses when either is another."""
    generation: int
    """Of the catalog in force now."""
    digest: str
    judgement: Judgement
    text: str
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    models: tuple[ModelOutlook, ...] = ()
    """Only those of which anything changes, or is not as wanted."""
    unchanged: int = 0
    """Models of which nothing changes."""
    fetches: tuple[Fetch, ...] = ()
    under_way: tuple[str, ...] = ()
    """What is starting or stopping already, before the catalog."""
    unforeseen: tuple[str, ...] = ()
    """What this plan cannot know."""
    counts: Mapping[StepKind, int] = {}

    @property
    def is_empty(self) -> bool:
        return not self.counts


def foresee(world: World, raw: Mapping[str, object], now_s: float) -> Foresight:
    """What putting `raw`, a catalog as it is sent, in force now would lead to; of a held one, once it is confirmed."""
    arrival = max((i.arrival for i in world.inbox), default=0) + 1
    asked = replace(world, inbox=(*world.inbox, Input(arrival, InputKind.CATALOG, "plan", [dict(raw)], now_s)))
    judged = judge(asked, now_s)
    verdict = judged.verdicts[-1]
    if verdict.judgement is Judgement.HELD:
        confirmed = foresee(world, {**raw, "allow_removals": True}, now_s)
        return confirmed.model_copy(update={"judgement": verdict.judgement, "text": verdict.text})
    if verdict.judgement not in (Judgement.ACCEPTED, Judgement.UNCHANGED):
        return _told(world, verdict, judged.world, _Diary(), complete=True)
    diary = _Diary()
    catalog = judged.world.catalog
    assert catalog is not None, "it was just judged to be in force"  # noqa: S101 - a mistake of ours
    end, complete = _followed(asked, catalog, now_s, diary)
    return _told(world, verdict, end, diary, complete=complete)


@dataclass
class _Diary:
    """What happened on the way."""

    begun: dict[ReplicaId, tuple[int, Assignment]] = field(default_factory=dict)
    ended: dict[ReplicaId, tuple[int, Assignment]] = field(default_factory=dict)
    least: dict[ModelName, int] = field(default_factory=dict)
    down_s: Counter[ModelName] = field(default_factory=Counter)
    fetches: dict[tuple[NodeId, str], set[ModelName]] = field(default_factory=dict)
    order: int = 0

    def look(self, before: World, plan: Plan) -> None:
        news = False
        for assignment in plan.assign:
            old = before.assignments.get(assignment.replica)
            news |= self._assigned(old, assignment)
        for replica in plan.gone:
            _, begun = self.begun.get(replica, (0, None))
            if begun is not None and begun.replica not in before.sent:
                del self.begun[replica]  # given up before anybody was told of it
                self.ended.pop(replica, None)
        self.order += news

    def _assigned(self, old: Assignment | None, new: Assignment) -> bool:
        if old is None and not new.adopted:
            self.begun[new.replica] = (self.order + 1, new)
        if new.stop is None:
            return self.ended.pop(new.replica, None) is not None or old is None
        if old is None or old.stop is None:
            self.ended[new.replica] = (self.order + 1, new)
            return True
        return False

    def count(self, world: World, lasted_s: float) -> None:
        """How many endpoints each model has, and for how long none."""
        ready = _endpoints(world)
        for name in world.table.models:
            self.least[name] = min(self.least.get(name, ready[name]), ready[name])
            if not ready[name]:
                self.down_s[name] += lasted_s  # type: ignore[assignment]

    def fetch(self, before: World, after: World) -> None:
        for replica in after.assignments.keys() - before.assignments.keys():
            assignment = after.assignments[replica]
            spec, seen = after.specs.get(assignment.spec), after.seen.get(assignment.node)
            source = None if spec is None else spec.weights
            if source is None or source.startswith("file://") or seen is None:
                continue
            if not any(w.source == source and w.complete for w in seen.weights):
                self.fetches.setdefault((assignment.node, source), set()).add(assignment.model)


def _followed(asked: World, catalog: Catalog, now_s: float, diary: _Diary) -> tuple[World, bool]:
    """The world in which nothing is left to do; False when it was not followed to its end."""
    scene, end_s, idle = imagined.begin(asked, now_s), now_s + MAX_IMAGINED_S, 0
    for _ in range(MAX_PASSES):
        plan = decide(scene.world, now_s)
        world = merge(scene.world, plan, now_s, catalog if accepted_catalog(plan.verdicts) is not None else None)
        diary.look(scene.world, plan)
        diary.fetch(scene.world, world)
        after = imagined.told(Scene(world, scene.due), plan.kick, plan.push, now_s)
        if after.world is not scene.world and not _is_quiet(plan):
            diary.count(after.world, 0.0)
            scene, idle = after, 0
            continue
        next_s, idle = _next_s(after, plan), idle + 1
        if next_s is None or idle > MAX_IDLE:
            return after.world, True
        diary.count(after.world, next_s - now_s)
        if next_s > end_s:
            return after.world, False
        scene, now_s = imagined.advanced(after, next_s), next_s
    return scene.world, False


def _is_quiet(plan: Plan) -> bool:
    return plan == Plan(wake_at_s=plan.wake_at_s, phase=plan.phase)


def _next_s(scene: Scene, plan: Plan) -> float | None:
    """The next moment of the imagined fleet; None when only something unforeseen could change anything."""
    if scene.next_s is not None:
        return scene.next_s if plan.wake_at_s is None else min(scene.next_s, plan.wake_at_s)
    return plan.wake_at_s if plan.phase in _GOES_ON else None


_GOES_ON = (Phase.CONVERGING, Phase.SETTLING)
"""In any other phase only something unforeseen changes anything."""


def _endpoints(world: World) -> Counter[ModelName]:
    return Counter(ModelName(e.models[0]) for e in world.table.endpoints.values() if e.models)


# --- telling -------------------------------------------------------------------------------------------------------


def _told(before: World, verdict: Verdict, end: World, diary: _Diary, *, complete: bool) -> Foresight:
    steps = _steps(diary)
    by_model: dict[ModelName, list[Step]] = {}
    for step in steps:
        by_model.setdefault(step.model, []).append(step)
    names = sorted({*_names(before), *_names(end), *by_model})
    outlooks = [_outlook(name, before, end, diary, by_model.get(name, ())) for name in names]
    shown = [o for o in outlooks if o.steps or o.leaves or o.waits or o.endpoints_after < o.wanted]
    fetches = sorted(diary.fetches.items())
    return Foresight(
        hash=plan_hash(before, verdict.digest),
        generation=before.generation,
        digest=verdict.digest,
        judgement=verdict.judgement,
        text=verdict.text,
        problems=verdict.problems,
        warnings=verdict.warnings,
        differences=verdict.differences,
        models=tuple(shown),
        unchanged=len(outlooks) - len(shown),
        fetches=tuple(Fetch(node=n, source=s, models=tuple(sorted(m))) for (n, s), m in fetches),
        under_way=tuple(_under_way(before)),
        unforeseen=tuple(_unforeseen(end, complete)),
        counts=dict(Counter(step.kind for step in steps)),
    )


def _names(world: World) -> set[ModelName]:
    return set() if world.catalog is None else {m.name for m in world.catalog.models}


def _outlook(name: ModelName, before: World, end: World, diary: _Diary, steps: Sequence[Step]) -> ModelOutlook:
    model = None if end.catalog is None else end.catalog.model(name)
    had, has = _endpoints(before)[name], _endpoints(end)[name]
    wanted = 0 if model is None else desired(end, model, 0.0)
    is_down = had > 0 and has > 0 and diary.least.get(name, had) == 0
    waiting = end.waiting.get(f"model/{name}")
    return ModelOutlook(
        model=name,
        endpoints_before=had,
        endpoints_after=has,
        wanted=wanted,
        leaves=model is None,
        least=min(diary.least.get(name, had), had, has) if model is not None else 0,
        down_starts=max(1, round(diary.down_s[name] / START_S)) if is_down else 0,
        steps=tuple(steps),
        waits="" if waiting is None else waiting.text,
        waits_code="" if waiting is None else waiting.code,
        former_after=views.Scene.of(end, 0.0).former(name) if name in end.good else 0,
    )


def _steps(diary: _Diary) -> list[Step]:
    """Each stop beside the start that takes its place, in the order in which they begin."""
    stops = dict(sorted(diary.ended.items(), key=lambda item: (item[1][0], item[0])))
    steps: list[Step] = []
    for replica, (order, new) in sorted(diary.begun.items(), key=lambda item: (item[1][0], len(item[0]), item[0])):
        if replica in stops:
            continue  # it was only there for a while
        old = _replaced(stops, new)
        if old is not None:
            del stops[old.replica]
        steps.append(_step(order, new, old))
    for replica, (order, stopped) in stops.items():
        if replica not in diary.begun:
            kind = StepKind.STOP if _is_own_doing(stopped) else StepKind.EVICT
            steps.append(_step(order, stopped, None, kind))
    return _renumbered(sorted(steps, key=lambda step: (step.order, step.model, step.replica)))


def _renumbered(steps: Sequence[Step]) -> list[Step]:
    """Orders without gaps, from 1 on."""
    orders = {order: number for number, order in enumerate(sorted({step.order for step in steps}), 1)}
    return [step.model_copy(update={"order": orders[step.order]}) for step in steps]


def _replaced(stops: Mapping[ReplicaId, tuple[int, Assignment]], new: Assignment) -> Assignment | None:
    """The stopped replica of the same model whose place `new` takes: on the same node if there is one."""
    mine = [a for _, a in stops.values() if a.model == new.model and a.stop is not None]
    same = [a for a in mine if a.node == new.node]
    return next(iter(same or mine), None)


def _is_own_doing(stopped: Assignment) -> bool:
    return stopped.stop is None or stopped.stop.cause is not StopCause.DISPLACED


def _step(order: int, of: Assignment, old: Assignment | None, kind: StepKind | None = None) -> Step:
    if kind is None:
        kind = StepKind.START
        if old is not None:
            kind = StepKind.REPLACE if old.node == of.node else StepKind.MOVE
    stop = of.stop if old is None else old.stop
    return Step(
        kind=kind,
        model=of.model,
        replica=of.replica,
        node=of.node,
        profile=of.profile,
        devices=tuple(claim.device for claim in of.claims),
        replaces=None if old is None else old.replica,
        from_node=None if old is None else old.node,
        why="" if stop is None else stop.text,
        order=order,
    )


_MOVING = (ReplicaState.STARTING, ReplicaState.LOADING, ReplicaState.WAITING)


def _under_way(world: World) -> Iterable[str]:
    if not world.assignments:
        return
    scene = views.Scene.of(world, 0.0)
    for _, assignment in sorted(world.assignments.items()):
        state = scene.state(assignment)
        if assignment.stop is not None:
            yield f"{assignment.replica} on {assignment.node} stops: {assignment.stop.text}"
        elif state in _MOVING:
            yield f"{assignment.replica} on {assignment.node} is {state}"


def _unforeseen(end: World, complete: bool) -> Iterable[str]:
    seen = survey(end)
    if reason := holding.reason(end, seen, 0.0):
        yield f"nothing is started or stopped at present: {reason}"
    silent = sorted(v.node.id for v in seen.nodes.values() if v.state is NodeState.UNKNOWN)
    if silent:
        yield f"not heard yet, so nothing is placed there: {', '.join(silent[:8])}"
    if not complete:
        yield "this plan was not followed to its end: what it begins is told, not everything it leads to"
