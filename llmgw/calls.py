"""What the plane's activities are given and what they answer: small values that enter the history.

A call's input names everything it needs, so that a late attempt does exactly what it was made for and is refused by
its token where the world has gone on.
"""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from llmgw.ids import ModelName, NodeId, ReplicaId, RouterId, SpecId
from llmgw.wire import (
    MAX_ERROR_CHARS,
    CommandResult,
    DeviceClaim,
    Endpoint,
    LaunchSpec,
    Owner,
    Pull,
    RemoveWeights,
    Stop,
    TableModel,
    Token,
)


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


def cut(text: str) -> str:
    """An error text of at most `MAX_ERROR_CHARS`, cut at the source."""
    return text if len(text) <= MAX_ERROR_CHARS else text[: MAX_ERROR_CHARS - 1] + "…"


class CallOutcome(StrEnum):
    ANSWERED = "answered"
    STALE = "stale"  # a newer token is held there
    FOREIGN = "foreign"  # belongs to another installation or fleet
    FAILED = "failed"  # says something about this call, never about the node


class StartOrder(_Value):
    """A Start whose launch spec is kept once per batch."""

    replica: ReplicaId
    model: ModelName
    fingerprint: str
    attempt: int
    spec: SpecId
    claims: tuple[DeviceClaim, ...] = ()
    host_memory_mib: int = 0


class PullOrder(_Value):
    """A Pull that `replica` waits for: a refusal of it is one of that replica."""

    replica: ReplicaId
    pull: Pull


class DispatchCall(_Value):
    """One node's whole list of outstanding commands."""

    node: NodeId
    url: str
    token: Token
    specs: dict[SpecId, LaunchSpec] = {}
    starts: tuple[StartOrder, ...] = ()
    stops: tuple[Stop, ...] = ()
    tasks: dict[str, RemoveWeights | Pull] = {}
    released_ports: tuple[int, ...] = ()
    pulls: tuple[PullOrder, ...] = ()
    asleep: dict[ReplicaId, bool] = {}
    """See `CommandBatch.asleep`."""
    more: bool = False
    """It does not hold everything that the node was never told: the rest follows right after the answer."""

    def waiting(self) -> tuple[ReplicaId, ...]:
        """The replicas that its pulls are for."""
        return tuple(order.replica for order in self.pulls)

    def subjects(self) -> tuple[ReplicaId, ...]:
        """The replicas this batch names."""
        return (*(s.replica for s in self.starts), *(s.replica for s in self.stops), *self.asleep)


class TaskResult(_Value):
    task: str
    result: CommandResult


class DispatchAnswer(_Value):
    """`refused` lists only what was refused; what is not listed was accepted or is already so."""

    outcome: CallOutcome
    refused: tuple[CommandResult, ...] = ()
    gone: tuple[ReplicaId, ...] = ()
    """Stopped, and proven gone by the answer itself: their places are free."""
    tasks: tuple[TaskResult, ...] = ()
    held: Token | None = None
    owner: Owner | None = None
    text: str = ""

    def is_plain(self) -> bool:
        """Everything was accepted or is already so, and nothing else came of it."""
        return self.outcome is CallOutcome.ANSWERED and not (self.refused or self.tasks or self.gone)


class Delta(_Value):
    """The difference from the table with digest `base` to the one with `digest`."""

    base: str
    digest: str
    put_models: tuple[TableModel, ...] = ()
    drop_models: tuple[ModelName, ...] = ()
    put_endpoints: tuple[Endpoint, ...] = ()
    drop_endpoints: tuple[ReplicaId, ...] = ()


class PublishCall(_Value):
    """Bring a router to table `revision`. Without `delta`, or where its base is not held, the whole table is read by
    query and sent."""

    router: RouterId
    kind: str
    url: str
    token: Token
    revision: int
    delta: Delta | None = None
    settings: dict[str, str] = {}
    """What the router's kind needs beside the address."""


class PublishAnswer(_Value):
    """`revision`: the table revision now in force at the router (newer than asked when the whole table was read)."""

    outcome: CallOutcome
    revision: int = -1
    digest: str = ""
    draining: tuple[ReplicaId, ...] = ()
    held: Token | None = None
    owner: Owner | None = None
    full: bool = False
    text: str = ""


class ObserveCall(_Value):
    """Whom to observe is read by query when `targets` differs from what the pool knows."""

    fleet: str
    pool: str = ""
    cursor: int = 0
    targets: int = 0
