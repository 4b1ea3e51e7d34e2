"""Publishing: from the decision until the router no longer picks an endpoint, beside a floor taken in the same run; and
a table of 8,000 endpoints told to our real router, whole and by difference.

Both are counted from the moment at which the history has the order, so that what is compared is the way from a decision
to its effect. The floor is a workflow that does nothing but one activity with one PUT. Bytes are counted where they
leave.
`python -m bench.publish [--nodes 20] [--rounds 30] [--strict]`
"""

import asyncio
import contextlib
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
from pydantic import BaseModel
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle

from activities.outward import Callers
from activities.settings import Outward
from activities.sinks.native import NativeSink
from bench.fleet.sizes import whole_device_models
from bench.latency import ANSWER_S, EDITED, QUIET_S
from bench.processes import child
from bench.report import Target, Telling, finished, options, report, spread, telling
from bench.stage import Scale, Stage, now_ms, staged
from llmgw import table as tables
from llmgw.calls import Delta, PublishCall
from llmgw.ids import ModelName, ReplicaId, RouterId
from llmgw.table import Table, TableChange
from llmgw.wire import Endpoint, ModelState, RouterTable, TableModel, Token

MOST = 1.5
MOST_DELTA_BYTES = 2048
ENDPOINTS = 8000
PER_MODEL = 8
LARGE_ROUNDS = 8
WITHDRAWS = b'"drop_endpoints":["'


# --- from decision to withdrawn ------------------------------------------------------------------------------------


