"""Our router beside direct access, smg and HAProxy, before the same stub engine in the same run.

Requests per second of CPU under load, what one request at a time takes longer than without a router, and what held
streams cost. `python -m bench.router [--rounds 5] [--seconds 2] [--streams 2000] [--strict]`
"""

import argparse
import contextlib
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.report import Target, Telling, add_flags, report, telling
from bench.traffic.proxies import PROXIES, AbsentError, until_it_serves

CONCURRENCY = 32
LEAST_OF_SMG = 0.5
MOST_ADDED_MS = 2.0
PIECES, GAP_S = 10, 0.5


@dataclass
class Client:
    """A process that asks one URL (`bench.traffic.client`)."""

    process: subprocess.Popen[str]

    def measure(self, concurrency: int, seconds: float, *, stream: bool = False) -> Mapping[str, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        asked = {"concurrency": concurrency, "seconds": seconds, "stream": stream}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        found: dict[str, float] = json.loads(self.process.stdout.readline())
        if found["failures"]:
            raise RuntimeError(f"requests failed: {found['failures']}")
        return found


@dataclass
class Subject:
    """One way to the engine, and what was measured of it. `root`: its process, None for direct access."""

    name: str
    client: Client
    root: psutil.Process | None
    per_cpu_s: list[float] = field(default_factory=list)
    per_s: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    streams: dict[str, float] = field(default_factory=dict)

    def _tree(self) -> list[psutil.Process]:
        return [] if self.root is None else [self.root, *self.root.children(recursive=True)]

    def cpu_s(self) -> float:
        times = [process.cpu_times() for process in self._tree()]
        return sum(t.user + t.system for t in times)

    def rss_mib(self) -> float:
        return round(sum(process.memory_info().rss for process in self._tree()) / 2**20, 1)

    def load(self, seconds: float) -> None:
        before = self.cpu_s()
        found = self.client.measure(CONCURRENCY, seconds)
        self.per_s.append(found["per_s"])
        if self.root is not None:
            self.per_cpu_s.append(found["requests"] / max(0.01, self.cpu_s() - before))

    def one_at_a_time(self, seconds: float) -> None:
        found = self.client.measure(1, seconds)
        self.p50_ms.append(found["p50_ms"])
        self.p99_ms.append(found["p99_ms"])

    def hold(self, count: int) -> None:
        """That many streams at once, each to its end."""
        idle_mib, before = self.rss_mib(), self.cpu_s()
        with ThreadPoolExecutor(1) as pool:
            holding = pool.submit(self.client.measure, count, 0.0, stream=True)
            most_mib = idle_mib
            while not wait([holding], timeout=0.2).done:
                most_mib = max(most_mib, self.rss_mib())
        found = holding.result()
        self.streams = {
            "whole": found["requests"],
            "p50_ms": found["p50_ms"],
            "rss_before_mib": idle_mib,
            "rss_most_mib": most_mib,
            "cpu_s": round(self.cpu_s() - before, 2),
        }

    def figures(self) -> dict[str, object]:
        found: dict[str, object] = {
            "per_s": round(statistics.median(self.per_s), 1),
            "p50_ms": round(statistics.median(self.p50_ms), 3),
            "p99_ms": round(statistics.median(self.p99_ms), 3),
        }
        if self.per_cpu_s:
            found["per_cpu_s"] = round(statistics.median(self.per_cpu_s), 1)
        return found | ({"held": self.streams} if self.streams else {})


@contextlib.contextmanager
def subjects(folder: Path) -> Iterator[dict[str, Subject]]:
    """Direct access and every router that is installed; a stub engine behind all."""
    with contextlib.ExitStack() as stack:
        stub = ("-m", "bench.traffic.stub", "0", "m-1", "--pieces", str(PIECES), "--gap-s", str(GAP_S))
        engine = subprocess.Popen([sys.executable, *stub], stdout=subprocess.PIPE, text=True)
        stack.callback(_end, engine)
        assert engine.stdout is not None
        direct = f"http://127.0.0.1:{int(engine.stdout.readline())}"
        found = {"direct": Subject("direct", _client(stack, direct), None)}
        for name, start in PROXIES.items():
            port = _free_port()
            try:
                process = start(folder, port, direct)
            except AbsentError as error:
                print(f"left out: {error}", file=sys.stderr)
                continue
            stack.callback(_end, process)
            until_it_serves(f"http://127.0.0.1:{port}")
            found[name] = Subject(name, _client(stack, f"http://127.0.0.1:{port}"), psutil.Process(process.pid))
        yield found


def _client(stack: contextlib.ExitStack, url: str) -> Client:
    argv = [sys.executable, "-m", "bench.traffic.client", url]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stack.callback(_end, process)
    return Client(process)


def _end(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run(rounds: int, seconds: float, streams: int, how: Telling) -> int:
    _raise_file_limit()
    with tempfile.TemporaryDirectory(prefix="llmgw-router-") as folder, subjects(Path(folder)) as found:
        for subject in found.values():
            subject.client.measure(8, 0.5)  # warm
        for _ in range(rounds):  # side by side, so that a noisy moment meets all of them
            for subject in found.values():
                subject.one_at_a_time(seconds / 2)
                subject.load(seconds)
        for subject in found.values():
            if streams:
                subject.hold(streams)
        figures = {name: subject.figures() for name, subject in found.items()}
    direct = found.pop("direct")
    added = {n: statistics.median(s.p50_ms) - statistics.median(direct.p50_ms) for n, s in found.items()}
    per_cpu = {name: statistics.median(subject.per_cpu_s) for name, subject in found.items()}
    ratios = {f"{name} added p50 ms": ms for name, ms in added.items()}
    targets = [Target("ours added p50 ms", added["ours"], MOST_ADDED_MS)]
    if "smg" in per_cpu:
        share = per_cpu["ours"] / per_cpu["smg"]
        ratios["ours / smg requests per CPU second"] = share
        targets.append(Target("smg / ours requests per CPU second", 1 / share, 1 / LEAST_OF_SMG))
    if streams:
        lost = streams - found["ours"].streams["whole"]
        targets.append(Target("held streams that were lost", lost, 0))
    figures_out = {name: figure for name, figure in figures.items() if name != "direct"}
    return report("router", figures=figures_out, floor=figures["direct"], ratios=ratios, targets=targets, how=how)


def _raise_file_limit() -> None:
    """Thousands of streams are thousands of sockets, twice in a router; children inherit the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--streams", type=int, default=2000, help="held at once; 0 leaves them out")
    add_flags(parser)
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH"))))
    return run(given.rounds, given.seconds, given.streams, telling(given))


if __name__ == "__main__":
    sys.exit(main())
