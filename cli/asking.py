"""Asking a fleet: every answer as the value it is, every silence as a sentence. Judges nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from cli.failures import TIMED_OUT, CommandError, meaning
from cli.output import warn
from cli.outside import Session

if TYPE_CHECKING:  # late, for a quick `llmgw --help`
    from llmgw.plan import Verdict
    from workflows.client import Fleet, Run

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

QUERY_LIMIT_S = 10.0
PATIENCE_S = 3.0
"""After so long without an answer it is said that one is waited for."""
POLL_S = 65.0
"""A worker asks for work again after a minute at the latest: silent for longer, it is gone."""


class Plane:
    """What the commands ask of a fleet's control plane. Queries are named as in `workflows.names`."""

    def __init__(self, fleet: "Fleet") -> None:
        self._fleet = fleet

    async def one(self, query: str, answer: type[M], *args: object) -> M:
        """One answer. `CommandError` when no worker gives one."""
        return answer.model_validate(await self.raw(query, *args))

    async def raw(self, query: str, *args: object) -> Any:
        """One answer as JSON types. `CommandError` when no worker gives one."""
        asked = asyncio.ensure_future(self._fleet.query(query, *args))
        done, _ = await asyncio.wait([asked], timeout=PATIENCE_S)
        if not done:
            warn(f"fleet {self._fleet.name} has not answered for {PATIENCE_S:g} s; waiting up to {QUERY_LIMIT_S:g} s")
        try:
            return await asyncio.wait_for(asked, QUERY_LIMIT_S - PATIENCE_S)
        except TimeoutError:
            raise await self._silence() from None

    async def pages(self, query: str, answer: type[M], *args: object) -> tuple[M, ...]:
        """All pages of a paged query; the page is its last argument."""
        pages: list[M] = []
        page: int | None = 0
        while page is not None:
            pages.append(await self.one(query, answer, *args, page))
            page = getattr(pages[-1], "next_page", None)
        return tuple(pages)

    async def polls(self) -> Mapping[str, float]:
        """Seconds since each worker last asked for the fleet's work; nothing where Temporal does not tell."""
        from temporalio.service import RPCError  # late, for a quick `llmgw --help`

        try:
            return await self._fleet.workers()
        except RPCError:
            return {}

    def past(self, most: int) -> "AsyncIterator[Run]":
        """What the fleet's workflow did, run by run, the newest first."""
        return self._fleet.past(most)

    async def apply(self, catalog: object, plan: str = "") -> "Verdict":
        """The verdict on a catalog; with the hash of a plan only if the world has not moved since."""
        return await self._verdict(self._fleet.apply(catalog, plan))

    async def order(self, name: str, fields: Mapping[str, object]) -> "Verdict":
        """The verdict on an order."""
        return await self._verdict(self._fleet.order(name, fields))

    async def _verdict(self, asked: Awaitable["Verdict"]) -> "Verdict":
        try:
            return await asked
        except TimeoutError:
            silence = await self._silence()
            doubt = "Whether it was taken is not known: `llmgw status` tells"
            raise CommandError(silence.code, *silence.sentences, doubt) from None

    async def _silence(self) -> CommandError:
        """Why nobody answers, as far as Temporal knows."""
        name = self._fleet.name
        lately = [identity for identity, age_s in (await self._fleet.workers()).items() if age_s <= POLL_S]
        if lately:
            who = f"a worker ({', '.join(sorted(lately)[:3])}) asked for its work within the last minute"
            return CommandError(TIMED_OUT, f"fleet {name} did not answer in time, though {who}: it may just have died")
        return CommandError(TIMED_OUT, f"no worker runs for fleet {name}: start one (`llmgw worker --fleet {name}`)")


def ask(session: Session, work: Callable[[Plane], Awaitable[T]]) -> T:
    """What `work` makes of the session's fleet. `CommandError` for everything that is not a mistake of ours."""
    try:
        return asyncio.run(_asked(session, work))
    except Exception as error:
        if (meant := meaning(error, session.target)) is None:
            raise
        raise meant from error


async def _asked(session: Session, work: Callable[[Plane], Awaitable[T]]) -> T:
    return await work(Plane(await session.outside.fleet(session.target)))
