"""What every kind of router sink does: apply a difference, or a whole table, and acknowledge it; and watch the router
where it does not tell its state by itself."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from llmgw.calls import PublishCall
from llmgw.ids import ReplicaId
from llmgw.observation import Target
from llmgw.wire import EngineUsage, RouterState, RouterTable, TableReply

Engines: TypeAlias = Callable[[Collection[ReplicaId]], Awaitable[Mapping[ReplicaId, EngineUsage]]]
"""The engines' own word on their use, asked anew through the agents; a replica that nobody can tell of is left out."""


class RouterError(Exception):
    """The router, or what leads to it, does not do as it is told; a sentence for the status."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A sign of life. `state` None: alive, and nothing could be looked at now. `trouble`: what a person should know."""

    state: RouterState | None = None
    trouble: str = ""


class Sink(Protocol):
    """How routers of one kind are told."""

    async def patch(self, call: PublishCall) -> TableReply:
        """Apply the call's difference. `RefusedError`: an older token, another owner, another base."""
        ...

    async def put(self, call: PublishCall, table: RouterTable) -> TableReply:
        """Bring the router to exactly this table, whatever it holds."""
        ...


class Watching(Protocol):
    """A sink that looks at its routers, since they do not tell their state by themselves."""

    def watch(self, fleet: str, target: Target, engines: Engines) -> AsyncGenerator[Heard, None]:
        """Look again and again. Ends only by an error: `RouterError`, `httpx.HTTPError`, OSError, ValueError."""
        ...
