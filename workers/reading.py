"""What the worker's pages are made of: the fleet's own answers, asked anew, or lately enough where many look on."""

import asyncio
import time
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from temporalio.client import WorkflowQueryFailedError
from temporalio.service import RPCError

from llmgw import views
from workflows import names
from workflows.client import Fleet

M = TypeVar("M", bound=BaseModel)

LIMIT_S = 10.0
SHARE = 10.0
"""Looking on costs the plane at most a tenth of its time: a picture that took 0.3 s to ask for is kept for 3 s."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What metrics are made of."""

    status: views.Status
    models: tuple[views.ModelRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that is drawn."""

    status: views.Status
    models: tuple[views.ModelRow, ...]
    replicas: tuple[views.ReplicaRow, ...]
    nodes: tuple[views.NodeRow, ...]


async def read(fleet: Fleet) -> Reading | None:
    """None when the fleet does not answer."""
    try:
        async with asyncio.timeout(LIMIT_S):
            status = views.Status.model_validate(await fleet.query(names.STATUS))
            models = await _pages(fleet, names.MODELS, views.ModelsPage)
    except (RPCError, WorkflowQueryFailedError, TimeoutError, ValidationError):
        return None
    return Reading(status, tuple(row for page in models for row in page.models))


async def replicas(fleet: Fleet) -> tuple[views.ReplicaRow, ...] | None:
    """None when the fleet does not answer."""
    try:
        async with asyncio.timeout(LIMIT_S):
            pages = await _pages(fleet, names.REPLICAS, views.ReplicasPage)
    except (RPCError, WorkflowQueryFailedError, TimeoutError, ValidationError):
        return None
    return tuple(row for page in pages for row in page.replicas)


async def _pages(fleet: Fleet, query: str, kind: type[M]) -> list[M]:
    return [kind.model_validate(page) for page in await fleet.pages(query)]


class Onlookers:
    """One picture for everybody who looks on, asked for only while somebody does."""

    def __init__(self, fleet: Fleet, least_s: float = 1.0) -> None:
        self._fleet = fleet
        self._least_s = least_s
        self._lock = asyncio.Lock()
        self._picture: Picture | None = None
        self._until_s = 0.0

    async def picture(self) -> Picture | None:
        """The newest, or the last one while it is new enough; None when the fleet does not answer."""
        async with self._lock:
            if time.monotonic() >= self._until_s:
                began_s = time.monotonic()
                self._picture = await self._asked()
                now_s = time.monotonic()
                self._until_s = now_s + max(self._least_s, SHARE * (now_s - began_s))
            return self._picture

    async def _asked(self) -> Picture | None:
        found = await read(self._fleet)
        if found is None:
            return None
        try:
            async with asyncio.timeout(LIMIT_S):
                replicas = await _pages(self._fleet, names.REPLICAS, views.ReplicasPage)
                nodes = await _pages(self._fleet, names.NODES, views.NodesPage)
        except (RPCError, WorkflowQueryFailedError, TimeoutError, ValidationError):
            return None
        return Picture(
            found.status,
            found.models,
            tuple(row for page in replicas for row in page.replicas),
            tuple(row for page in nodes for row in page.nodes),
        )
