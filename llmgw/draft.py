"""A pass in the making: the working copies that the steps of `decide` fill, over one immutable world.

Steps read `world` for what was, and the draft for what this pass has decided so far.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from llmgw.catalog import Model
from llmgw.ids import ModelName, NodeId, ReplicaId, SpecId
from llmgw.nodes import Survey
from llmgw.wire import LaunchSpec
from llmgw.world import Assignment, Event, Failure, Outgoing, RestingPort, StopCause, StopIntent, Waiting, World

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
    commanded: int = 0
    """Stops that this pass has commanded."""
    next_replica: int = 0
    wakes_s: list[float] = field(default_factory=list)
    more: bool = False
    watched: set[ModelName] = field(default_factory=set)
    """Models that yield their places once they are idle: routers are to tell it soon."""
    _order: list[ReplicaId] = field(default_factory=list)

    models: dict[ModelName, Model] = field(default_factory=dict)
    """The catalog's, by name."""

    @classmethod
    def over(cls, world: World, now_s: float, survey: Survey, hold: str) -> "Draft":
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
            models={} if world.catalog is None else {m.name: m for m in world.catalog.models},
        )

    # --- assignments ---

    def sorted_assignments(self) -> list[Assignment]:
        """By id: no step's outcome depends on the order in which things were learned."""
        if len(self._order) != len(self.assignments):
            self._order = sorted(self.assignments)
        return [self.assignments[replica] for replica in self._order]

    def put(self, assignment: Assignment) -> None:
        if assignment.replica not in self.assignments:
            self._order.clear()
        self.assignments[assignment.replica] = assignment

    def place(self, assignment: Assignment) -> None:
        """A new replica."""
        self.put(assignment)
        self.fresh.append(assignment)
        devices = f" on {len(assignment.claims)} device{'s' * (len(assignment.claims) != 1)}"
        where = assignment.node + (devices if assignment.claims else "")
        self.event(f"replica/{assignment.replica}", f"{assignment.model}/{assignment.profile} goes to {where}")

    def is_known(self, replica: ReplicaId) -> bool:
        """Whether a replica of this id exists, as far as anybody knows."""
        return replica in self.assignments or replica in self.unclaimed or replica in self.world.table.endpoints

    def gone(self, assignment: Assignment, text: str) -> None:
        """Proven gone: its devices are free from this pass on."""
        del self.assignments[assignment.replica]
        self.ended.append(assignment)
        self._order.clear()
        self.event(f"replica/{assignment.replica}", text)

    def want_stop(self, assignment: Assignment, cause: StopCause, text: str) -> None:
        """Wish that it stops. A wish that exists already keeps its age."""
        if assignment.stop is None:
            self.put(replace(assignment, stop=StopIntent(cause, text, self.now_s, -1)))
            self.event(f"replica/{assignment.replica}", f"will stop: {text}")
        elif assignment.stop.cause is not cause and not assignment.stop.commanded:
            self.put(replace(assignment, stop=replace(assignment.stop, cause=cause, text=text)))

    def displace(self, replica: ReplicaId, by: Assignment) -> None:
        """It gives its place to another that waits for it."""
        assignment = self.assignments[replica]
        text = f"{by.model} has a higher priority and takes its place"
        if assignment.stop is None or not assignment.stop.commanded:
            before = assignment.stop or StopIntent(StopCause.DISPLACED, text, self.now_s, -1)
            self.put(replace(assignment, stop=replace(before, cause=StopCause.DISPLACED, text=text, by=by.replica)))
            self.event(f"replica/{replica}", f"will stop: {text}")

    def command(self, assignment: Assignment, stop: StopIntent) -> None:
        """From here there is no way back."""
        stop = replace(stop, commanded=True, commanded_s=self.now_s, port=self.port_of(assignment))
        self.put(replace(assignment, stop=stop))
        self.commanded += 1
        self.event(f"replica/{assignment.replica}", f"is told to stop: {stop.text}")

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


def by_model(assignments: Iterable[Assignment]) -> dict[ModelName, list[Assignment]]:
    grouped: dict[ModelName, list[Assignment]] = {}
    for assignment in assignments:
        grouped.setdefault(assignment.model, []).append(assignment)
    return grouped


def by_node(assignments: Iterable[Assignment]) -> dict[NodeId, list[Assignment]]:
    grouped: dict[NodeId, list[Assignment]] = {}
    for assignment in assignments:
        for part in assignment.parts:
            grouped.setdefault(part.node, []).append(assignment)
    return grouped
