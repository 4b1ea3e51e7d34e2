"""The same with a real llama.cpp server: it loads, serves, sleeps, and hangs at TERM with a stream open."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import httpx
import pytest

from llmgw.engines import ROWS
from llmgw.wire import LaunchSpec, MetricNames, StopBehaviour
from tests.agent.running import Agent, alive, start, stop

SERVER = shutil.which("llama-server-vulkan", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")

if SERVER is None:
    pytest.skip("no llama.cpp server here", allow_module_level=True)
pytest.importorskip("gguf")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from workers.tiny_model import write_tiny_gguf

    path = tmp_path_factory.mktemp("weights") / "tiny.gguf"
    write_tiny_gguf(path, "A tiny model speaks without end .", loop=True)
    return path


def llama(model: Path, *args: str, metrics: MetricNames | None = None) -> LaunchSpec:
    row = ROWS["llama.cpp"]
    argv = (str(SERVER), "-m", "${llmgw:weights}", "-np", "1", "-t", "1", "-c", "4096", *args)
    return LaunchSpec(
        engine="llama.cpp",
        argv=(*argv, "--metrics", "-a", "tiny", "--host", "${llmgw:host}", "--port", "${llmgw:port}"),
        served_name="tiny",
        weights=f"file://{model}",
        readiness=row.readiness,
        metrics=row.metrics if metrics is None else metrics,
        stop=StopBehaviour(term_limit_s=1.0, second_term_limit_s=1.0, kill_limit_s=5.0),
        start_limit_s=60,
        stall_limit_s=60,
    )


async def test_it_serves_and_a_stop_with_an_open_stream_is_proven_all_the_same(agent: Agent, model: Path) -> None:
    await agent.send(1, start("m-1", llama(model)))
    row = await agent.row("m-1", "ready", "failed")
    assert row.state == "ready", row.log_tail
    ask = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 3000}
    async with (
        httpx.AsyncClient(trust_env=False, timeout=30) as http,
        http.stream("POST", f"{row.url}/v1/chat/completions", json=ask) as answer,
    ):
        await anext(answer.aiter_bytes())
        await agent.send(2, stop("m-1"))
        await agent.without("m-1")
    assert not alive(row.pid)


async def test_its_port_taken_by_a_stranger_costs_it_nothing(agent: Agent, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "squatter"
    folder.mkdir()
    base = llama(model)
    head = ("${llmgw:python}", "-m", "tests.agent.squatter", str(folder), "1", "${llmgw:port}")
    try:
        await agent.send(1, start("m-1", base.model_copy(update={"argv": (*head, *base.argv)})))
        row = await agent.row("m-1", "ready", "failed")
        assert (row.state, row.attempt) == ("ready", 1), row.log_tail
        assert len((folder / "calls").read_text().split()) == 2
    finally:
        (folder / "let-go").touch()


async def test_it_is_not_kept_awake_by_being_watched(agent: Agent, model: Path) -> None:
    await agent.send(1, start("m-1", llama(model, "--sleep-idle-seconds", "1", metrics=MetricNames())))
    row = await agent.row("m-1", "ready", "failed")
    assert row.state == "ready", row.log_tail
    async with asyncio.timeout(60), httpx.AsyncClient(trust_env=False) as http:
        while not (await http.get(f"{row.url}/props")).json()["is_sleeping"]:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.1)
    assert (await agent.row("m-1", "ready")).pid == row.pid
