"""How a program reaches a fleet: connect by Temporal's own client profile, then ask, signal and update by name.

Also used by the workers. Never imports the workflow itself.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import (
    Client,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import ApplicationError
from temporalio.runtime import Runtime
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from llmgw.plan import Verdict
from workflows import names, past
from workflows.converting import data_converter
from workflows.past import Past, Run

__all__ = ["Connection", "Fleet", "Past", "Run", "UnreachableError", "connect"]

DEFAULT_ADDRESS = "localhost:7233"
CONNECT_LIMIT = timedelta(seconds=10)
ANSWER_LIMIT = timedelta(seconds=30)
ASK_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class Connection:
    """Overrides of the Temporal client profile (`TEMPORAL_*` variables and `temporal.toml`); None = as the profile."""

    profile: str | None = None
    address: str | None = None
    namespace: str | None = None
    api_key: str | None = None
    tls_ca_file: Path | None = None
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None


class UnreachableError(RuntimeError):
    """Temporal is not reached. The text says where it was looked for, why that failed, and what to do."""


async def connect(
    connection: Connection | None = None, *, runtime: Runtime | None = None, lazy: bool = False
) -> Client:
    """A client by profile, environment and overrides, in rising order.

    ValueError for settings that cannot be used, `UnreachableError` when the server is not reached.
    """
    config = _config(connection or Connection())
    where = config["target_host"]
    connecting = Client.connect(**config, data_converter=data_converter, runtime=runtime, lazy=lazy)
    try:
        return await asyncio.wait_for(connecting, CONNECT_LIMIT.total_seconds())
    except (RuntimeError, TimeoutError) as error:
        text = f"Temporal is not reached at {where}: {_reason(error)}. {HOW_TO_REACH}"
        raise UnreachableError(text) from error


HOW_TO_REACH = (
    "Start it (`llmgw dev` brings its own), or say where it is: --address, TEMPORAL_ADDRESS or a client profile"
)


def _config(connection: Connection) -> dict[str, Any]:
    """Arguments of `Client.connect`."""
    try:
        config: dict[str, Any] = dict(ClientConfig.load_client_connect_config(profile=connection.profile))
    except Exception as error:  # the SDK's own class for this is private
        raise ValueError(f"the Temporal client profile cannot be used: {error}") from error
    overrides = {"target_host": connection.address, "namespace": connection.namespace, "api_key": connection.api_key}
    config |= {name: value for name, value in overrides.items() if value is not None}
    config.setdefault("target_host", DEFAULT_ADDRESS)
    if "://" in config["target_host"]:
        raise ValueError(f"Temporal's address is HOST:PORT, such as {DEFAULT_ADDRESS}, not {config['target_host']}")
    tls = _tls(connection)
    return config if tls is None else {**config, "tls": tls}


def _tls(connection: Connection) -> TLSConfig | None:
    files = (connection.tls_ca_file, connection.tls_cert_file, connection.tls_key_file)
    if not any(files):
        return None
    ca, cert, key = (None if path is None else _content(path) for path in files)
    if (cert is None) != (key is None):
        raise ValueError("a client certificate and its key belong together: give both files, or none")
    return TLSConfig(server_root_ca_cert=ca, client_cert=cert, client_private_key=key)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error


# How the SDK's texts about a failed connection begin to make sense; the first that is found counts.
_REASONS = (
    ("Connection refused", "nothing listens there"),
    ("dns error", "no such host"),
    ("InvalidContentType", "it does not speak TLS, and a TLS file or an API key was given"),
    ("certificate", "its certificate, or ours, is not accepted"),
    ("Unauthenticated", "it does not accept these credentials"),
    ("PermissionDenied", "it does not accept these credentials"),
    ("Unimplemented", "something else than Temporal answers there"),
)


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_LIMIT.total_seconds():g} s"
    text = str(error)
    return next((told for part, told in _REASONS if part in text), " ".join(text.split())[:200])


class Fleet:
    """One fleet's workflow, by name: what people and scripts do with it."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self.handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(names.workflow_id(name))

    async def query(self, name: str, *args: object, answer: type[Any] | None = None) -> Any:
        """One query. RPCError when the fleet does not exist or no worker answers, WorkflowQueryFailedError when the
        query cannot be answered."""
        return await self.handle.query(name, args=args, result_type=answer, rpc_timeout=ANSWER_LIMIT)

    async def pages(self, name: str, *args: object) -> Sequence[Mapping[str, Any]]:
        """All pages of a paged query, as plain JSON."""
        pages: list[Mapping[str, Any]] = []
        page: int | None = 0
        while page is not None:
            answer = await self.query(name, *args, page)
            pages.append(answer)
            page = answer.get("next_page")
        return pages

    def past(self, most: int) -> AsyncIterator[Run]:
        """What the workflow did, run by run, the newest first."""
        return past.runs(self.client, self.handle.id, most)

    async def apply(self, catalog: object, plan: str = "") -> Verdict:
        """Replace the catalog and wait for the verdict on it. With the hash of a `plan` it is refused when the world
        has moved since."""
        conditions = [{"plan": plan}] if plan else []
        return await self._update(names.APPLY_CATALOG, catalog, *conditions)

    async def order(self, name: str, arguments: BaseModel | Mapping[str, object]) -> Verdict:
        """Give one order of `llmgw.orders` and wait for the verdict on it."""
        value = arguments.model_dump(mode="json") if isinstance(arguments, BaseModel) else dict(arguments)
        return await self._update(name, value)

    async def signal_catalog(self, catalog: object) -> None:
        """Replace the catalog without waiting, as `temporal workflow signal` does."""
        await self.handle.signal(names.REPLACE_CATALOG, catalog)

    async def workers(self) -> Mapping[str, float]:
        """Seconds since each worker last asked for this fleet's work, by identity; those of the last few minutes."""
        answer = await self.client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=self.client.namespace,
                task_queue=TaskQueue(name=names.task_queue(self.name)),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
            ),
            timeout=ANSWER_LIMIT,
        )
        now = datetime.now(UTC)
        polls = ((p.identity, p.last_access_time.ToDatetime(tzinfo=UTC)) for p in answer.pollers)
        return {identity: max(0.0, (now - at).total_seconds()) for identity, at in polls}

    async def missing_search_attributes(self) -> tuple[str, ...] | None:
        """Search attributes that the fleet writes and its namespace has not; None where the service does not tell."""
        from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest  # a rarely needed, large module

        try:
            answer = await self.client.operator_service.list_search_attributes(
                ListSearchAttributesRequest(namespace=self.client.namespace), timeout=ANSWER_LIMIT
            )
        except RPCError as error:
            if error.status in (RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED):
                return None
            raise
        known = {**answer.custom_attributes, **answer.system_attributes}
        needed = (names.PHASE_ATTRIBUTE, names.GENERATION_ATTRIBUTE, names.REJECTED_ATTRIBUTE)
        return tuple(name for name in needed if name not in known)

    async def _update(self, name: str, *args: object) -> Verdict:
        """TimeoutError without an answer: the SDK would ask again for ever, past the limit of each call."""
        try:
            async with asyncio.timeout(ANSWER_LIMIT.total_seconds()):
                while (verdict := await self._verdict(name, args)) is None:  # noqa: ASYNC110 - asked from outside
                    await asyncio.sleep(ASK_AGAIN_S)
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:  # what the SDK makes of the limit above
            raise TimeoutError from error
        return verdict

    async def _verdict(self, name: str, args: Sequence[object]) -> Verdict | None:
        """None where the workflow is about to go on in a new run, and wants to be asked again."""
        try:
            verdict: Verdict = await self.handle.execute_update(
                name, args=args, result_type=Verdict, rpc_timeout=ANSWER_LIMIT
            )
        except WorkflowUpdateFailedError as error:
            if isinstance(error.cause, ApplicationError) and error.cause.type == names.ASK_AGAIN:
                return None
            raise
        except RPCError as error:
            if "closing" in error.message:
                return None
            raise
        return verdict
