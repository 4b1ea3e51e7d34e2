"""Several processes behind one port: one table, one count, one control API, whatever happens to any of them."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from aiohttp import ClientPayloadError, ClientResponse, ClientSession, TCPConnector, web

from llmgw.wire import ModelState, RouterState

from .rig import CHAT, Engine, endpoint, model, running, table
from .test_process import Process, process

COUNT = 2


@pytest.fixture
async def several(tmp_path: Path) -> AsyncIterator[Process]:
    async with process(tmp_path / "state", "--processes", str(COUNT), "--hold-limit-s", "20") as one:
        yield one


@pytest.fixture
async def client() -> AsyncIterator[ClientSession]:
    """A connection for each request, so that they spread over the processes."""
    async with ClientSession(connector=TCPConnector(limit=0, force_close=True)) as session:
        yield session


def followers(router: Process) -> list[psutil.Process]:
    return psutil.Process(router.process.pid).children()


async def put(client: ClientSession, router: Process, document: object) -> dict[str, object]:
    async with client.put(router.url + "/v1/table", data=document.model_dump_json()) as answer:  # type: ignore[attr-defined]
        found: dict[str, object] = await answer.json()
        assert answer.status == 200, found
        return found


async def state(client: ClientSession, router: Process) -> RouterState:
    async with client.get(router.url + "/v1/state") as answer:
        return RouterState.model_validate_json(await answer.content.readline())


async def ask(client: ClientSession, router: Process, name: str = "m") -> tuple[int, str]:
    async with client.post(router.url + CHAT, json={"model": name}) as answer:
        return answer.status, answer.headers.get("x-llmgw-replica", "")


class Held:
    """An engine whose answers begin and wait until they may end."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def __call__(self, request: web.Request, body: bytes) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one ")
        await self.go_on.wait()
        await response.write(b"two")
        return response


async def opened(client: ClientSession, router: Process, count: int) -> list[ClientResponse]:
    return list(await asyncio.gather(*(client.post(router.url + CHAT, json={"model": "m"}) for _ in range(count))))


async def test_an_acknowledged_table_is_in_force_in_every_process(several: Process, client: ClientSession) -> None:
    async with running(Engine("m-1")) as one, running(Engine("m-2")) as two:
        for seq in range(1, 11):
            engine = (one, two)[seq % 2]
            await put(client, several, table(seq, (model("m"),), (engine.endpoint(),)))
            answers = await asyncio.gather(*(ask(client, several) for _ in range(8)))
            assert set(answers) == {(200, engine.id)}
        assert (await state(client, several)).tables["f"].token.seq == 10


async def test_requests_in_flight_are_counted_over_all_processes(several: Process, client: ClientSession) -> None:
    held = Held()
    async with running(Engine("m-1", answer=held)) as one, running(Engine("m-2", answer=held)) as two:
        both = (one.endpoint(), two.endpoint())
        await put(client, several, table(1, (model("m"),), both))
        answers = await opened(client, several, 12)
        spread = [answer.headers["x-llmgw-replica"] for answer in answers]
        assert {replica: spread.count(replica) for replica in spread} == {"m-1": 6, "m-2": 6}
        assert {u.id: u.in_flight for u in (await state(client, several)).use} == {"m-1": 6, "m-2": 6}
        reply = await put(client, several, table(2, (model("m"),), (two.endpoint(),)))
        assert reply["draining"] == ["m-1"]
        async with client.get(several.url + "/v1/state") as stream:
            first = RouterState.model_validate_json(await stream.content.readline())
            assert {u.id: (u.in_flight, u.withdrawn) for u in first.use} == {"m-1": (6, True), "m-2": (6, False)}
            held.go_on.set()
            assert [await answer.read() for answer in answers] == [b"one two"] * 12
            while b"m-1" in (line := await asyncio.wait_for(stream.content.readline(), 10)) or not line.strip():
                pass  # it is told as soon as the last one has ended
            assert {u.id for u in RouterState.model_validate_json(line).use} == {"m-2"}


async def test_a_killed_process_takes_its_own_requests_with_it_and_is_replaced(
    several: Process, client: ClientSession
) -> None:
    held = Held()
    async with running(Engine("m-1", answer=held)) as engine:
        await put(client, several, table(1, (model("m"),), (engine.endpoint(),)))
        answers = await opened(client, several, 10)
        victim = followers(several)[0]
        before = {process.pid for process in followers(several)}
        victim.kill()
        said = await several.said("a process has ended and is started anew")
        assert said["exit_code"] == -signal.SIGKILL
        held.go_on.set()
        for answer in answers:
            await _ended(answer)
        assert (await state(client, several)).use[0].in_flight == 0
        async with asyncio.timeout(60):
            while len({process.pid for process in followers(several)} - before) != 1:  # noqa: ASYNC110 - a process starts
                await asyncio.sleep(0.05)
        assert {status for status, _ in await asyncio.gather(*(ask(client, several) for _ in range(8)))} == {200}


