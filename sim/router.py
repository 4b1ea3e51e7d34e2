"""A router as a pure state machine: one table per fleet, fenced, with requests in flight per endpoint."""

from dataclasses import dataclass, field

from llmgw import fencing, table
from llmgw.fencing import Fence
from llmgw.ids import ModelName, ReplicaId, RouterId
from llmgw.observation import RouterSeen
from llmgw.table import Table
from llmgw.wire import ErrorCode, ErrorReply, HeldTable, RouterTable, TableModel, TablePatch, TableReply, Token


@dataclass
class SimRouter:
    id: RouterId
    table: Table = table.EMPTY
    token: Token | None = None
    in_flight: dict[ReplicaId, int] = field(default_factory=dict)
    idle: frozenset[ReplicaId] = frozenset()
    asked: frozenset[ModelName] = frozenset()
    instance: str = "router-1"
    revision: int = 0
    _last: tuple[tuple[object, ...], RouterSeen] | None = None
    """The last state that it told, and what it was made of."""

    def put(self, whole: RouterTable) -> TableReply | ErrorReply:
        if (refusal := self._fence(whole.token)) is not None:
            return refusal
        return self._take(table.build(whole.models, whole.endpoints), whole.token)

    def patch(self, patch: TablePatch) -> TableReply | ErrorReply:
        if (refusal := self._fence(patch.token)) is not None:
            return refusal
        if patch.base != self.table.digest:
            return ErrorReply(code=ErrorCode.BASE_DIFFERS, message="another base", digest=self.table.digest)
        return self._take(table.apply(self.table, patch), patch.token)

    def _fence(self, token: Token) -> ErrorReply | None:
        fence = fencing.compare(token, self.token)
        if fence is Fence.STALE:
            return ErrorReply(code=ErrorCode.STALE_TOKEN, message="stale", held=self.token)
        if fence is Fence.FOREIGN:
            return ErrorReply(code=ErrorCode.FOREIGN_OWNER, message="foreign", held=self.token)
        return None

    def _take(self, new: Table, token: Token) -> TableReply:
        before, self.table, self.token = self.table.models, new, token
        longer = {name for name, row in new.models.items() if _is_longer(row, before.get(name))}
        self.asked -= {ModelName(e.models[0]) for e in new.endpoints.values()}
        self.idle &= {replica for replica, e in new.endpoints.items() if e.models[0] not in longer}
        self.revision += 1
        return TableReply(token=token, digest=new.digest, draining=self.draining())

    def draining(self) -> tuple[ReplicaId, ...]:
        return tuple(sorted(r for r, n in self.in_flight.items() if n > 0 and r not in self.table.endpoints))

    def ask(self, *models: str) -> None:
        """Clients ask for models that have no endpoint."""
        self.asked |= {ModelName(m) for m in models if not any(m in e.models for e in self.table.endpoints.values())}
        self.revision += 1

    def rest(self) -> None:
        """Every endpoint without a request has been idle for as long as anybody wants to know."""
        self.idle = frozenset(self.table.endpoints.keys() - self.in_flight.keys())
        self.revision += 1

    def begin(self, replica: ReplicaId) -> None:
        """A request goes to an endpoint; only what the table names can be picked."""
        if replica not in self.table.endpoints:
            raise AssertionError(f"{replica} is not in the table of {self.id}")
        self.in_flight[replica] = self.in_flight.get(replica, 0) + 1
        self.idle -= {replica}

    def end(self, replica: ReplicaId) -> None:
        self.in_flight[replica] -= 1
        if self.in_flight[replica] == 0:
            del self.in_flight[replica]
            self.revision += 1

    def lose_memory(self) -> None:
        """Restarted without its disk: no table at all."""
        self.table, self.token, self.in_flight = table.EMPTY, None, {}
        self.restart()

    def restart(self) -> None:
        number = int(self.instance.rpartition("-")[2]) + 1
        self.instance, self.revision, self.in_flight = f"router-{number}", 0, {}
        self.idle, self.asked = frozenset(), frozenset()

    def state(self) -> RouterSeen:
        """What it says now; the very same value while nothing has changed."""
        now = (self.instance, self.revision, self.token, self.table, *self.in_flight.items(), self.idle, self.asked)
        if self._last is None or self._last[0] != now:
            self._last = now, self._state()
        return self._last[1]

    def _state(self) -> RouterSeen:
        held = None if self.token is None else HeldTable(token=self.token, digest=self.table.digest)
        return RouterSeen(
            router=self.id,
            instance=self.instance,
            revision=self.revision,
            held=held,
            draining=self.draining(),
            idle=tuple(sorted(self.idle & self.table.endpoints.keys())),
            asked=tuple(sorted(self.asked)),
        )


def _is_longer(now: TableModel, before: TableModel | None) -> bool:
    """What was idle for as long as was asked before may not be for as long as is asked now."""
    return before is not None and (now.idle_after_s or 0.0) > (before.idle_after_s or now.idle_after_s or 0.0)
