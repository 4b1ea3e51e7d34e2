"""The tiny model: written whole, the same each time, and recited by a real llama.cpp server."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from workers.tiny_model import write_tiny_gguf

ENGINE = Path(sys.executable).with_name("llama-server-vulkan")
LISTENS = re.compile(rb"listening on (\S+)")
LIMIT_S = 60
ASK = {"messages": [{"role": "user", "content": "What else can you say?"}], "max_tokens": 64}


def test_the_same_arguments_write_the_same_file_and_nothing_beside_it(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "a.gguf", "Good day.")
    write_tiny_gguf(tmp_path / "b.gguf", "Good day.")
    write_tiny_gguf(tmp_path / "c.gguf", "Good night.")

    a, b, c = (path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert a == b
    assert a != c


def test_every_wrong_argument_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"repeats 'the'.*n_embd is 12.*n_layer is 0"):
        write_tiny_gguf(tmp_path / "x.gguf", "the cat and the dog", n_embd=12, n_layer=0)
    with pytest.raises(ValueError, match="text is empty"):
        write_tiny_gguf(tmp_path / "x.gguf", "  ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real
@pytest.mark.skipif(not ENGINE.exists(), reason="llama-server-vulkan has a wheel for Linux on x86_64 only")
@pytest.mark.parametrize(
    ("loop", "ends", "answer"),
    [(False, "stop", " I serve from here."), (True, "length", " I serve from here." * 16)],
    ids=["ends", "loops"],
)
async def test_a_real_engine_recites_the_sentence(tmp_path: Path, loop: bool, ends: str, answer: str) -> None:
    model = tmp_path / "tiny.gguf"
    write_tiny_gguf(model, "I serve from here.", loop=loop)

    async with engine(model) as url, httpx.AsyncClient(base_url=url) as client:
        reply = await client.post("/v1/chat/completions", json=ASK)

    choice = reply.raise_for_status().json()["choices"][0]
    assert choice["message"]["content"] == answer
    assert choice["finish_reason"] == ends


@asynccontextmanager
async def engine(model: Path) -> AsyncIterator[str]:
    """The URL of a llama.cpp server that has loaded `model`, on a port of its own choice."""
    argv = [str(ENGINE), "-m", str(model), "--host", "127.0.0.1", "--port", "0", "-np", "1", "-c", "512"]
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(LIMIT_S):
            yield await first_url(process.stderr)
    finally:
        process.kill()
        await process.wait()


async def first_url(log: asyncio.StreamReader) -> str:
    """llama.cpp says that it listens once the model is loaded."""
    lines = []
    async for line in log:
        if listens := LISTENS.search(line):
            return listens[1].decode()
        lines.append(line.decode())
    pytest.fail("the engine ended before it listened:\n" + "".join(lines))
