"""What a fleet did, read back from its durable history: each activity with what it was asked and what it answered.

Reads only. An event that cannot be decoded (of another version, or by another key) is left out and counted.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from llmgw.calls import DispatchAnswer, DispatchCall, PublishAnswer, PublishCall
from llmgw.observation import Observation
from llmgw.plan import Plan
from workflows import names

ASKED: Mapping[str, type[BaseModel]] = {names.DISPATCH: DispatchCall, names.PUBLISH: PublishCall}
ANSWERED: Mapping[str, type[BaseModel]] = {
    names.DISPATCH: DispatchAnswer,
    names.PUBLISH: PublishAnswer,
    names.OBSERVE: Observation,
    names.PLAN: Plan,
}
_ENDS_WITHOUT = {
    EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED: "activity_task_failed_event_attributes",
    EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT: "activity_task_timed_out_event_attributes",
}


@dataclass(frozen=True, slots=True)
class Past:
    """One moment of an activity: asked (`answer` None and not `failed`), answered, or ended without an answer."""

    at_s: float
    activity: str
    asked: BaseModel | None = None
    answer: BaseModel | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the workflow: its moments in order, and the run that it continues."""

    run_id: str
    moments: tuple[Past, ...]
    continues: str | None
    unread: int = 0
    """Events that could not be decoded."""


async def runs(client: Client, workflow_id: str, most: int) -> AsyncIterator[Run]:
    """The newest run first, as far back as Temporal keeps them, `most` at most."""
    run_id: str | None = (await client.get_workflow_handle(workflow_id).describe()).run_id
    for _ in range(most):
        if not run_id:
            return
        try:
            run = await _read(client, workflow_id, run_id)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return  # past its retention
            raise
        yield run
        run_id = run.continues


async def _read(client: Client, workflow_id: str, run_id: str) -> Run:
    reader = Reader(client.data_converter)
    continues: str | None = None
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            continues = event.workflow_execution_started_event_attributes.continued_execution_run_id or None
        await reader.take(event)
    return Run(run_id, tuple(reader.moments), continues, reader.unread)


class Reader:
    """Takes events in order; what they tell is in `moments`."""

    def __init__(self, converter: DataConverter) -> None:
        self._converter = converter
        self._open: dict[int, tuple[str, BaseModel | None]] = {}
        self.moments: list[Past] = []
        self.unread = 0

    async def take(self, event: HistoryEvent) -> None:
        at_s = event.event_time.ToNanoseconds() / 1e9
        match event.event_type:
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                begun = event.activity_task_scheduled_event_attributes
                name = begun.activity_type.name
                asked = await self._value(begun.input, ASKED.get(name))
                self._open[event.event_id] = (name, asked)
                if asked is not None:
                    self.moments.append(Past(at_s, name, asked))
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                done = event.activity_task_completed_event_attributes
                name, asked = self._open.pop(done.scheduled_event_id, ("", None))
                answer = await self._value(done.result, ANSWERED.get(name))
                if answer is not None:
                    self.moments.append(Past(at_s, name, asked, answer))
            case EventType.EVENT_TYPE_MARKER_RECORDED:
                result = event.marker_recorded_event_attributes.details.get("result")
                plan = None if result is None else await self._value(result, Plan)
                if plan is not None:
                    self.moments.append(Past(at_s, names.PLAN, None, plan))
            case _ if event.event_type in _ENDS_WITHOUT:
                ended = getattr(event, _ENDS_WITHOUT[event.event_type])
                name, asked = self._open.pop(ended.scheduled_event_id, ("", None))
                if asked is not None:
                    self.moments.append(Past(at_s, name, asked, failed=True))

    async def _value(self, payloads: Payloads, kind: type[BaseModel] | None) -> BaseModel | None:
        if kind is None or not payloads.payloads:
            return None
        try:
            found: list[Payload] = list(payloads.payloads)
            values: list[Any] = await self._converter.decode(found, [kind])
        except Exception:  # whatever a converter makes of bytes that it does not know
            self.unread += 1
            return None
        return values[0] if isinstance(values[0], kind) else None
