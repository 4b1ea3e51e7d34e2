"""Routers to measure beside each other, each before the same stub engine: ours, smg and HAProxy, where they are there.

A newcomer adds a row in `PROXIES`. Each starts one process, the way its makers would for one model and one engine.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from llmgw.ids import ModelName, ReplicaId
from llmgw.table import table_digest
from llmgw.wire import Endpoint, ModelState, RouterTable, TableModel, Token

START_S = 30.0
ASKING = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}).encode()


class AbsentError(Exception):
    """The program is not installed here."""


def program(name: str) -> str:
    """Beside this Python, or where the system keeps its own. Raises AbsentError."""
    places = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath), "/usr/sbin")
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        raise AbsentError(f"there is no {name} here")
    return found


def started(argv: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)


def until_it_serves(url: str) -> None:
    """Until a completion is answered with 200. Raises TimeoutError with the last answer."""
    deadline, last = time.monotonic() + START_S, "nothing"
    while time.monotonic() < deadline:
        request = urllib.request.Request(  # noqa: S310 - our own URL
            f"{url}/v1/chat/completions", data=ASKING, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=2):  # noqa: S310 - our own URL
                return
        except (urllib.error.URLError, OSError) as error:
            last = str(error)
        time.sleep(0.1)
    raise TimeoutError(f"{url} does not serve: {last}")


def ours(folder: Path, port: int, engine: str) -> subprocess.Popen[bytes]:
    argv = [
        *(sys.executable, "-m", "router.main", "--listen", f"127.0.0.1:{port}"),
        *("--state-dir", str(folder / "router"), "--access-log", "off"),
    ]
    process = started(argv, folder / "router.log")
    models = (TableModel(name=ModelName("m"), state=ModelState.READY),)
    endpoints = (Endpoint(id=ReplicaId("m-1"), url=engine, models=("m",), served_name="m", engine="stub"),)
    table = RouterTable(
        token=Token(installation="bench", fleet="bench", epoch=1, seq=1),
        digest=table_digest(models, endpoints),
        models=models,
        endpoints=endpoints,
    )
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/table", data=table.model_dump_json().encode(), method="PUT"
    )
    deadline = time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(request, timeout=5).close()  # noqa: S310 - our own URL
            return process
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def smg(folder: Path, port: int, engine: str) -> subprocess.Popen[bytes]:
    workers = folder / "smg.json"
    workers.write_text(json.dumps({"version": 1, "workers": [{"url": engine, "model_id": "m"}]}))
    argv = [
        *(program("smg"), "launch", "--host", "127.0.0.1", "--port", str(port), "--enable-igw"),
        *("--policy", "round_robin", "--prometheus-host", "127.0.0.1", "--prometheus-port", str(port + 1)),
        *("--discovery-provider", "file", "--discovery-file", str(workers), "--log-level", "error"),
    ]
    return started(argv, folder / "smg.log")


def haproxy(folder: Path, port: int, engine: str) -> subprocess.Popen[bytes]:
    config = folder / "haproxy.cfg"
    config.write_text(
        "global\n  maxconn 8192\n  nbthread 1\n"
        "defaults\n  mode http\n  timeout connect 2s\n  timeout client 1h\n  timeout server 1h\n  http-reuse always\n"
        f"frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\n"
        f"backend b\n  server m-1 {engine.removeprefix('http://')}\n"
    )
    return started([program("haproxy"), "-db", "-f", str(config)], folder / "haproxy.log")


PROXIES: dict[str, Callable[[Path, int, str], subprocess.Popen[bytes]]] = {
    "ours": ours,
    "smg": smg,
    "haproxy": haproxy,
}