async def _ended(answer: ClientResponse) -> None:
    with contextlib.suppress(ClientPayloadError, OSError):  # it was one of the killed process's
        assert await answer.read() == b"one two"


async def test_a_process_that_hangs_never_serves_an_old_table_after_the_acknowledgement(
    several: Process, client: ClientSession
) -> None:
    async with running(Engine("m-1")) as one, running(Engine("m-2")) as two:
        await put(client, several, table(1, (model("m"),), (one.endpoint(),)))
        hung = followers(several)[0]
        os.kill(hung.pid, signal.SIGSTOP)
        async with asyncio.timeout(60):
            while True:  # a connection may fall to the one that hangs: the plane would ask again
                try:
                    async with asyncio.timeout(5):
                        await put(client, several, table(2, (model("m"),), (two.endpoint(),)))
                        break
                except TimeoutError:
                    continue
        assert not psutil.pid_exists(hung.pid) or hung.status() == psutil.STATUS_ZOMBIE
        answers = await asyncio.gather(*(ask(client, several) for _ in range(8)))
        assert set(answers) == {(200, "m-2")}


async def test_what_waits_in_any_process_is_told_once_and_goes_on(several: Process, client: ClientSession) -> None:
    async with running(Engine("m-1")) as engine:
        await put(client, several, table(1, (model("m", state=ModelState.ASLEEP),)))
        waiting = [asyncio.create_task(ask(client, several)) for _ in range(8)]
        async with client.get(several.url + "/v1/state") as stream, asyncio.timeout(60):
            while True:
                line = await stream.content.readline()
                if line.strip() and (asked := RouterState.model_validate_json(line).asked):
                    break
        assert [a.model for a in asked] == ["m"]
        await put(client, several, table(2, (model("m"),), (engine.endpoint(),)))
        assert set(await asyncio.gather(*waiting)) == {(200, "m-1")}
        async with asyncio.timeout(60):
            while (await state(client, several)).asked:  # noqa: ASYNC110 - it is told within a moment
                await asyncio.sleep(0.05)


async def test_metrics_are_of_all_processes(several: Process, client: ClientSession) -> None:
    async with running(Engine("m-1")) as engine:
        await put(client, several, table(1, (model("m"),), (engine.endpoint(), endpoint("m-2", engine.url))))
        await asyncio.gather(*(ask(client, several) for _ in range(20)))
        async with client.get(several.url + "/metrics") as answer:
            lines = (await answer.text()).splitlines()
        counts = [float(line.split()[-1]) for line in lines if line.startswith("llmgw_router_requests_total{")]
        assert sum(counts) == 20
        first = [line for line in lines if line.startswith("llmgw_router_first_byte_seconds_count")]
        assert [line.split()[-1] for line in first] == ["20.0"]


async def test_term_lets_streams_end_in_every_process(several: Process, client: ClientSession) -> None:
    held = Held()
    async with running(Engine("m-1", answer=held)) as engine:
        await put(client, several, table(1, (model("m"),), (engine.endpoint(),)))
        answers = await opened(client, several, 6)
        several.process.send_signal(signal.SIGTERM)
        await several.said("router closing")
        held.go_on.set()
        assert [await answer.read() for answer in answers] == [b"one two"] * 6
        assert await asyncio.wait_for(several.process.wait(), 20) == 0


async def test_followers_end_with_their_keeper_and_the_next_one_has_the_port_and_the_table(
    tmp_path: Path, client: ClientSession
) -> None:
    async with running(Engine("m-1")) as engine:
        async with process(tmp_path / "state", "--processes", "2") as first:
            await put(client, first, table(1, (model("m"),), (engine.endpoint(),)))
            old = followers(first)
            first.process.kill()
            await first.process.wait()
            gone, alive = await asyncio.to_thread(psutil.wait_procs, old, timeout=20)
            assert (len(gone), alive) == (2, [])
            port = first.url.rpartition(":")[2]
        flags = ("--processes", "2", "--listen", f"127.0.0.1:{port}")
        async with process(tmp_path / "state", *flags) as second:
            assert await ask(client, second) == (200, "m-1")


async def test_a_body_that_is_not_as_encoded_is_refused_by_every_face(several: Process, client: ClientSession) -> None:
    headers = {"Content-Encoding": "gzip"}
    await put(client, several, table(1, (model("m"),), ()))
    for method, path in (("PUT", "/v1/table"), ("POST", CHAT)):
        async with client.request(method, several.url + path, data=b"abc", headers=headers) as answer:
            assert answer.status == 400, await answer.text()
