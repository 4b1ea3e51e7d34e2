"""Engines for benches on real processes: rows of kinds, and the floor: the same engine started by hand.

An engine's own time is from its fork to the first 200 of its health page, with the very command line and environment
that the agent gave to one of its kind, on another port.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from agent.readiness import port_answers
from bench.processes import free_port
from workers.tiny_model import write_tiny_gguf

HOST = "127.0.0.1"
POLL_S = 0.005
LIMIT_S = 60.0


def llama() -> Path | None:
    """The llama.cpp server beside this Python, where there is one."""
    found = Path(sys.executable).parent / "llama-server-vulkan"
    return found if found.exists() else None


def _stub(_: Path) -> Mapping[str, Any]:
    return {"profiles": [{"name": "p", "engine": "stub"}]}


def _llama(folder: Path) -> Mapping[str, Any]:
    path = folder / "tiny.gguf"
    if not path.exists():
        write_tiny_gguf(path, "and so it went on")
    profile = {"name": "p", "engine": "llama.cpp", "executable": str(llama()), "args": ["-t", "1", "-c", "512"]}
    return {"profiles": [profile], "weights": f"file://{path}"}


KINDS: Mapping[str, Callable[[Path], Mapping[str, Any]]] = {"stub": _stub, "llama.cpp": _llama}
"""What a catalog's model says of its engine, given a folder for weights."""


def present() -> Sequence[str]:
    """The kinds that can be started here."""
    return [kind for kind in KINDS if kind != "llama.cpp" or llama() is not None]


def model(kind: str, folder: Path, name: str, replicas: int = 1) -> Mapping[str, Any]:
    return {"name": name, "replicas": replicas, **KINDS[kind](folder)}


@dataclass(frozen=True, slots=True)
class Command:
    """How the agent started an engine, port apart."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    port: str

    def on(self, port: int) -> list[str]:
        return [str(port) if item == self.port else item for item in self.argv]


def running(folder: Path) -> dict[str, psutil.Process]:
    """Leaders of the engines whose agents keep their state below `folder`, by replica."""
    found: dict[str, psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            environ = process.environ()
            if str(folder) in environ.get("LLMGW_RECORD", "") and os.getsid(process.pid) == process.pid:
                found[environ["LLMGW_REPLICA"]] = process
    return found


def command_of(process: psutil.Process) -> Command:
    """Of a running engine. Its mark stays behind: what is started by hand is nobody's replica."""
    argv = tuple(process.cmdline())
    environ = {name: value for name, value in process.environ().items() if not name.startswith("LLMGW_")}
    return Command(argv, environ, argv[argv.index("--port") + 1])


async def by_hand_ms(command: Command, count: int = 1) -> float:
    """ms from the first fork to the last first 200, of `count` at once."""
    ports = [free_port() for _ in range(count)]
    begun = time.perf_counter()
    children = [
        subprocess.Popen(  # noqa: ASYNC220 - forking is what is measured
            command.on(port),
            env=command.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for port in ports
    ]
    try:
        async with aiohttp.ClientSession() as http, asyncio.timeout(LIMIT_S):
            await asyncio.gather(*(_healthy(http, port) for port in ports))
        return (time.perf_counter() - begun) * 1000
    finally:
        for started in children:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


async def _healthy(http: aiohttp.ClientSession, port: int) -> None:
    while True:
        if port_answers(HOST, port):
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get(f"http://{HOST}:{port}/health") as answer:
                    if answer.status == 200:
                        return
        await asyncio.sleep(POLL_S)
