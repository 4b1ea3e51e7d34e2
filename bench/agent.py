"""What the agent costs, beside a floor taken in the same run.

* starts: many stubs at once by the agent until all are ready, against plain fork + exec + first 200 of the same ones;
* idle: its share of a core and its resident memory while many idle replicas run;
* death: from the end of an engine's process to the report that says so.

`python -m bench.agent [--starts 50] [--idle 200] [--settle-s 60] [--deaths 20] [--strict]`
"""

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import psutil

from agent.readiness import port_answers
from bench.report import Target, add_flags, report, spread, telling
from llmgw.ids import Fingerprint, ModelName, NodeId, ReplicaId
from llmgw.wire import CommandBatch, EngineState, LaunchSpec, MetricNames, NodeReport, Start, Stop, StopBehaviour, Token

NODE = NodeId("bench")
FIRST_PORT = 23_000
POLL_S = 0.02
WINDOW_S = 20.0
APART_S = 0.2
"""Between two deaths: each is one of its own."""
LIMIT_S = 300.0
MOST_START_RATIO, MOST_CORE, MOST_RSS_MB, MOST_DEATH_MS = 1.5, 0.02, 120.0, 20.0

_METRICS = MetricNames(
    running="stub:requests_running", waiting="stub:requests_waiting", tokens_total="stub:tokens_total"
)
_STUB = ("-m", "agent.stub_engine", "--served-model-name", "m", "--host", "127.0.0.1", "--port")


