"""Shepherd Model Gateway's worker API: what it lists, and how a worker is added, replaced and taken out.

All changes are queued there (202) and show in the list a moment later. Measured with 1.13: a removed worker is listed
as draining, with its load, for `drain_settle_secs`, and no longer; PUT brings a draining one back; a worker that
cannot be reached is not listed until it can.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel, ConfigDict, ValidationError

from activities.settings import read_bearer
from activities.sinks.book import Place
from activities.sinks.http import client_of
from activities.sinks.sink import RouterError

REPLICA_LABEL = "llmgw_replica"
FLEET_LABEL = "llmgw_fleet"
SETTLE_S = 3600
"""A removed worker stays listed this long, so that its load is told until its last stream has ended."""
OUTCOMES = "smg_worker_cb_outcomes_total"


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class WorkerModel(_Read):
    id: str
    aliases: tuple[str, ...] = ()


class Worker(_Read):
    """One worker as it is listed."""

    id: str
    url: str
    models: tuple[WorkerModel, ...] = ()
    labels: dict[str, str] = {}
    status: str = ""
    load: int = 0

    @property
    def is_draining(self) -> bool:
        return self.status == "draining"


class _Workers(_Read):
    workers: tuple[Worker, ...] = ()


class WorkerSpec(BaseModel):
    """One worker as it should be."""

    model_config = ConfigDict(frozen=True)

    url: str
    models: tuple[WorkerModel, ...]
    labels: dict[str, str]
    health: dict[str, int] = {"drain_settle_secs": SETTLE_S}


class WorkerApi:
    def __init__(self, client: httpx.AsyncClient, metrics: httpx.AsyncClient | None) -> None:
        self._client = client
        self._metrics = metrics

    async def listed(self) -> tuple[Worker, ...]:
        answer = self._good(await self._client.get("/workers"))
        try:
            return _Workers.model_validate_json(answer.content).workers
        except ValidationError:
            raise RouterError(f"{self._client.base_url} does not answer like smg") from None

    async def add(self, spec: WorkerSpec) -> None:
        """A worker with this URL that is there, or on its way, is no error: the next look tells."""
        answer = await self._client.post("/workers", json=spec.model_dump(mode="json"))
        if answer.status_code != httpx.codes.CONFLICT:
            self._good(answer)

    async def replace(self, id_: str, spec: WorkerSpec) -> None:
        self._good(await self._client.put(f"/workers/{id_}", json=spec.model_dump(mode="json")))

    async def remove(self, id_: str) -> None:
        answer = await self._client.delete(f"/workers/{id_}")
        if answer.status_code != httpx.codes.NOT_FOUND:
            self._good(answer)

    def _good(self, answer: httpx.Response) -> httpx.Response:
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            raise RouterError("smg refuses the key: give the setting `key_file`, with an admin's key on its first line")
        if not answer.is_success:
            raise RouterError(f"smg answers {answer.status_code}: {answer.text[:200]}")
        return answer

    async def outcomes(self) -> Mapping[str, int]:
        """Finished requests by worker URL, where its metrics are known; else nothing."""
        if self._metrics is None:
            return {}
        try:
            text = (await self._metrics.get("/metrics")).text
        except httpx.HTTPError:
            return {}
        found: dict[str, int] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == OUTCOMES and "worker" in sample.labels:
                    url = sample.labels["worker"]
                    found[url] = found.get(url, 0) + int(sample.value)
        return found


@contextlib.asynccontextmanager
async def api_of(place: Place) -> AsyncIterator[WorkerApi]:
    """The API of the router at `place`, with its own key: never the plane's."""
    key_file = place.settings.get("key_file")
    try:
        key = None if key_file is None else read_bearer(Path(key_file))
    except (OSError, ValueError) as error:
        raise RouterError(f"the key file {key_file} cannot be used: {error}") from error
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(client_of(place.url, headers))
        metrics = None
        if (url := place.settings.get("metrics")) is not None:
            metrics = await stack.enter_async_context(client_of(url))
        yield WorkerApi(client, metrics)
