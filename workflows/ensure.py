"""Making sure that a fleet's workflow runs: reuse a running one, leave an ended fleet alone, re-create any other from
its own last state. Never lists workflows (visibility lags); it asks for the one id."""

import base64
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, RPCError, WorkflowExecutionStatus, WorkflowHandle
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCStatusCode

from llmgw.carry import Parts, Seed
from workflows import names

log = logging.getLogger(__name__)

ENDED = (WorkflowExecutionStatus.CANCELED, WorkflowExecutionStatus.COMPLETED)
RESTART = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=60))
QUERY_LIMIT = timedelta(seconds=15)


class FleetEndedError(Exception):
    """The fleet was cancelled on purpose; only `fresh` starts it anew."""


@dataclass(frozen=True, slots=True)
class State:
    seed: Seed
    parts: Parts
    signals: Sequence[tuple[str, Sequence[Any]]] = ()
    """Signals that came after the state was carried."""


async def ensure(
    client: Client, fleet: str, installation: str, *, now_s: float, fresh: bool = False, max_history: int = 1500
) -> WorkflowHandle[Any, Any]:
    """The fleet's running workflow, started if need be. Two callers at once get the same one.

    `installation` names the operators' installation, from their settings. Raises `FleetEndedError` for a fleet that
    was ended, unless `fresh`.
    """
    # A fleet without any memory takes its creation time as epoch: above every epoch it may have had before.
    first = Seed(fleet=fleet, installation=installation, epoch=int(now_s), max_history=max_history)
    handle = client.get_workflow_handle(names.workflow_id(fleet))
    try:
        description = await handle.describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return await _start(client, fleet, State(first, Parts()))
    if description.status is WorkflowExecutionStatus.RUNNING:
        return handle
    if description.status in ENDED and not fresh:
        raise FleetEndedError(f"fleet {fleet} was ended; start it anew with --fresh")
    if description.status in ENDED:
        return await _start(client, fleet, State(first, Parts()))
    log.warning("fleet %s was closed (%s): re-creating it from its last state", fleet, description.status)
    state = await _last_state(client.get_workflow_handle(handle.id, run_id=description.run_id))
    return await _start(client, fleet, state or State(first, Parts()))


async def _start(client: Client, fleet: str, state: State) -> WorkflowHandle[Any, Any]:
    registered = await _attributes_registered(client)
    seed = state.seed.model_copy(update={"settle": True, "search_attributes": registered})
    parts = state.parts
    handle = await client.start_workflow(
        names.WORKFLOW,
        args=[seed, parts.catalog, parts.assignments, parts.routes, parts.rest, parts.kept],
        id=names.workflow_id(fleet),
        task_queue=names.task_queue(fleet),
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        retry_policy=RESTART,
        task_timeout=timedelta(seconds=3),
        static_summary=f"llmgw fleet {fleet}",
        static_details=f"Keeps the models of fleet `{fleet}` running. Replace its catalog with the signal "
        f"`{names.REPLACE_CATALOG}`; cancelling this workflow ends the fleet.",
    )
    for name, args in state.signals:
        await handle.signal(name, args=list(args))
    return handle


async def _attributes_registered(client: Client) -> bool:
    """An unregistered search attribute would wedge the workflow: they are used only when all are known."""
    from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest  # a rarely needed, large module

    try:
        answer = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace)
        )
    except RPCError:
        return False  # not every service lets a client ask (Temporal Cloud does not)
    known = {**answer.custom_attributes, **answer.system_attributes}
    return {names.PHASE_ATTRIBUTE, names.GENERATION_ATTRIBUTE, names.REJECTED_ATTRIBUTE} <= set(known)


async def _last_state(handle: WorkflowHandle[Any, Any]) -> State | None:
    """The closed run's state: by query, which replays it; else what it began with, and the signals since."""
    try:
        carried: Mapping[str, Any] = await handle.query(names.CARRIED, rpc_timeout=QUERY_LIMIT)
        parts = {k: base64.b64decode(v) for k, v in carried["parts"].items()}
        return State(Seed.model_validate(carried["seed"]), Parts(**parts))
    except Exception as error:
        log.warning("its state cannot be queried (%s): taking what its last run began with", error)
    return await _first_input(handle)


async def _first_input(handle: WorkflowHandle[Any, Any]) -> State | None:
    converter = handle._client.data_converter
    state: State | None = None
    signals: list[tuple[str, Sequence[Any]]] = []
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            payloads = event.workflow_execution_started_event_attributes.input.payloads
            kinds: list[type] = [Seed, bytes, bytes, bytes, bytes, bytes]
            values = await converter.decode(payloads, kinds[: len(payloads)])
            state = State(values[0], Parts(*values[1:]))
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
            sent = event.workflow_execution_signaled_event_attributes
            try:
                signals.append((sent.signal_name, await converter.decode(sent.input.payloads)))
            except Exception:
                log.warning("a signal %s that cannot be decoded is left out", sent.signal_name)
    return None if state is None else State(state.seed, state.parts, tuple(signals))