async def withdrawals(nodes: int, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds from decision to withdrawn, and the floor's."""
    samples: list[float] = []
    floor: list[float] = []
    async with staged(Scale(nodes=nodes)) as stage:
        queue = stage.add_floor()
        noop = await stage.client.start_workflow("Floor", id=queue, task_queue=queue)
        whole = [*whole_device_models(nodes * 4 - 1), EDITED]
        await stage.apply(stage.catalog(whole))
        await stage.steady(300.0, QUIET_S)
        for _ in range(rounds):
            floor.append(await _floor(stage, noop))
            gone = stage.moments.next(
                lambda target, d: target == "router/r0" and bool(getattr(d, "drop_endpoints", ()))
            )
            await stage.fleet.signal_catalog(stage.catalog(whole[:-1]))
            at_ms = await asyncio.wait_for(gone, ANSWER_S)
            await stage.steady(quiet_s=QUIET_S)
            samples.append(_wall_ms(at_ms) - await _ordered_ms(stage.fleet.handle, "publish", WITHDRAWS))
            await stage.fleet.signal_catalog(stage.catalog(whole))
            await stage.steady(quiet_s=QUIET_S)
    return samples, floor


async def _floor(stage: Stage, noop: WorkflowHandle[Any, Any]) -> float:
    knocked = stage.moments.next(lambda target, _: target == "floor")
    await noop.signal("go", f"{stage.base}/floor/go")
    at_ms = await asyncio.wait_for(knocked, ANSWER_S)
    return _wall_ms(at_ms) - await _ordered_ms(noop, "put_once")


async def _ordered_ms(handle: WorkflowHandle[Any, Any], activity: str, holding: bytes = b"") -> float:
    """When the last such activity was ordered, by the history."""
    events = [e async for e in handle.fetch_history_events()]
    return _time_ms([e for e in events if _orders(e, activity, holding)][-1])


def _orders(event: HistoryEvent, activity: str, holding: bytes) -> bool:
    if event.event_type != EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
        return False
    order = event.activity_task_scheduled_event_attributes
    return order.activity_type.name == activity and holding in order.input.payloads[0].data


def _time_ms(event: HistoryEvent) -> float:
    return event.event_time.seconds * 1000 + event.event_time.nanos / 1e6


def _wall_ms(at_ms: float) -> float:
    """A moment of the stage's clock on the clock of the histories; both run on this machine."""
    return time.time() * 1000 - (now_ms() - at_ms)


# --- a large table -------------------------------------------------------------------------------------------------


class Counted(Callers):
    """Counts the bytes of bodies that leave."""

    sent = 0

    async def send(self, method: str, url: str, path: str, body: BaseModel) -> bytes:
        self.sent += len(body.model_dump_json())
        return await super().send(method, url, path, body)


def large_table(endpoints: int) -> Table:
    """`endpoints` replicas, eight of each model."""
    count = endpoints // PER_MODEL
    models = [TableModel(name=ModelName(f"org/model-{i}"), state=ModelState.READY) for i in range(count)]
    return tables.build(models, (_endpoint(f"model-{i}-{j}", f"org/model-{i}") for i in range(count) for j in range(8)))


def _endpoint(id_: str, model: str, port: int = 21000) -> Endpoint:
    return Endpoint(
        id=ReplicaId(id_), url=f"http://gpu-07.fleet:{port}", models=(model,), served_name=model, engine="vllm"
    )


async def large_pushes(endpoints: int, rounds: int) -> dict[str, dict[str, float]]:
    """Time and bytes of a whole table and of a difference of one replica, told to the real router."""
    callers = Counted(Outward())
    sink, table = NativeSink(callers), large_table(endpoints)
    whole_ms: list[float] = []
    delta_ms: list[float] = []
    async with real_router() as url:
        for seq in range(1, 2 * rounds, 2):
            callers.sent, begun = 0, time.perf_counter()
            call = _call(url, seq)
            models, all_ = tuple(table.models.values()), tuple(table.endpoints.values())
            await sink.put(call, RouterTable(token=call.token, digest=table.digest, models=models, endpoints=all_))
            whole_ms.append((time.perf_counter() - begun) * 1000)
            whole_bytes, callers.sent = callers.sent, 0
            gone, come = next(iter(table.endpoints)), _endpoint(f"model-0-new{seq}", "org/model-0", 21000 + seq)
            change = TableChange(put_endpoints=(come,), drop_endpoints=(gone,))
            after = tables.apply(table, change)
            delta = Delta(base=table.digest, digest=after.digest, put_endpoints=(come,), drop_endpoints=(gone,))
            begun = time.perf_counter()
            await sink.patch(_call(url, seq + 1, delta))
            delta_ms.append((time.perf_counter() - begun) * 1000)
            delta_bytes, table = callers.sent, after
    await callers.close()
    return {
        "full": {**spread(whole_ms), "bytes": whole_bytes},
        "delta": {**spread(delta_ms), "bytes": delta_bytes},
    }


def _call(url: str, seq: int, delta: Delta | None = None) -> PublishCall:
    token = Token(installation="bench", fleet="large", epoch=1, seq=seq)
    return PublishCall(router=RouterId("r"), kind="native", url=url, token=token, revision=seq, delta=delta)


@contextlib.asynccontextmanager
async def real_router() -> AsyncIterator[str]:
    """Our router as a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{probe.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as folder:
        argv = (sys.executable, "-m", "router.main", "--listen", listen, "--state-dir", f"{folder}/state")
        with child(argv, Path(folder) / "router.log"):
            await _answers(f"http://{listen}/healthz")
            yield f"http://{listen}"


async def _answers(url: str) -> None:
    async with asyncio.timeout(30), httpx.AsyncClient(trust_env=False) as client:
        while True:
            try:
                await client.get(url)
                return
            except httpx.TransportError:
                await asyncio.sleep(0.05)


async def run(sizes: Sequence[int], rounds: int, how: Telling) -> int:
    large = await large_pushes(ENDPOINTS, LARGE_ROUNDS)
    figures: dict[str, object] = {f"{ENDPOINTS} endpoints": large}
    floors: dict[str, object] = {}
    ratios: dict[str, float] = {}
    targets = [Target("bytes of a difference of one replica", large["delta"]["bytes"], MOST_DELTA_BYTES)]
    for nodes in sizes:
        samples, floor = await withdrawals(nodes, rounds)
        floors[f"{nodes} nodes"] = spread(floor)
        figures[f"decided to withdrawn, {nodes} nodes"] = spread(samples)
        ratio = spread(samples)["p50_ms"] / spread(floor)["p50_ms"]
        ratios[f"decided to withdrawn, {nodes} nodes"] = ratio
        targets.append(Target(f"decided to withdrawn at {nodes} nodes, p50 / floor", ratio, MOST))
    return report("publish", figures=figures, floor=floors, ratios=ratios, targets=targets, how=how)


if __name__ == "__main__":
    given = options(__doc__, nodes=[20], rounds=30)
    finished(asyncio.run(run(given.nodes, given.rounds, telling(given))))
