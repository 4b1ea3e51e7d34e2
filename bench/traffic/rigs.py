"""Real routers for benches and tests: each started as its users start it, with paths and ports of its own.

A newcomer adds a row in `RIGS`. `AbsentError` where the program is not installed here.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import httpx

from activities.sinks.haproxy_cli import MasterSocket
from activities.sinks.haproxy_text import backend_of
from activities.sinks.sink import RouterError
from bench.processes import free_port
from bench.traffic.proxies import program

DEPLOY = Path(__file__).parent.parent.parent / "deploy" / "routers"
TLS = httpx.create_ssl_context()
EVERY_2_S = ("--discovery-check-interval-secs", "2")
START_LIMIT_S = 60.0
LOOK_S = 0.02


@dataclass
class Rig:
    """A router of one kind: how it is declared, started and asked. Subclasses say how it is run."""

    directory: Path
    kind: str = ""
    url: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    door: str = ""
    """Base URL for clients; empty: it serves none."""
    process: asyncio.subprocess.Process | None = None

    def argv(self) -> list[str]:
        """The command; empty: nothing runs, only the file is looked at."""
        return []

    def ready_url(self) -> str:
        """Answers anything at all once the router is up."""
        return f"{self.door}/v1/models"

    async def prepare(self) -> None:
        """What lies ready before it is started the first time."""

    async def start(self) -> None:
        argv = self.argv()
        if not argv:
            return
        with (self.directory / "router.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*argv, stdout=log, stderr=log, start_new_session=True)
        async with asyncio.TaskGroup() as group:
            ended = group.create_task(self._ended())
            await answering(self.ready_url())
            ended.cancel()

    async def _ended(self) -> None:
        assert self.process is not None
        code = await self.process.wait()
        raise AssertionError(f"ended with {code}: {(self.directory / 'router.log').read_text()[-600:]}")

    async def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        self.process = None

    def spoil(self) -> None:
        """Change by hand what the router holds, on this host and beside the plane."""
        raise NotImplementedError


async def answering(url: str) -> None:
    """Wait until something answers HTTP there."""
    async with asyncio.timeout(START_LIMIT_S), httpx.AsyncClient(trust_env=False, verify=TLS) as client:
        while True:
            try:
                await client.get(url)
                return
            except httpx.TransportError:
                await asyncio.sleep(LOOK_S)


@dataclass
class NativeRig(Rig):
    kind: str = "native"
    hold_limit_s: ClassVar[str] = "60"

    async def prepare(self) -> None:
        self.door = self.url = f"http://127.0.0.1:{free_port()}"

    def argv(self) -> list[str]:
        listen = self.door.removeprefix("http://")
        state = ("--state-dir", str(self.directory / "state"), "--hold-limit-s", self.hold_limit_s)
        return [sys.executable, "-m", "router.main", "--listen", listen, *state]

    def ready_url(self) -> str:
        return f"{self.door}/healthz"


@dataclass
class FileRig(Rig):
    """A file whose reader does not run here."""

    async def prepare(self) -> None:
        self.url = f"file://{self.directory}/routes.json"

    def spoil(self) -> None:
        (self.directory / "routes.json").write_text("[]")


@dataclass
class PickerRig(FileRig):
    kind: str = "llm-d"


@dataclass
class StackRig(FileRig):
    kind: str = "production-stack"


@dataclass
class PrometheusRig(FileRig):
    kind: str = "prometheus"
    api: str = ""

    async def prepare(self) -> None:
        await super().prepare()
        self.api = f"http://127.0.0.1:{free_port()}"
        jobs = [{"job_name": "engines", "file_sd_configs": [{"files": [f"{self.directory}/routes.json"]}]}]
        config = {"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}
        (self.directory / "prometheus.yml").write_text(json.dumps(config))

    def argv(self) -> list[str]:
        return [
            program("prometheus"),
            f"--config.file={self.directory}/prometheus.yml",
            f"--storage.tsdb.path={self.directory}/data",
            f"--web.listen-address={self.api.removeprefix('http://')}",
        ]

    def ready_url(self) -> str:
        return f"{self.api}/-/ready"


@dataclass
class HAProxyRig(Rig):
    """As deploy/routers/haproxy.cfg has it, with paths and ports of its own."""

    kind: str = "haproxy"

    async def prepare(self) -> None:
        self.door = f"http://127.0.0.1:{free_port()}"
        self.url = f"unix://{self.directory}/master.sock"
        self.settings = {"file": f"{self.directory}/llmgw.cfg"}
        front = (DEPLOY / "haproxy.cfg").read_text().replace("/etc/haproxy", str(self.directory))
        front = front.replace(":8080", self.door.removeprefix("http://"))
        (self.directory / "haproxy.cfg").write_text(front)
        for name in ("llmgw.cfg", "llmgw.cfg.map"):
            (self.directory / name).touch()

    def argv(self) -> list[str]:
        command = program("haproxy")
        socket_ = f"{self.directory}/master.sock,mode,600"
        files = [f"{self.directory}/haproxy.cfg", f"{self.directory}/llmgw.cfg"]
        return [command, "-W", "-S", socket_, *(word for file in files for word in ("-f", file))]

    async def start(self) -> None:
        """Its worker may serve before its master listens."""
        await super().start()
        async with asyncio.timeout(START_LIMIT_S):
            while True:
                with contextlib.suppress(RouterError):
                    await MasterSocket(self.directory / "master.sock").processes()
                    return
                await asyncio.sleep(LOOK_S)

    async def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            await self.process.wait()

    def spoil(self) -> None:
        with socket.socket(socket.AF_UNIX) as master:
            master.connect(f"{self.directory}/master.sock")
            master.sendall(f"@1 set server {backend_of('m')}/m-1 state maint\n".encode())
            master.shutdown(socket.SHUT_WR)
            while master.recv(4096):
                pass


@dataclass
class EnvoyRig(Rig):
    """As deploy/routers/envoy.yaml has it, with paths and ports of its own."""

    kind: str = "envoy"

    async def prepare(self) -> None:
        self.door, self.url = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
        self.settings = {"directory": f"{self.directory}/xds"}
        (self.directory / "xds").mkdir()
        for name in ("cds.json", "rds.json"):
            shutil.copy(DEPLOY / name, self.directory / "xds")
        text = (DEPLOY / "envoy.yaml").read_text().replace("/run/llmgw/envoy", self.settings["directory"])
        text = text.replace("9901", self.url.rpartition(":")[2]).replace("8080", self.door.rpartition(":")[2])
        (self.directory / "envoy.yaml").write_text(text.replace("0.0.0.0", "127.0.0.1"))  # noqa: S104 - taken out

    def argv(self) -> list[str]:
        command = program("envoy")
        config = f"{self.directory}/envoy.yaml"
        return [command, "-c", config, "--concurrency", "1", "--use-dynamic-base-id", "-l", "warning"]

    def ready_url(self) -> str:
        return f"{self.url}/ready"

    def spoil(self) -> None:
        path = next((self.directory / "xds").glob("eds.m.*"))
        changed = path.read_text().replace("HEALTHY", "DRAINING")
        path.with_name("new").write_text(changed)
        path.with_name("new").replace(path)


@dataclass
class SmgRig(Rig):
    kind: str = "smg"

    async def prepare(self) -> None:
        self.door = self.url = f"http://127.0.0.1:{free_port()}"
        (self.directory / "key").write_text("s3cret\n")
        self.settings = {
            "state": f"{self.directory}/told",
            "key_file": f"{self.directory}/key",
            "metrics": f"http://127.0.0.1:{free_port()}",
        }

    def argv(self) -> list[str]:
        command = program("smg")
        port, metrics = (url.rpartition(":")[2] for url in (self.door, self.settings["metrics"]))
        return [
            *(command, "launch", "--host", "127.0.0.1", "--port", port, "--enable-igw", "--policy", "round_robin"),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", metrics),
            *("--control-plane-api-keys", "llmgw:llmgw:admin:s3cret"),
            *self.discovery(),
        ]

    def discovery(self) -> list[str]:
        return []

    def ready_url(self) -> str:
        return f"{self.door}/liveness"

    def spoil(self) -> None:
        with httpx.Client(base_url=self.url, headers={"authorization": "Bearer s3cret"}, trust_env=False) as client:
            worker = client.get("/workers").json()["workers"][0]
            client.delete(f"/workers/{worker['id']}").raise_for_status()


@dataclass
class SmgFileRig(SmgRig):
    kind: str = "smg-file"

    async def prepare(self) -> None:
        await super().prepare()
        self.settings = {**self.settings, "file": f"{self.directory}/workers.json"}
        (self.directory / "workers.json").write_text('{"version": 1, "workers": []}')

    def discovery(self) -> list[str]:
        return ["--discovery-provider", "file", "--discovery-file", self.settings["file"], *EVERY_2_S]

    def spoil(self) -> None:
        (self.directory / "workers.json").write_text('{"version": 1, "workers": []}')


RIGS: Mapping[str, type[Rig]] = {
    rig.kind: rig for rig in (NativeRig, HAProxyRig, EnvoyRig, SmgRig, SmgFileRig, PickerRig, StackRig, PrometheusRig)
}


@asynccontextmanager
async def running(kind: str, directory: Path) -> AsyncIterator[Rig]:
    """The router of a kind, started with nothing told."""
    rig = RIGS[kind](directory)
    await rig.prepare()
    try:
        await rig.start()
        yield rig
    finally:
        await rig.stop()
