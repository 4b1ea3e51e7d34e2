"""How a program reaches a fleet: connect by Temporal's own client profile, then ask, signal and update by name.

Also used by the workers. Never imports the workflow itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfig
from temporalio.runtime import Runtime
from temporalio.service import TLSConfig

from llmgw.plan import Verdict
from workflows import names

DEFAULT_ADDRESS = "localhost:7233"
ANSWER_LIMIT = timedelta(seconds=30)


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


async def connect(
    connection: Connection | None = None, *, runtime: Runtime | None = None, lazy: bool = False
) -> Client:
    """A client by profile, environment and overrides, in rising order. RuntimeError when the server is not reached."""
    connection = connection or Connection()
    config: dict[str, Any] = dict(ClientConfig.load_client_connect_config(profile=connection.profile))
    config.setdefault("target_host", DEFAULT_ADDRESS)
    if connection.address is not None:
        config["target_host"] = connection.address
    if connection.namespace is not None:
        config["namespace"] = connection.namespace
    if connection.api_key is not None:
        config["api_key"] = connection.api_key
    tls = _tls(connection)
    if tls is not None:
        config["tls"] = tls
    return await Client.connect(**config, data_converter=pydantic_data_converter, runtime=runtime, lazy=lazy)


def _tls(connection: Connection) -> TLSConfig | None:
    files = (connection.tls_ca_file, connection.tls_cert_file, connection.tls_key_file)
    if not any(files):
        return None
    ca, cert, key = (None if path is None else path.read_bytes() for path in files)
    return TLSConfig(server_root_ca_cert=ca, client_cert=cert, client_private_key=key)


class Fleet:
    """One fleet's workflow, by name: what people and scripts do with it."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self.handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(names.workflow_id(name))

    async def query(self, name: str, *args: object, answer: type[Any] | None = None) -> Any:
        """One query. RPCError when the fleet does not exist, WorkflowQueryFailedError when it cannot answer."""
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

    async def apply(self, catalog: object) -> Verdict:
        """Replace the catalog and wait for the verdict on it."""
        return await self._update(names.APPLY_CATALOG, catalog)

    async def order(self, name: str, arguments: BaseModel | Mapping[str, object]) -> Verdict:
        """Give one order of `llmgw.orders` and wait for the verdict on it."""
        value = arguments.model_dump(mode="json") if isinstance(arguments, BaseModel) else dict(arguments)
        return await self._update(name, value)

    async def signal_catalog(self, catalog: object) -> None:
        """Replace the catalog without waiting, as `temporal workflow signal` does."""
        await self.handle.signal(names.REPLACE_CATALOG, catalog)

    async def _update(self, name: str, value: object) -> Verdict:
        verdict: Verdict = await self.handle.execute_update(name, value, result_type=Verdict, rpc_timeout=ANSWER_LIMIT)
        return verdict
