"""A pass in the making: the working copies that the steps of `decide` fill, over one immutable world.

Steps read `world` for what was, and the draft for what this pass has decided so far.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from llmgw import plan_size
from llmgw.catalog import Model
from llmgw.grouped import NOTHING, Grouped, grouped
from llmgw.ids import ModelName, NodeId, ReplicaId, SpecId
from llmgw.nodes import Survey
from llmgw.sentences import counted
from llmgw.steady import steady
from llmgw.wire import LaunchSpec
from llmgw.world import (
    Assignment,
    Event,
    Failure,
    Outgoing,
    RestingPort,
    SleepIntent,
    StopCause,
    StopIntent,
    Waiting,
    World,
)

MAX_EVENTS = 50


@dataclass
class Draft:
    world: World
    now_s: float
    survey: Survey
    hold: str = ""
    """Why nothing is started and no stop commanded in this pass; empty when the plane acts."""
    assignments: dict[ReplicaId, Assignment] = field(default_factory=dict)
    specs: dict[SpecId, LaunchSpec] = field(default_factory=dict)
    failures: dict[ModelName, tuple[Failure, ...]] = field(default_factory=dict)
    unclaimed: dict[ReplicaId, float] = field(default_factory=dict)
    resting: dict[NodeId, tuple[RestingPort, ...]] = field(default_factory=dict)
    ended: list[Assignment] = field(default_factory=list)
    """Assignments that this pass has found gone."""
    outbox: dict[NodeId, tuple[Outgoing, ...]] = field(default_factory=dict)
    waits: dict[str, Waiting] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    fresh: list[Assignment] = field(default_factory=list)
    """Assignments that this pass has made, in order."""
    fresh_bytes: int = 0
    """What they take of the plan."""
    commanded: int = 0
    """Stops that this pass has commanded."""
    next_replica: int = 0
    wakes_s: list[float] = field(default_factory=list)
    more: bool = False
    watched: set[ModelName] = field(default_factory=set)
    """Models that yield their places once they are idle: routers are to tell it soon."""
    questions: set[ReplicaId] = field(default_factory=set)
    """Assignments of which anything may have to be decided, or was in this pass; the others are steady."""
    sleepers: frozenset[ReplicaId] = frozenset()
    """Replicas that slept, or were to, when the pass began."""
    _before: Grouped = NOTHING
    _open_models: set[ModelName] = field(default_factory=set)
    """Models of the assignments that were in question when the pass began."""
    _touched_models: set[ModelName] = field(default_factory=set)
    """Models of which an assignment was changed in this pass."""
    _touched_nodes: set[NodeId] = field(default_factory=set)
    _added_to: defaultdict[ModelName, list[ReplicaId]] = field(default_factory=lambda: defaultdict(list))
    """Assignments that the world did not have, or not as the model's."""
    _added_on: defaultdict[NodeId, list[ReplicaId]] = field(default_factory=lambda: defaultdict(list))

    models: dict[ModelName, Model] = field(default_factory=dict)
    """The catalog's, by name."""

    @classmethod
    def over(cls, world: World, now_s: float, survey: Survey, hold: str) -> "Draft":
        groups = grouped(world)
        questions = world.assignments.keys() - steady(world, survey, groups)
        return cls(
            world=world,
            now_s=now_s,
            survey=survey,
            hold=hold,
            assignments=dict(world.assignments),
            specs=dict(world.specs),
            failures=dict(world.failures),
            unclaimed=dict(world.unclaimed),
            resting=dict(world.resting),
            next_replica=world.next_replica,
            questions=questions,
            sleepers=frozenset(r for r in questions if world.assignments[r].sleep is not None),
            _open_models={world.assignments[replica].model for replica in questions},
            _before=groups,
            models={} if world.catalog is None else {m.name: m for m in world.catalog.models},
        )

    # --- assignments ---

    # No step's outcome depends on the order in which things were learned: all of these go by the replica's id.

    def in_question(self) -> list[Assignment]:
        """All but the steady ones, to which no step has anything to do."""
        return [self.assignments[replica] for replica in sorted(self.questions)]

    def touched(self) -> dict[ReplicaId, Assignment]:
        """All that may be other than in the world."""
        return {replica: self.assignments[replica] for replica in self.questions}

    def models_assigned(self) -> set[ModelName]:
        """Models that may have any."""
        return {*self._before.by_model, *self._added_to}

    def of_model(self, model: ModelName) -> Sequence[Assignment]:
        """As they are by now, with the new ones."""
        before = self._before.by_model.get(model, ())
        if model not in self._touched_models:
            return before
        found = [a for was in before if (a := self.assignments.get(was.replica)) is not None and a.model == model]
        return self._with(found, self._added_to.get(model, ()))

    def nodes_assigned(self) -> set[NodeId]:
        """Nodes that anything may be assigned to."""
        return {*self._before.by_node, *self._added_on}

    def on_node(self, node: NodeId) -> Sequence[Assignment]:
        before = self._before.by_node.get(node, ())
        if node not in self._touched_nodes:
            return before
        found = [a for was in before if (a := self.assignments.get(was.replica)) is not None]
        return self._with(found, self._added_on.get(node, ()))

    def _with(self, found: list[Assignment], added: Iterable[ReplicaId]) -> Sequence[Assignment]:
        new = [a for replica in added if (a := self.assignments.get(replica)) is not None]
        return sorted([*found, *new], key=lambda a: a.replica) if new else found

    def is_steady(self, model: ModelName) -> bool:
        """Whether all replicas of the model are, and none came or went in this pass."""
        return model not in self._touched_models and model not in self._open_models

    def put(self, assignment: Assignment) -> None:
        before = self.assignments.get(assignment.replica)
        if before is None or before.model != assignment.model:
            self._added_to[assignment.model].append(assignment.replica)
        if before is None:
            for part in assignment.parts:
                self._added_on[part.node].append(assignment.replica)
        self.assignments[assignment.replica] = assignment
        self.questions.add(assignment.replica)
        self._touch(assignment if before is None else before)
        self._touch(assignment)

    def _touch(self, assignment: Assignment) -> None:
        self._touched_models.add(assignment.model)
        self._touched_nodes.update(part.node for part in assignment.parts)

    def place(self, assignment: Assignment) -> None:
        """A new replica."""
        self.put(assignment)
        self.fresh.append(assignment)
        self.fresh_bytes += plan_size.of_start(assignment)
        devices = f" on {counted(len(assignment.claims), 'device')}"
        where = assignment.node + (devices if assignment.claims else "")
        self.event(f"replica/{assignment.replica}", f"{assignment.model}/{assignment.profile} goes to {where}")

    def is_known(self, replica: ReplicaId) -> bool:
        """Whether a replica of this id exists, as far as anybody knows."""
        return replica in self.assignments or replica in self.unclaimed or replica in self.world.table.endpoints

    def gone(self, assignment: Assignment, text: str) -> None:
        """Proven gone: its devices are free from this pass on."""
        del self.assignments[assignment.replica]
        self.questions.discard(assignment.replica)
        self._touch(assignment)
        self.ended.append(assignment)
        self.event(f"replica/{assignment.replica}", text)

    def want_stop(self, assignment: Assignment, cause: StopCause, text: str) -> None:
        """Wish that it stops. A wish that exists already keeps its age."""
        if assignment.stop is None:
            self.put(replace(assignment, stop=StopIntent(cause, text, self.now_s, -1)))
            self.event(f"replica/{assignment.replica}", f"will stop: {text}")
        elif assignment.stop.cause is not cause and not assignment.stop.commanded:
            self.put(replace(assignment, stop=replace(assignment.stop, cause=cause, text=text)))

    def displace(self, replica: ReplicaId, by: Assignment) -> None:
        """It gives its place to another that waits for it; so does whoever was giving way to it there."""
        assignment = self.assignments[replica]
        text = f"{by.model} has a higher priority and takes its place"
        if assignment.stop is None or not assignment.stop.commanded:
            before = assignment.stop or StopIntent(StopCause.DISPLACED, text, self.now_s, -1)
            self.put(replace(assignment, stop=replace(before, cause=StopCause.DISPLACED, text=text, by=by.replica)))
            self.event(f"replica/{replica}", f"will stop: {text}")
        devices = {claim.device for claim in by.claims}
        for other in self.on_node(by.node):
            if other.stop is not None and other.stop.by == replica and devices & {c.device for c in other.claims}:
                self.displace(other.replica, by)

    def command(self, assignment: Assignment, stop: StopIntent) -> None:
        """From here there is no way back."""
        stop = replace(stop, commanded=True, commanded_s=self.now_s, port=self.port_of(assignment))
        self.put(replace(assignment, stop=stop))
        self.commanded += 1
        self.event(f"replica/{assignment.replica}", f"is told to stop: {stop.text}")

    def let_sleep(self, assignment: Assignment) -> None:
        """Nobody uses it: wish that its engine sleeps. A wish that is in force already keeps its age."""
        before = assignment.sleep
        if before is None:
            self.put(replace(assignment, sleep=SleepIntent(self.now_s)))
            self.event(f"replica/{assignment.replica}", "will sleep where it is")
        elif before.ends:
            self.put(replace(assignment, sleep=replace(before, ends=False, since_s=self.now_s)))

    def awaken(self, assignment: Assignment) -> None:
        """It is wanted again; where its node was told to let it sleep, it is told to wake it."""
        if assignment.sleep is None or assignment.sleep.ends:
            return
        sleep = replace(assignment.sleep, ends=True) if assignment.sleep.commanded else None
        self.put(replace(assignment, sleep=sleep))
        self.event(f"replica/{assignment.replica}", "is wanted again and is woken")

    def port_of(self, assignment: Assignment) -> int | None:
        """Where it listens by its node's last report, else by what is published of it."""
        view, held = self.survey.of(assignment.node), self.world.table.endpoints.get(assignment.replica)
        row = None if view is None else view.rows.get(assignment.replica)
        if row is not None and row.port is not None:
            return row.port
        return None if held is None else urlsplit(held.url).port

    def take_back(self, assignment: Assignment) -> None:
        """It is wanted again, and nothing irrevocable has happened."""
        if assignment.stop is not None and not assignment.stop.commanded:
            self.put(replace(assignment, stop=None))
            self.event(f"replica/{assignment.replica}", "is wanted again and goes on")

    def set_failures(self, model: ModelName, failures: tuple[Failure, ...]) -> None:
        if failures:
            self.failures[model] = failures
        else:
            self.failures.pop(model, None)

    # --- telling ---

    def event(self, subject: str, text: str) -> None:
        if len(self.events) < MAX_EVENTS:
            self.events.append(Event(self.now_s, subject, text))

    def wait(self, subject: str, code: str, text: str, until_s: float | None = None) -> None:
        """Say why something wanted is not done. The age stays while code and text do; the first word counts."""
        if subject in self.waits:
            return
        before = self.world.waiting.get(subject)
        same = before is not None and (before.code, before.text) == (code, text)
        since_s = before.since_s if before is not None and same else self.now_s
        self.waits[subject] = Waiting(subject, code, text, since_s, until_s)
        if until_s is not None:
            self.wake(until_s)

    def wake(self, at_s: float) -> None:
        """Something may change by itself at this moment."""
        if at_s > self.now_s:
            self.wakes_s.append(at_s)

    def wake_at_s(self) -> float | None:
        """The earliest such moment, rounded up to whole seconds."""
        return float(math.ceil(min(self.wakes_s))) if self.wakes_s else None
