"""A real agent process and what the plane would do with it: batches, and waiting on its held report stream."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil

from agent.cgroups import cgroups_for
from bench.processes import free_block
from llmgw.ids import DeviceId, Fingerprint, ModelName, NodeId, ReplicaId
from llmgw.wire import (
    BatchReply,
    Command,
    CommandBatch,
    DeviceClaim,
    LaunchSpec,
    NodeReport,
    ReplicaReport,
    Start,
    Stop,
    StopBehaviour,
    Token,
)

NODE = NodeId("n1")
LIMIT_S = 60.0
"""When to give up: far above what anything takes on a busy machine."""
PORTS = 100
"""Of its block: its own, and behind it those of its engines."""


def token(seq: int, installation: str = "here", epoch: int = 1) -> Token:
    return Token(installation=installation, fleet="f", epoch=epoch, seq=seq)


def stub(*args: str, start_limit_s: float = 30.0, name: str = "m", term_limit_s: float = 2.0) -> LaunchSpec:
    """A launch of the stub engine."""
    head = ("${llmgw:python}", "-m", "agent.stub_engine", "--served-model-name", name, "--port", "${llmgw:port}")
    limits = StopBehaviour(term_limit_s=term_limit_s, second_term_limit_s=0.3, kill_limit_s=3.0)
    return LaunchSpec(engine="stub", argv=(*head, *args), served_name=name, stop=limits, start_limit_s=start_limit_s)


def start(replica: str, launch: LaunchSpec, *devices: str, fingerprint: str = "fp", attempt: int = 1) -> Start:
    return Start(
        replica=ReplicaId(replica),
        model=ModelName("m"),
        fingerprint=Fingerprint(fingerprint),
        attempt=attempt,
        launch=launch,
        claims=tuple(DeviceClaim(device=DeviceId(d)) for d in devices),
    )


def stop(replica: str, *, force: bool = False) -> Stop:
    return Stop(replica=ReplicaId(replica), reason="the test asks", force=force)


class Agent:
    """One agent's life after life on the same state folder and port."""

    def __init__(self, state_dir: Path, port: int) -> None:
        self.state_dir = state_dir
        self.port = port
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: asyncio.subprocess.Process | None = None
        self.env: dict[str, str] = {}
        self.flags: tuple[str, ...] = ()
        self.devices = "4xsim:24GiB"
        self.http = httpx.AsyncClient(base_url=self.url, timeout=LIMIT_S, trust_env=False)

    async def begin(self, *flags: str, dies_at: tuple[str, int | str, str] | None = None, health: int = 200) -> None:
        """Run it until it serves with that `health`; `dies_at` (function, which call of it, before or after):
        `tests.agent.dying`."""
        dying = [*map(str, dies_at), str(self.state_dir.parent / "armed")] if dies_at else []
        argv = [
            *(
                sys.executable,
                "-m",
                "tests.agent.dying" if dying else "agent.main",
                *dying,
                "--node-id",
                NODE,
                "--listen",
                f"127.0.0.1:{self.port}",
            ),
            *("--state-dir", str(self.state_dir), "--machine-id", "machine", "--devices", self.devices, *flags),
            *(() if "--port-range" in flags else ("--port-range", f"{self.port + 1}-{self.port + PORTS - 1}")),
        ]
        with (self.state_dir.parent / "agent.log").open("ab") as log:
            env = {**os.environ, "LLMGW_SECRET_PASS_PHRASE": "open-sesame", **self.env}
            self.process = await asyncio.create_subprocess_exec(*argv, stdout=log, stderr=log, env=env)
        async with asyncio.timeout(LIMIT_S):
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await self.http.get("/healthz")).status_code == health:
                        return
                if self.process.returncode is not None:
                    said = (self.state_dir.parent / "agent.log").read_text()[-2000:]
                    raise AssertionError(f"the agent ended with {self.process.returncode}: {said}")
                await asyncio.sleep(0.02)

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End the agent alone; its exit code."""
        if self.process is None:
            raise AssertionError("no agent runs")
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.process.wait()

    async def come_back(self, client: int | None, loss: str) -> None:
        """Killed, and run again with the same flags; `loss` names what goes with it: client, ledger, both, nothing."""
        await self.kill()
        if "client" in loss:
            assert client is not None
            psutil.Process(client).kill()
        if "ledger" in loss:
            (self.state_dir / "ledger.json").unlink()
        await self.begin(*self.flags)

    async def end(self) -> int:
        """Its exit code, once it has ended by itself."""
        if self.process is None:
            raise AssertionError("no agent runs")
        async with asyncio.timeout(LIMIT_S):
            return await self.process.wait()

    async def written(self, test: Callable[[dict[str, Any]], bool]) -> None:
        """Return when the records in the ledger satisfy `test`: what the report tells is written a moment later."""
        async with asyncio.timeout(LIMIT_S):
            while not test(self.ledger().get("records", {})):  # noqa: ASYNC110 - a file tells no event
                await asyncio.sleep(0.02)

    async def kept_as_ready(self) -> None:
        """Return when the ledger has all replicas as ready: an agent killed before may rightly start them anew."""
        await self.written(lambda records: all(record.get("was_ready") for record in records.values()))

    async def post(self, seq: int, *commands: Command, **fields: Any) -> httpx.Response:
        batch = CommandBatch(token=fields.get("token", token(seq)), node=fields.get("node", NODE), commands=commands)
        extra: dict[str, Any] = {name: fields[name] for name in ("released_ports", "asleep") if name in fields}
        batch = batch.model_copy(update=extra)
        return await self.http.post("/v1/commands", content=batch.model_dump_json(), headers=JSON)

    async def send(self, seq: int, *commands: Command) -> BatchReply:
        answer = await self.post(seq, *commands)
        assert answer.status_code == 200, answer.text
        return BatchReply.model_validate_json(answer.content)

    async def rest(self, seq: int, **asleep: bool) -> None:
        """Say which replicas are to sleep, or to be awake; `_` in a name stands for `-`."""
        answer = await self.post(seq, asleep={name.replace("_", "-"): value for name, value in asleep.items()})
        assert answer.status_code == 200, answer.text

    async def report(self, test: Callable[[NodeReport], bool] = lambda _: True) -> NodeReport:
        """The first report that satisfies `test`."""
        seen: NodeReport | None = None
        try:
            async with asyncio.timeout(LIMIT_S), self.http.stream("GET", "/v1/state", timeout=None) as stream:
                async for line in stream.aiter_lines():
                    if line.strip():
                        seen = NodeReport.model_validate_json(line)
                        if test(seen):
                            return seen
        except TimeoutError:
            raise AssertionError(f"never so; last seen: {seen}") from None
        raise AssertionError("the stream ended")

    async def tell(self, replica: str, order: str) -> None:
        """Ask the stub of a live replica for a manner, bad or good."""
        url = (await self.row(replica, "ready", "loading")).url
        async with httpx.AsyncClient(trust_env=False) as http:
            with contextlib.suppress(httpx.TransportError):  # it may crash before it has answered
                await http.post(f"{url}/stub", json={"do": order})

    def ledger(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.state_dir / "ledger.json").read_text())
        return found

    async def row(self, replica: str, *states: str) -> ReplicaReport:
        """The replica's row once it is in one of `states`."""
        report = await self.report(lambda r: any(x.replica == replica and x.state in states for x in r.replicas))
        return next(x for x in report.replicas if x.replica == replica)

    async def without(self, replica: str) -> NodeReport:
        return await self.report(lambda r: all(x.replica != replica for x in r.replicas))

    def ours(self) -> Sequence[psutil.Process]:
        """Live processes that carry a mark of this state folder."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if str(self.state_dir) in process.environ().get("LLMGW_RECORD", "") and process.status() != "zombie":
                    found.append(process)
        return found

    async def clean(self) -> None:
        """The agent first: it may be just about to start another engine."""
        if self.process is not None:
            await self.kill()
        for process in self.ours():
            with contextlib.suppress(psutil.Error):
                process.kill()
                process.wait(LIMIT_S)
        groups = cgroups_for(str(self.state_dir))
        for replica in groups.replicas():
            groups.kill(replica)
            groups.remove(replica)
        await self.http.aclose()


JSON = {"content-type": "application/json"}


@contextlib.asynccontextmanager
async def agent_in(
    folder: Path,
    *flags: str,
    devices: str = "4xsim:24GiB",
    env: dict[str, str] | None = None,
    begins: bool = True,
) -> AsyncIterator[Agent]:
    state = folder / "state"
    state.mkdir()
    with free_block() as port:
        agent = Agent(state, port)
        agent.devices, agent.env = devices, env or {}
        try:
            if begins:
                await agent.begin(*flags)
            yield agent
        finally:
            await agent.clean()


def alive(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return psutil.Process(pid).status() != "zombie"
