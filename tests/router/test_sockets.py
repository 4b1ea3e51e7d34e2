"""Listening, and how it ends: nobody who got through to the kernel is left out."""

import asyncio

from aiohttp import ClientSession, web

from router.settings import Listen
from router.sockets import listening, stop_listening


async def test_connections_that_the_kernel_has_taken_are_served_before_listening_ends() -> None:
    app = web.Application()
    app.router.add_get("/", _hello)
    runner = web.AppRunner(app)
    await runner.setup()
    made = listening(Listen("127.0.0.1", 0))
    made.listen(16)  # and nothing accepts
    url = f"http://127.0.0.1:{made.getsockname()[1]}/"
    streams = [await asyncio.open_connection("127.0.0.1", made.getsockname()[1]) for _ in range(5)]
    for _, writer in streams:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    await web.SockSite(runner, made).start()
    await stop_listening(runner, made)
    answers = [await reader.read() for reader, _ in streams]
    assert all(answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"hello") for answer in answers)
    async with ClientSession() as client:
        try:
            await client.get(url)
            refused = False
        except OSError:
            refused = True
    assert refused
    await runner.cleanup()
    for _, writer in streams:
        writer.close()
        await writer.wait_closed()


async def _hello(_: web.Request) -> web.Response:
    return web.Response(text="hello")
