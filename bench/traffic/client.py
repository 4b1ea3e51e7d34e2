"""The cheapest client there can be: kept-alive connections that ask again as soon as they are answered.

`python -m bench.traffic.client URL` reads a line of JSON {concurrency, seconds, stream?} from standard input for each
measurement, and prints one of figures: requests, failures by cause, latencies in ms.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import httptools
import uvloop

BODY = {"model": "m", "messages": [{"role": "user", "content": "Tell me of routers, in " + "many " * 40 + "words."}]}


@dataclass
class Tally:
    """What came of the requests of one measurement. Times in ms."""

    times_ms: list[float] = field(default_factory=list)
    causes: Counter[str] = field(default_factory=Counter)

    def figures(self, seconds: float) -> dict[str, object]:
        ordered = sorted(self.times_ms) or [0.0]
        at = {p: round(ordered[min(len(ordered) - 1, int(p / 100 * len(ordered)))], 3) for p in (50, 90, 99)}
        return {
            "requests": len(self.times_ms),
            "per_s": round(len(self.times_ms) / max(seconds, 0.001), 1),
            "p50_ms": at[50],
            "p90_ms": at[90],
            "p99_ms": at[99],
            "failures": dict(self.causes),
        }


class Asker(asyncio.Protocol):
    """One connection: asks, waits for the whole answer, asks again until told to stop."""

    def __init__(self, request: bytes, tally: Tally, until: float) -> None:
        self.request, self.tally, self.until = request, tally, until
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.parser = httptools.HttpResponseParser(self)
        self.began = 0.0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._ask()

    def _ask(self) -> None:
        assert self.transport is not None
        self.began = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(f"not HTTP: {error}")

    def on_message_complete(self) -> None:
        now = time.perf_counter()
        status = self.parser.get_status_code()
        if status == 200:
            self.tally.times_ms.append((now - self.began) * 1000)
        else:
            self.tally.causes[str(status)] += 1
        if now >= self.until:
            self._end("")
            return
        self.parser = httptools.HttpResponseParser(self)
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._end("connection lost")

    def _end(self, cause: str) -> None:
        if self.done.done():
            return
        if cause:
            self.tally.causes[cause] += 1
        self.done.set_result(None)
        if self.transport is not None:
            self.transport.close()


def post(host: str, body: bytes, path: str = "/v1/chat/completions") -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def measure(url: str, concurrency: int, seconds: float, *, stream: bool) -> dict[str, object]:
    """`concurrency` connections that ask for `seconds`."""
    parts = urlsplit(url)
    body = json.dumps(BODY | ({"stream": True} if stream else {})).encode()
    tally, request = Tally(), post(parts.netloc, body)
    until = time.perf_counter() + seconds
    loop = asyncio.get_running_loop()
    assert parts.hostname is not None
    assert parts.port is not None
    host, port = parts.hostname, parts.port
    askers = []
    for _ in range(concurrency):
        _, asker = await loop.create_connection(lambda: Asker(request, tally, until), host, port)
        askers.append(asker.done)
    await asyncio.wait(askers)
    return tally.figures(seconds)


async def run(url: str) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        asked = json.loads(line)
        found = await measure(url, int(asked["concurrency"]), float(asked["seconds"]), stream=bool(asked.get("stream")))
        print(json.dumps(found), flush=True)


def main() -> None:
    uvloop.run(run(sys.argv[1]))


if __name__ == "__main__":
    main()