@dataclass
class Bench:
    """One agent process, its held stream, and the newest report of it."""

    process: asyncio.subprocess.Process
    url: str
    http: aiohttp.ClientSession
    seq: int = 0
    newest: NodeReport | None = None
    arrived_s: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self) -> None:
        async with self.http.get(f"{self.url}/v1/state", timeout=aiohttp.ClientTimeout(total=None)) as stream:
            async for line in stream.content:
                if line.strip():
                    self.arrived_s = time.perf_counter()  # reading it is the bench's own affair
                    self.newest = NodeReport.model_validate_json(line)
                    self.changed.set()

    async def until(self, test: Callable[[NodeReport], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while self.newest is None or not test(self.newest):
                self.changed.clear()
                await self.changed.wait()

    async def send(self, *commands: Start | Stop) -> None:
        self.seq += 1
        token = Token(installation="bench", fleet="bench", epoch=1, seq=self.seq)
        batch = CommandBatch(token=token, node=NODE, commands=commands)
        headers = {"content-type": "application/json"}
        async with self.http.post(f"{self.url}/v1/commands", data=batch.model_dump_json(), headers=headers) as answer:
            if answer.status != 200:
                raise RuntimeError(await answer.text())

    def in_state(self, *states: EngineState) -> set[ReplicaId]:
        rows = () if self.newest is None else self.newest.replicas
        return {row.replica for row in rows if row.state in states}


def start_of(replica: str) -> Start:
    launch = LaunchSpec(
        engine="stub",
        argv=("${llmgw:python}", *_STUB, "${llmgw:port}"),
        served_name="m",
        metrics=_METRICS,
        stop=StopBehaviour(term_limit_s=5.0, second_term_limit_s=1.0, kill_limit_s=5.0),
        start_limit_s=LIMIT_S,
    )
    return Start(
        replica=ReplicaId(replica), model=ModelName("m"), fingerprint=Fingerprint("f"), attempt=1, launch=launch
    )


@contextlib.asynccontextmanager
async def agent(folder: Path) -> AsyncIterator[Bench]:
    port = FIRST_PORT - 1
    argv = [
        *(sys.executable, "-m", "agent.main", "--node-id", NODE, "--listen", f"127.0.0.1:{port}"),
        *("--state-dir", str(folder / "state"), "--machine-id", "bench", "--devices", "1xsim:24GiB"),
        *("--port-range", f"{FIRST_PORT}-{FIRST_PORT + 2000}"),
    ]
    with (folder / "agent.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*argv, stdout=log, stderr=log)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        bench = Bench(process, f"http://127.0.0.1:{port}", http)
        async with asyncio.timeout(LIMIT_S):
            while not await answers(http, f"{bench.url}/healthz"):  # noqa: ASYNC110 - another process
                await asyncio.sleep(POLL_S)
        stream = asyncio.create_task(bench.listen())
        try:
            await bench.until(lambda _: True)
            yield bench
        finally:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, RuntimeError):
                await stop_all(bench)
            stream.cancel()
            process.terminate()
            await process.wait()


async def answers(http: aiohttp.ClientSession, url: str) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        async with http.get(url) as answer:
            return answer.status == 200
    return False


async def stop_all(bench: Bench) -> None:
    running = () if bench.newest is None else bench.newest.replicas
    await bench.send(*(Stop(replica=row.replica, force=True) for row in running))
    await bench.until(lambda report: report.replicas == ())


# --- starts --------------------------------------------------------------------------------------------------------


async def plain_start(http: aiohttp.ClientSession, count: int, first_port: int) -> float:
    """Seconds from the first fork to the last first 200."""

    async def served(port: int) -> None:
        url = f"http://127.0.0.1:{port}/health"
        while not port_answers("127.0.0.1", port) or not await answers(http, url):  # noqa: ASYNC110 - another process
            await asyncio.sleep(POLL_S)

    ports = range(first_port, first_port + count)
    began = time.perf_counter()
    pids = fork_all(ports)
    try:
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(*(served(port) for port in ports))
        return time.perf_counter() - began
    finally:
        kill_all(pids)


def fork_all(ports: Iterable[int]) -> list[int]:
    """In sessions of their own, as engines are: a session is what the kernel shares a busy machine out to."""
    silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    return [
        os.posix_spawn(
            sys.executable, (sys.executable, *_STUB, str(port)), os.environ, file_actions=silent, setsid=True
        )
        for port in ports
    ]


def kill_all(pids: Iterable[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


async def agent_start(bench: Bench, count: int, name: str) -> float:
    """Seconds from the batch to the report in which all are ready."""
    wanted = {ReplicaId(f"{name}-{number}") for number in range(count)}
    began = time.perf_counter()
    await bench.send(*(start_of(replica) for replica in sorted(wanted)))
    await bench.until(lambda _: wanted <= bench.in_state(EngineState.READY))
    return time.perf_counter() - began


async def starts(bench: Bench, count: int, rounds: int) -> tuple[list[float], list[float]]:
    """(agent, plain), in turns, so that what else the machine does weighs on both."""
    by_agent: list[float] = []
    plain: list[float] = []
    for number in range(rounds):
        plain.append(await plain_start(bench.http, count, FIRST_PORT + 3000 + number * count))
        by_agent.append(await agent_start(bench, count, f"r{number}"))
        await stop_all(bench)
    return by_agent, plain


# --- idle and death ------------------------------------------------------------------------------------------------


async def idle(bench: Bench, count: int, settle_s: float) -> tuple[float, float]:
    """(share of one core, resident MB) of the agent while `count` replicas stand idle."""
    for first in range(0, count, 50):
        await agent_start(bench, min(50, count - first), f"i{first}")
    await asyncio.sleep(settle_s)
    process = psutil.Process(bench.process.pid)
    before, began = process.cpu_times(), time.perf_counter()
    await asyncio.sleep(WINDOW_S)
    after, took = process.cpu_times(), time.perf_counter() - began
    used = after.user + after.system - before.user - before.system
    return used / took, process.memory_info().rss / 1e6


async def deaths(bench: Bench, count: int) -> list[float]:
    """Milliseconds from KILL to the report, one engine after the other."""
    took: list[float] = []
    for row in tuple(bench.newest.replicas if bench.newest else ())[:count]:
        if row.pid is None:
            continue
        began = time.perf_counter()
        os.kill(row.pid, signal.SIGKILL)
        await bench.until(lambda _, replica=row.replica: replica in bench.in_state(EngineState.FAILED))  # type: ignore[misc]
        took.append((bench.arrived_s - began) * 1000)
        await asyncio.sleep(APART_S)
    return took


async def run(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        async with agent(Path(folder)) as bench:
            by_agent, plain = await starts(bench, options.starts, options.rounds)
            core, rss_mb = await idle(bench, options.idle, options.settle_s)
            died = await deaths(bench, options.deaths)
    ratio = median_ratio(by_agent, plain)
    death = spread(died)
    figures = {
        "starts_s": [round(value, 3) for value in by_agent],
        "idle_core": round(core, 4),
        "rss_mb": round(rss_mb, 1),
        "death": death,
    }
    return report(
        "agent",
        figures=figures,
        floor={"starts_s": [round(value, 3) for value in plain]},
        ratios={"starts": ratio},
        targets=[
            Target("starts", ratio, MOST_START_RATIO),
            Target("idle_core", core, MOST_CORE),
            Target("rss_mb", rss_mb, MOST_RSS_MB),
            Target("death_p50_ms", float(death["p50_ms"]), MOST_DEATH_MS),
        ],
        how=telling(options),
    )


def median_ratio(ours: Sequence[float], floor: Sequence[float]) -> float:
    return statistics.median(ours) / statistics.median(floor)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.agent", description=__doc__)
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=int, default=200)
    parser.add_argument("--settle-s", type=float, default=60.0)
    parser.add_argument("--deaths", type=int, default=20)
    add_flags(parser)
    sys.exit(asyncio.run(run(parser.parse_args())))


if __name__ == "__main__":
    main()
