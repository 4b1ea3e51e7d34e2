"""Telling a router the table: a difference where its base is held, else the whole table, read by query and sent.

One attempt; a failure is an answer. The acknowledgement means: on disk, in force, in flight counted.
"""

import zlib
from collections.abc import Mapping

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError
from temporalio import activity
from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError

from activities.outward import Callers, RefusedError, UnansweredError, in_words
from activities.sinks.kinds import sinks
from activities.sinks.sink import RouterError, Sink
from llmgw.calls import CallOutcome, PublishAnswer, PublishCall, cut
from llmgw.wire import Endpoint, ErrorCode, RouterTable, TableModel, TableReply

TABLE_QUERY, ENDPOINTS_QUERY = "table", "endpoints"


class TablePage(BaseModel):
    """What the query `table` packs, or a page of the query `endpoints`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    revision: int
    digest: str
    models: tuple[TableModel, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    next_page: int | None = None


class Publish:
    def __init__(self, client: Client, callers: Callers) -> None:
        self._client = client
        self._sinks: Mapping[str, Sink] = sinks(callers)

    @activity.defn(name="publish")
    async def publish(self, call: PublishCall) -> PublishAnswer:
        """Bring one router to the call's revision or a newer one."""
        sink = self._sinks.get(call.kind)
        if sink is None:
            known = ", ".join(sorted(self._sinks))
            return _failed(f"no sink speaks to routers of kind {call.kind!r}; known: {known}")
        try:
            return await self._send(sink, call)
        except RefusedError as refusal:
            held = refusal.reply.held if refusal.reply else None
            owner = refusal.reply.owner if refusal.reply else None
            return PublishAnswer(outcome=refusal.outcome, held=held, owner=owner, text=str(refusal))
        except RouterError as error:
            return _failed(str(error))
        except (UnansweredError, httpx.HTTPError, ValidationError, OSError) as error:
            return _failed(in_words(error))

    async def _send(self, sink: Sink, call: PublishCall) -> PublishAnswer:
        if call.delta is not None:
            try:
                return _acknowledged(await sink.patch(call), call.revision, full=False)
            except RefusedError as refusal:
                if refusal.reply is None or refusal.reply.code is not ErrorCode.BASE_DIFFERS:
                    raise
        revision, table = await self._whole_table(call)
        return _acknowledged(await sink.put(call, table), revision, full=True)

    async def _whole_table(self, call: PublishCall) -> tuple[int, RouterTable]:
        info = activity.info()
        if info.workflow_id is None:
            raise RuntimeError("publish runs only for a workflow")
        pages = await read_table(self._client.get_workflow_handle(info.workflow_id))
        table = RouterTable(
            token=call.token,
            digest=pages[0].digest,
            models=tuple(m for page in pages for m in page.models),
            endpoints=tuple(e for page in pages for e in page.endpoints),
        )
        return pages[0].revision, table


async def read_table(handle: WorkflowHandle[object, object]) -> list[TablePage]:
    """The table in one piece, or, where it is too large or an older worker answers, in pages of one revision; these are
    begun anew when it changes in between."""
    if packed := await _packed(handle):
        return [TablePage.model_validate_json(zlib.decompress(packed))]
    while True:
        pages = [await _page(handle, 0)]
        while (following := pages[-1].next_page) is not None and pages[-1].revision == pages[0].revision:
            pages.append(await _page(handle, following))
        if pages[-1].revision == pages[0].revision:
            return pages


async def _packed(handle: WorkflowHandle[object, object]) -> bytes:
    try:
        packed: bytes = await handle.query(TABLE_QUERY, result_type=bytes)
    except WorkflowQueryFailedError:
        return b""
    return packed


async def _page(handle: WorkflowHandle[object, object], page: int) -> TablePage:
    answer: TablePage = await handle.query(ENDPOINTS_QUERY, page, result_type=TablePage)
    return answer


def _acknowledged(reply: TableReply, revision: int, *, full: bool) -> PublishAnswer:
    return PublishAnswer(
        outcome=CallOutcome.ANSWERED,
        revision=revision,
        digest=reply.digest,
        draining=reply.draining,
        held=reply.token,
        full=full,
    )


def _failed(text: str) -> PublishAnswer:
    return PublishAnswer(outcome=CallOutcome.FAILED, text=cut(text))
