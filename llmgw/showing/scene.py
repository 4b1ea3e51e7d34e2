"""What every view looks things up in: the world with the derived facts of one moment. Made per query, kept nowhere."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmgw.ids import DeviceId, ModelName, NodeId, ReplicaId
from llmgw.launches import fingerprints
from llmgw.nodes import NodeState, NodeView, Survey, survey
from llmgw.replica_state import ReplicaState, derive
from llmgw.wire import ReplicaReport
from llmgw.world import Assignment, SilenceLevel, Waiting, World


@dataclass(frozen=True, slots=True)
class Scene:
    world: World
    now_s: float
    survey: Survey
    by_model: Mapping[ModelName, Sequence[Assignment]]
    by_node: Mapping[NodeId, Sequence[Assignment]]
    by_device: Mapping[DeviceId, Sequence[Assignment]]

    @classmethod
    def of(cls, world: World, now_s: float) -> "Scene":
        by_model: dict[ModelName, list[Assignment]] = defaultdict(list)
        by_node: dict[NodeId, list[Assignment]] = defaultdict(list)
        by_device: dict[DeviceId, list[Assignment]] = defaultdict(list)
        for _, assignment in sorted(world.assignments.items()):
            by_model[assignment.model].append(assignment)
            for part in assignment.parts:
                by_node[part.node].append(assignment)
                for claim in part.claims:
                    by_device[claim.device].append(assignment)
        return cls(world, now_s, survey(world), by_model, by_node, by_device)

    def age_s(self, since_s: float) -> float:
        return round(max(0.0, self.now_s - since_s), 1)

    def left_s(self, until_s: float | None) -> float | None:
        """Seconds until then; None when there is no such moment or it is over."""
        return round(until_s - self.now_s, 1) if until_s is not None and until_s > self.now_s else None

    def row(self, assignment: Assignment) -> ReplicaReport | None:
        """What its node last said about it."""
        view = self.survey.of(assignment.node)
        return None if view is None else view.rows.get(assignment.replica)

    def reported_age_s(self, row: ReplicaReport, node: NodeId) -> float:
        """How long the engine has been in the state that was reported, now."""
        seen = self.world.seen.get(node)
        if seen is not None and row.replica in seen.since:
            return self.age_s(seen.since[row.replica])
        since_report_s = 0.0 if seen is None or seen.at_s is None else max(0.0, self.now_s - seen.at_s)
        return round(row.state_age_s + since_report_s, 1)

    def is_published(self, replica: ReplicaId) -> bool:
        return replica in self.world.table.endpoints

    def is_former(self, assignment: Assignment) -> bool:
        """Whether it serves, or still has to go, as its model was before the catalog changed it."""
        catalog = self.world.catalog
        if catalog is None or assignment.unreadable or assignment.model not in self.world.good:
            return False
        prints = fingerprints(catalog).of.get(assignment.model)
        return prints is not None and assignment.fingerprint not in prints

    def former(self, model: ModelName) -> int:
        """How many endpoints of a model are of the version before the catalog's."""
        if model not in self.world.good:
            return 0
        mine = self.by_model.get(model, ())
        return sum(1 for a in mine if self.is_published(a.replica) and self.is_former(a))

    def state(self, assignment: Assignment) -> ReplicaState:
        view = self.survey.of(assignment.node)
        level = None if view is None else LEVELS.get(view.state)
        row = self.row(assignment) if level is not None else None
        return derive(assignment, row, level, self.is_published(assignment.replica))

    def waiting(self, kind: str, id_: str) -> Waiting | None:
        return self.world.waiting.get(f"{kind}/{id_}")

    def reason(self, assignment: Assignment) -> str:
        """Why the replica is not (or no longer) simply ready; empty when there is nothing to say."""
        world = self.world
        waiting = self.waiting("replica", assignment.replica)
        refused = world.refused.get(assignment.replica)
        row = self.row(assignment)
        view = self.survey.of(assignment.node)
        said = (
            waiting.text if waiting is not None else "",
            assignment.stop.text if assignment.stop is not None else "",
            f"{assignment.node} refuses it for now: {refused.text}" if refused is not None else "",
            self._held_devices(assignment) if row is None else row.reason,
            f"{assignment.node} is {view.state}: {view.note}" if view is not None and view.note else "",
            self._serves_meanwhile(assignment),
            self._waits_to_leave(assignment, view),
        )
        return next((text for text in said if text), "")

    def _serves_meanwhile(self, assignment: Assignment) -> str:
        if not self.is_published(assignment.replica) or not self.is_former(assignment):
            return ""
        waiting = self.waiting("model", assignment.model)
        if waiting is not None and waiting.code in ("rolled_back", "canary"):
            return "is of the last good version"
        return "is of the version before the edit, and serves until a new one is ready"

    def _waits_to_leave(self, assignment: Assignment, view: NodeView | None) -> str:
        if view is None or not (view.drain is not None or view.leaving) or not self.is_published(assignment.replica):
            return ""
        return f"{assignment.node} is {'leaving' if view.leaving else 'drained'}: serves until another has its place"

    def _held_devices(self, assignment: Assignment) -> str:
        """Whom it waits for, when its devices are still being released."""
        others = {
            other.replica
            for claim in assignment.claims
            for other in self.by_device[claim.device]
            if other.replica != assignment.replica and other.created_s <= assignment.created_s
        }
        return f"waits for devices of {', '.join(sorted(others))}" if others else ""


LEVELS: Mapping[NodeState, SilenceLevel] = {
    NodeState.HEALTHY: SilenceLevel.HEARD,
    NodeState.SUSPECT: SilenceLevel.SUSPECT,
    NodeState.LOST: SilenceLevel.LOST,
}
"""Nodes in any other state are not heard, or their reports do not count."""
