"""The router as a process: starts, says where, survives a kill with its table, ends in order."""

import asyncio
import json
import resource
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import ClientSession, web

from .rig import CHAT, Engine, model, table


@dataclass
class Process:
    process: asyncio.subprocess.Process
    url: str

    async def said(self, event: str) -> dict[str, object]:
        """The next log line of an event."""
        assert self.process.stderr is not None
        while line := await asyncio.wait_for(self.process.stderr.readline(), 20):
            entry: dict[str, object] = json.loads(line)
            if entry["event"] == event:
                return entry
        raise AssertionError(f"{event!r} was not logged")


async def launch(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "router.main", *arguments, stderr=asyncio.subprocess.PIPE
    )


@asynccontextmanager
async def process(state_dir: Path, *arguments: str) -> AsyncIterator[Process]:
    started = await launch("--listen", "127.0.0.1:0", "--state-dir", str(state_dir), *arguments)
    made = Process(started, "")
    try:
        hello = await made.said("router listening")
        made.url = f"http://127.0.0.1:{hello['port']}"
        yield made
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


async def test_a_killed_router_serves_its_table_again_and_term_lets_streams_end(tmp_path: Path, engine: Engine) -> None:
    opened, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(request: web.Request, body: bytes) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one ")
        opened.set()
        await go_on.wait()
        await response.write(b"two")
        return response

    engine.answer = slowly
    async with ClientSession() as client:
        async with process(tmp_path) as router:
            document = table(1, (model("m"),), (engine.endpoint(),)).model_dump_json()
            async with client.put(router.url + "/v1/table", data=document) as response:
                assert response.status == 200
            router.process.kill()
            await router.process.wait()
        async with process(tmp_path) as router:
            response = await client.post(router.url + CHAT, json={"model": "m"})
            await asyncio.wait_for(opened.wait(), 5)
            router.process.send_signal(signal.SIGTERM)
            await router.said("router closing")
            go_on.set()
            assert await response.read() == b"one two"
            assert await asyncio.wait_for(router.process.wait(), 10) == 0


async def test_a_second_router_on_the_same_state_or_port_says_so(tmp_path: Path) -> None:
    async with process(tmp_path / "one") as router:
        taken = router.url.removeprefix("http://")
        for arguments, says in (
            (("--listen", "127.0.0.1:0", "--state-dir", str(tmp_path / "one")), b"in use by another router"),
            (("--listen", taken, "--state-dir", str(tmp_path / "two")), b"Address already in use"),
        ):
            second = await launch(*arguments)
            _, told = await asyncio.wait_for(second.communicate(), 20)
            assert second.returncode == 1
            assert says in told
            assert len(told.splitlines()) == 1


async def test_bad_settings_end_it_with_all_problems() -> None:
    bad = await launch("--listen", "x", "--max-body-mib", "y")
    _, told = await asyncio.wait_for(bad.communicate(), 20)
    assert bad.returncode == 2
    assert told.startswith(b"the router cannot start:")
    assert len(told.splitlines()) == 3


async def test_a_router_may_have_as_many_sockets_as_the_system_allows(tmp_path: Path) -> None:
    few = ("sh", "-c", 'ulimit -Sn 256; exec "$@"', "sh")
    argv = (sys.executable, "-m", "router.main", "--listen", "127.0.0.1:0", "--state-dir", str(tmp_path))
    started = await asyncio.create_subprocess_exec(*few, *argv, stderr=asyncio.subprocess.PIPE)
    await Process(started, "").said("router listening")
    soft, hard = resource.prlimit(started.pid, resource.RLIMIT_NOFILE)
    started.terminate()
    await started.communicate()
    assert soft == hard > 256
