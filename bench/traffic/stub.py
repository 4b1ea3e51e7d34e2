"""The cheapest engine there can be, so that a bench measures what stands before it: fixed answers over raw sockets.

`python -m bench.traffic.stub PORT NAME [--pieces N] [--gap-s S]`: every POST is answered with one small document that
says NAME, or, where the body asks for `"stream":true`, with N pieces, one each S seconds. GET `/v1/models` lists NAME.
"""

import argparse
import asyncio
import json
from typing import cast

import uvloop

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def document(content: bytes) -> bytes:
    return HEAD % len(content) + content


class Stub(asyncio.Protocol):
    """One connection. Requests come whole or in pieces; answers leave in their order."""

    def __init__(self, name: str, pieces: int, gap_s: float) -> None:
        choice = {"index": 0, "message": {"role": "assistant", "content": name}, "finish_reason": "stop"}
        self.whole = document(json.dumps({"id": "stub", "model": "m", "choices": [choice]}).encode())
        self.listing = document(json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}).encode())
        self.healthy = document(b"{}")
        delta = {"id": "stub", "model": "m", "choices": [{"index": 0, "delta": {"content": name}}]}
        event = f"data: {json.dumps(delta)}\n\n".encode()
        self.piece = b"%x\r\n%s\r\n" % (len(event), event)
        self.pieces, self.gap_s = pieces, gap_s
        self.buffer = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.buffer) < end + 4 + length:
                return
            body = self.buffer[end + 4 : end + 4 + length]
            self.buffer = self.buffer[end + 4 + length :]
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        assert self.transport is not None
        if head.startswith(b"get"):
            self.transport.write(self.listing if head.startswith(b"get /v1/models") else self.healthy)
        elif b'"stream":true' in body or b'"stream": true' in body:
            self.transport.write(STREAM)
            self._next(self.pieces)
        else:
            self.transport.write(self.whole)

    def _next(self, left: int) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if left == 0:
            self.transport.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            return
        self.transport.write(self.piece)
        asyncio.get_running_loop().call_later(self.gap_s, self._next, left - 1)


async def serve(port: int, name: str, pieces: int, gap_s: float) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: Stub(name, pieces, gap_s), "127.0.0.1", port, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("name")
    parser.add_argument("--pieces", type=int, default=20)
    parser.add_argument("--gap-s", type=float, default=0.05)
    given = parser.parse_args()
    uvloop.run(serve(given.port, given.name, given.pieces, given.gap_s))


if __name__ == "__main__":
    main()
