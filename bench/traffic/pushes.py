"""A large table told to real routers, whole and by a difference: time, calls, and bytes of each.

Told as a lane does it: a call that ran out of its time is made again, and finds the router further on.
"""

import contextlib
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from pydantic import BaseModel

from activities.outward import Callers
from activities.settings import Outward
from activities.sinks.haproxy_cli import MasterSocket
from activities.sinks.kinds import sinks
from activities.sinks.sink import RouterError, Sink
from bench.report import spread
from bench.traffic.proxies import AbsentError
from bench.traffic.rigs import Rig, running
from llmgw import table as tables
from llmgw.calls import Delta, PublishCall
from llmgw.ids import ModelName, ReplicaId, RouterId
from llmgw.table import Table, TableChange
from llmgw.wire import Endpoint, ModelState, RouterTable, TableModel, TableReply, Token

PER_MODEL = 8
DELTAS = 4
TRIES = 40
WATCHES = Path("/proc/sys/fs/inotify/max_user_instances")
KINDS: Mapping[str, Mapping[str, str]] = {
    "native": {},
    "haproxy": {"check_every_s": "30"},
    "envoy": {"check_every_s": "30"},
}
"""Kinds that are told here, with what docs/routers.md says on large tables."""


def large_table(endpoints: int, per_model: int = PER_MODEL) -> Table:
    """`endpoints` replicas, so many of each model."""
    names = [f"org/model-{n}" for n in range(endpoints // per_model)]
    models = [TableModel(name=ModelName(name), state=ModelState.READY) for name in names]
    return tables.build(models, (replica(name, n, j) for n, name in enumerate(names) for j in range(per_model)))


def replica(model: str, number: int, index: int, port: int = 21000) -> Endpoint:
    """Each has an address of its own, at which nobody listens."""
    at = number * 100 + index
    return Endpoint(
        id=ReplicaId(f"{model.rpartition('/')[2]}-{index}-{port}"),
        url=f"http://127.{1 + at // 62_500}.{at // 250 % 250}.{1 + at % 250}:{port}",
        models=(model,),
        served_name=model,
        engine="vllm",
    )


class CountedCallers(Callers):
    """Counts the bytes of bodies that leave."""

    sent = 0

    async def send(self, method: str, url: str, path: str, body: BaseModel) -> bytes:
        self.sent += len(body.model_dump_json())
        return await super().send(method, url, path, body)


@dataclass
class Told:
    """What some tellings took."""

    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    bytes_: int = 0
    file_bytes: int = 0

    def figures(self) -> dict[str, float]:
        found = {**spread(self.wall_ms), "own_cpu_p50_ms": spread(self.cpu_ms)["p50_ms"], "calls": max(self.calls)}
        return {**found, "bytes": self.bytes_, **({"file_bytes": self.file_bytes} if self.file_bytes else {})}


@dataclass
class Teller:
    """One router and what it was told last."""

    rig: Rig
    sink: Sink
    callers: CountedCallers
    settings: Mapping[str, str]
    seq: int = 0

    def _call(self, delta: Delta | None = None) -> PublishCall:
        self.seq += 1
        return PublishCall(
            router=RouterId("r"),
            kind=self.rig.kind,
            url=self.rig.url,
            token=Token(installation="bench", fleet="large", epoch=1, seq=self.seq),
            revision=self.seq,
            delta=delta,
            settings={**self.rig.settings, **self.settings},
        )

    async def put(self, table: Table, told: Told) -> None:
        def tell() -> Awaitable[TableReply]:
            call = self._call()
            models, endpoints = tuple(table.models.values()), tuple(table.endpoints.values())
            whole = RouterTable(token=call.token, digest=table.digest, models=models, endpoints=endpoints)
            return self.sink.put(call, whole)

        await self._until_told(tell, told)

    async def replace_one(self, table: Table, told: Told) -> Table:
        """One replica gives way to another of its model; the table after that."""
        model = next(iter(table.models))
        gone = next(e for e in table.endpoints.values() if e.models[0] == model)
        come = replica(model, 0, 0, 21001 + self.seq)
        after = tables.apply(table, TableChange(put_endpoints=(come,), drop_endpoints=(gone.id,)))
        delta = Delta(base=table.digest, digest=after.digest, put_endpoints=(come,), drop_endpoints=(gone.id,))
        await self._until_told(lambda: self.sink.patch(self._call(delta)), told)
        return after

    async def _until_told(self, tell: Callable[[], Awaitable[TableReply]], told: Told) -> None:
        before, self.callers.sent = _files(self.rig.directory), 0
        begun, cpu = time.perf_counter(), time.process_time()
        with _counted_socket() as said:
            for number in range(1, TRIES + 1):
                try:
                    await tell()
                    break
                except RouterError:
                    if number == TRIES:
                        raise
        told.wall_ms.append((time.perf_counter() - begun) * 1000)
        told.cpu_ms.append((time.process_time() - cpu) * 1000)
        told.calls.append(number)
        after = _files(self.rig.directory)
        told.file_bytes = sum(size for path, (size, mark) in after.items() if before.get(path) != (size, mark))
        told.bytes_ = self.callers.sent + sum(said)


def _files(directory: Path) -> dict[Path, tuple[int, int]]:
    """What the router reads, and when each was put in place."""
    found = [p for p in directory.rglob("*") if p.is_file() and ".llmgw" not in p.name and p.suffix != ".log"]
    kept = [p for p in found if "state" not in p.relative_to(directory).parts]
    return {path: (stat.st_size, stat.st_mtime_ns) for path in kept for stat in [path.stat()]}


@contextlib.contextmanager
def _counted_socket() -> Iterator[list[int]]:
    """Bytes said to HAProxy's socket."""
    said: list[int] = []
    ask = MasterSocket.ask

    async def counted(self: MasterSocket, command: str) -> str:
        said.append(len(command) + 1)
        return await ask(self, command)

    with patch.object(MasterSocket, "ask", counted):
        yield said


async def large_pushes(kind: str, table: Table, rounds: int) -> dict[str, dict[str, float]]:
    """A whole table told to a router that holds nothing, differences to it, and the whole one again to a router that
    holds it already. Raises AbsentError where there is no such router here."""
    whole, delta, again = Told(), Told(), Told()
    callers = CountedCallers(Outward())
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="llmgw-push-") as folder:
            async with running(kind, Path(folder)) as rig:
                teller = Teller(rig, sinks(callers)[kind], callers, KINDS[kind])
                await teller.put(table, whole)
                after = table
                for _ in range(DELTAS):
                    after = await teller.replace_one(after, delta)
                await teller.put(after, again)
    await callers.close()
    return {"full": whole.figures(), "delta": delta.figures(), "full, held already": again.figures()}


async def all_large_pushes(endpoints: int, rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """By kind; kinds that are not installed here are left out. Envoy's models are as many as it may watch here."""
    found = {}
    for kind in KINDS:
        per_model = PER_MODEL if kind != "envoy" else max(PER_MODEL, endpoints // max(1, _watches() // 2))
        with contextlib.suppress(AbsentError):
            found[kind] = await large_pushes(kind, large_table(endpoints, per_model), rounds)
    return found


def _watches() -> int:
    try:
        return int(WATCHES.read_text())
    except (OSError, ValueError):
        return 1 << 20
