"""What `decide` answers: a plan that leaves no choices. The workflow merges it without judging.

Everything is a difference to the world it was made from, so that a history carries changes, not the fleet.
`assign`, `specs`, `unclaimed`, … hold whole records that replace those of the same key.
"""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from llmgw.ids import ModelName, NodeId, ReplicaId, RouterId, SpecId
from llmgw.packing import Packable
from llmgw.table import TableChange
from llmgw.wire import Endpoint, LaunchSpec, TableModel
from llmgw.world import Assignment, Event, Failure, InputKind, Known, Outgoing, RestingPort, Waiting, Wishes


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Judgement(StrEnum):
    ACCEPTED = "accepted"
    UNCHANGED = "unchanged"  # equal to what is in force
    HELD = "held"  # would remove too much: waits for a confirmation
    REFUSED = "refused"


class Verdict(_Value):
    """The answer to one recorded input. Problems and warnings are whole sentences, at most 300 characters each."""

    arrival: int
    kind: InputKind
    name: str
    judgement: Judgement
    generation: int = 0
    digest: str = ""
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    text: str = ""


class Plan(Packable, _Value):
    seen: tuple[int, ...] = ()
    """Numbers of the news that it was made on (`workflows.news`): with it these are taken up, and no others."""
    decided: bool = True
    """False: it was made only to take up news that call for no decision."""
    verdicts: tuple[Verdict, ...] = ()
    wishes: Wishes | None = None
    """The whole of them, when any changed."""
    assign: tuple[Assignment, ...] = ()
    gone: tuple[ReplicaId, ...] = ()
    """Assignments proven gone: their devices are free."""
    forget_unreadable: tuple[str, ...] = ()
    """Unreadable records of which nothing is left."""
    specs: dict[SpecId, LaunchSpec] = {}
    failures: dict[ModelName, tuple[Failure, ...]] = {}
    """Per model the whole list; empty = forget."""
    next_replica: int | None = None
    keep_good: tuple[ModelName, ...] = ()
    """Models whose entry in the catalog that is replaced served: it is kept while the new one rolls."""
    forget_good: tuple[ModelName, ...] = ()
    known: dict[NodeId, Known] = {}
    forget_nodes: tuple[NodeId, ...] = ()
    unclaimed: dict[ReplicaId, float | None] = {}
    """None = no longer."""
    resting: dict[NodeId, tuple[RestingPort, ...]] = {}
    """Nodes whose resting ports changed: all of them; empty = none left."""
    outbox: dict[NodeId, tuple[Outgoing, ...]] = {}
    """Nodes whose list of outstanding commands changed: the whole list; empty = nothing left to say."""
    kick: tuple[NodeId, ...] = ()
    """Node lanes to run now (new commands, or a repeat is due)."""
    put_models: tuple[TableModel, ...] = ()
    drop_models: tuple[ModelName, ...] = ()
    put_endpoints: tuple[Endpoint, ...] = ()
    drop_endpoints: tuple[ReplicaId, ...] = ()
    push: tuple[RouterId, ...] = ()
    """Router lanes to run now."""
    forget_routers: tuple[RouterId, ...] = ()
    waiting: dict[str, Waiting | None] = {}
    """By subject; None = no longer."""
    events: tuple[Event, ...] = ()
    settled: bool = False
    """The settling window is over."""
    jump_to_seq: int | None = None
    """All agents have reported after we were overtaken: go on beyond this sequence number."""
    new_epoch: int | None = None
    """A takeover was ordered: go on under this epoch, settling anew."""
    ended: bool = False
    """Everything of an ending fleet is gone."""
    wake_at_s: float | None = None
    """The next moment at which anything could change by itself; whole seconds."""
    targets_changed: bool = False
    """Nodes, routers or their addresses differ from what is observed."""
    more: bool = False
    """Not everything fitted: plan again at once."""
    phase: str = ""
    """What the fleet is doing, in one word (`llmgw.views.Phase`); decided here, since workflow code must not."""
    safe_mode: str = ""
    """Deciding failed with this error; the plan only withdraws what is dead."""

    @property
    def table_change(self) -> TableChange:
        """What it changes in the router table; false when nothing."""
        return TableChange(self.put_models, self.drop_models, self.put_endpoints, self.drop_endpoints)
