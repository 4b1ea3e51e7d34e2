"""A small OpenAI-compatible engine of our own, for trying things out: it has the manners of real ones, bad ones too.

Refuses a model name it was not started with, loads for a while, streams, and on demand crashes, hangs, ignores TERM or
leaves a child behind; while it runs, `POST /stub {"do": …}` asks for it: crash, hang, stall, close (its port),
oversleep, sicken, heal, slow (by `s` seconds, all but requests). With `--enable-sleep-mode` it sleeps and wakes as vLLM
does in its development mode, by levels and tags, and serves nothing meanwhile. Standard library only, since its start
time counts. `python -m agent.stub_engine --help`.
"""

import argparse
import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

MAX_BODY = 64 * 1024 * 1024
PARTS = frozenset({"weights", "kv_cache"})


class Stub:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.loaded = asyncio.Event()
        self.serves = asyncio.Event()
        self.stalls = False
        self.hangs = False
        self.sick = False
        self.slow_s = 0.0
        self.down: frozenset[str] = frozenset()
        self.emptied = self.stuck_asleep = False
        self.slept = self.woken = self.refused = 0
        self.server: asyncio.Server | None = None
        self.running = 0
        self.tokens = 0
        self.who = f"{os.environ.get('LLMGW_REPLICA', options.served_model_name)}@{options.port}"

    @property
    def asleep(self) -> bool:
        return bool(self.down)

    async def run(self) -> None:
        """Listen at once, load for a while, serve."""
        server = await asyncio.start_server(self._connection, self.options.host, self.options.port, limit=MAX_BODY)
        self.server = server
        if self.options.crash_after_s is not None:
            asyncio.get_running_loop().call_later(self.options.crash_after_s, self._crash)
        if self.options.hang_after_s is not None:
            asyncio.get_running_loop().call_later(self.options.hang_after_s, self._hang)
        for step in range(self.options.load_lines):
            print("still loading" if self.options.repeat_lines else f"loaded part {step}", flush=True)
            await asyncio.sleep(self.options.load_s / self.options.load_lines)
        if not self.options.load_lines:
            await asyncio.sleep(self.options.load_s)
        if self.options.hold_mib:
            hold_memory(self.options)
        self.loaded.set()
        print("ready", flush=True)
        asyncio.get_running_loop().call_later(self.options.refuse_s, self.serves.set)
        await asyncio.Event().wait()

    def _crash(self) -> None:
        print("crashing as told", flush=True)
        os._exit(self.options.exit_code)

    def _hang(self) -> None:
        self.hangs = True

    # --- HTTP ---

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read_request(reader)) is not None:
                if self.hangs:
                    await asyncio.Event().wait()
                method, path, body, last = request
                await self._answer(writer, method, path, body)
                await writer.drain()
                if last:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, method: str, target: str, body: bytes) -> None:
        path, _, query = target.partition("?")
        if path in ("/metrics", "/health", "/v1/models"):
            await asyncio.sleep(self.slow_s)
        if path == "/metrics":
            return _send(writer, 200, self._figures(), "text/plain")
        if path == "/stub" and method == "POST":
            return self._told(writer, json.loads(body or b"{}"))
        if not self.loaded.is_set():
            return _send(writer, 503, _error("Loading model", "unavailable_error"))
        if path == "/health" and self.sick:
            return _send(writer, 500, _error("sick as told", "internal_error"))
        if path == "/health":
            return _send(writer, 200, {"status": "ok"})
        if path == "/v1/models":
            row = {"id": self.options.list_as or self.options.served_model_name, "object": "model", "owned_by": "stub"}
            return _send(writer, 200, {"object": "list", "data": [row]})
        if path in ("/sleep", "/wake_up", "/is_sleeping", "/collective_rpc") and self.options.enable_sleep_mode:
            return await self._rest(writer, method, path, [item for item in query.split("&") if item], body)
        if method == "POST" and path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
            return await self._serve(writer, path, body)
        return _send(writer, 404, _error(f"no such path: {path}", "not_found_error"))

    async def _rest(
        self, writer: asyncio.StreamWriter, method: str, path: str, query: Sequence[str], body: bytes
    ) -> None:
        """Level 2 drops the weights: their memory comes back empty, and somebody has to have them read again."""
        if path == "/is_sleeping":
            return _send(writer, 200, {"is_sleeping": self.asleep})
        if method != "POST":
            return _send(writer, 405, _error("post it", "invalid_request_error"))
        if path == "/collective_rpc":
            if "weights" in self.down or json.loads(body or b"{}").get("method") != "reload_weights":
                return _send(writer, 500, _error("there is no room for weights", "internal_error"))
            self.emptied = False
            return _send(writer, 200, {"results": [None]})
        tags = frozenset(item.partition("=")[2] for item in query if item.startswith("tags=")) or PARTS
        if path == "/sleep":
            self.slept += not self.asleep
            self.emptied |= "level=2" in query
            self.down |= tags
        elif self.stuck_asleep:
            return _send(writer, 500, _error("does not wake, as told", "internal_error"))
        elif self.down & tags:
            await asyncio.sleep(self.options.wake_s)
            self.down -= tags
            self.woken += not self.down
        return _send(writer, 200, "", "text/plain")

    def _told(self, writer: asyncio.StreamWriter, order: Mapping[str, Any]) -> None:
        _send(writer, 200, {"ok": True})
        if order.get("do") == "crash":
            asyncio.get_running_loop().call_soon(self._crash)
        elif order.get("do") == "hang":
            self.hangs = True
        elif order.get("do") == "stall":
            self.stalls = True
        elif order.get("do") == "close" and self.server is not None:
            self.server.close()
        elif order.get("do") == "oversleep":
            self.stuck_asleep = True
        elif order.get("do") == "slow":
            self.slow_s = float(order.get("s", 0.0))
        elif order.get("do") in ("sicken", "heal"):
            self.sick = order["do"] == "sicken"

    async def _serve(self, writer: asyncio.StreamWriter, path: str, body: bytes) -> None:
        if not self.serves.is_set():
            return _send(writer, 503, _error("not serving yet", "unavailable_error"))
        if self.asleep:
            self.refused += 1
            return _send(writer, 503, _error("asleep", "unavailable_error"))
        try:
            asked: dict[str, Any] = json.loads(body)
        except ValueError:
            return _send(writer, 400, _error("the body is no JSON", "invalid_request_error"))
        if asked.get("model") != self.options.served_model_name:
            message = f"The model `{asked.get('model')}` does not exist."
            return _send(writer, 404, _error(message, "NotFoundError"))
        self.running += 1
        try:
            if path == "/v1/embeddings":
                data = [{"object": "embedding", "index": 0, "embedding": [0.0, 1.0]}]
                return _send(writer, 200, {"object": "list", "model": asked["model"], "data": data})
            count = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or self.options.tokens)
            if asked.get("stream"):
                return await self._stream(writer, asked, path, count)
            words = []
            for number in range(count):
                await self._token()
                words.append(self._word(number))
            return _send(writer, 200, _whole(asked, path, " ".join(words), count))
        finally:
            self.running -= 1

    async def _stream(self, writer: asyncio.StreamWriter, asked: Mapping[str, Any], path: str, count: int) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in range(count):
            await self._token()
            text = f" {self._word(number)}"
            delta = {"delta": {"content": text}} if "chat" in path else {"text": text}
            chunk = {"id": "stub", "model": asked["model"], "choices": [{"index": 0, "finish_reason": None, **delta}]}
            _chunk(writer, f"data: {json.dumps(chunk)}\n\n".encode())
            await writer.drain()
        _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")

    def _word(self, number: int) -> str:
        return "nonsense" if self.emptied else f"{self.who}:{number}"

    async def _token(self) -> None:
        """One more token; a request that is under way when it falls asleep is cut."""
        if self.stalls:
            await asyncio.Event().wait()
        self.tokens += 1
        if self.options.token_delay_s:
            await asyncio.sleep(self.options.token_delay_s)
        if self.asleep:
            raise ConnectionAbortedError("asleep")

    def _figures(self) -> str:
        return (
            f"# TYPE stub:requests_running gauge\nstub:requests_running {self.running}\n"
            f"# TYPE stub:requests_waiting gauge\nstub:requests_waiting 0\n"
            f"# TYPE stub:tokens_total counter\nstub:tokens_total {self.tokens}\n"
            f"# TYPE stub:sleeps_total counter\nstub:sleeps_total {self.slept}\n"
            f"# TYPE stub:wakes_total counter\nstub:wakes_total {self.woken}\n"
            f"# TYPE stub:refused_asleep_total counter\nstub:refused_asleep_total {self.refused}\n"
        )


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, str, bytes, bool] | None:
    """(method, path with query, body, whether it is the last one); None at the end of the connection."""
    head = await reader.readline()
    if not head:
        return None
    method, target, _ = head.decode().split(" ", 2)
    length, last = 0, False
    while (line := await reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode().partition(":")
        if name.lower() == "content-length":
            length = int(value)
        elif name.lower() == "connection":
            last = value.strip().lower() == "close"
    return method, target, await reader.readexactly(length), last


def _send(writer: asyncio.StreamWriter, status: int, body: object, kind: str = "application/json") -> None:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    writer.write(f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(raw)}\r\n\r\n".encode() + raw)


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _error(message: str, kind: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind}}


def _whole(asked: Mapping[str, Any], path: str, text: str, count: int) -> dict[str, Any]:
    chat = "chat" in path
    choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    return {
        "id": "stub",
        "object": "chat.completion" if chat else "text_completion",
        "model": asked["model"],
        "choices": [{"index": 0, "finish_reason": "stop", **choice}],
        "usage": {"prompt_tokens": 1, "completion_tokens": count, "total_tokens": count + 1},
    }


def hold_memory(options: argparse.Namespace) -> None:
    """Enter what it holds on each of its devices into the meter, a file that a pretended device tool reads."""
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    rows = [
        {"device": device, "mib": options.hold_mib, "pid": os.getpid(), "kept": options.keep_memory}
        for device in devices
    ]
    with open(options.meter, "a+") as meter:  # noqa: PTH123 - nothing is imported that the start would pay for
        fcntl.flock(meter, fcntl.LOCK_EX)
        meter.writelines(json.dumps(row) + "\n" for row in rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="stub_engine", description="An OpenAI-compatible engine for trying things out."
    )
    parser.add_argument("--served-model-name", required=True, help="the only model name it answers to")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--load-s", type=float, default=0.0, help="answers 503 this long")
    parser.add_argument("--load-lines", type=int, default=0, help="lines it says meanwhile")
    parser.add_argument("--repeat-lines", action="store_true", help="the same line each time")
    parser.add_argument("--refuse-s", type=float, default=0.0, help="lists its model, and serves only so much later")
    parser.add_argument("--token-delay-s", type=float, default=0.0)
    parser.add_argument("--tokens", type=int, default=8, help="tokens of an answer, unless the request says")
    parser.add_argument("--crash-after-s", type=float, default=None)
    parser.add_argument("--exit-code", type=int, default=1, help="of a crash")
    parser.add_argument("--hang-after-s", type=float, default=None, help="then it takes connections and says nothing")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument(
        "--leave-child",
        nargs="?",
        const="session",
        choices=("session", "group", "stranger"),
        help="starts a child that outlives it: in a session of its own, in the engine's group, or without any mark",
    )
    parser.add_argument("--hold-mib", type=int, default=0, help="device memory it holds, told in --meter")
    parser.add_argument("--meter", default="", help="file of a pretended device tool")
    parser.add_argument("--keep-memory", action="store_true", help="its memory does not come back when it ends")
    parser.add_argument(
        "--enable-sleep-mode", action="store_true", help="may be put to sleep: /sleep, /wake_up, by levels and tags"
    )
    parser.add_argument("--wake-s", type=float, default=0.0, help="how long waking takes")
    parser.add_argument("--list-as", default=None, help="name in the model list, to lie about it")
    return parser.parse_args()


def main() -> None:
    options = _options()
    print("argv:", json.dumps(sys.argv[1:]), flush=True)
    print("environment:", " ".join(sorted(os.environ)), flush=True)
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if options.leave_child:
        child = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(3600)"],
            start_new_session=options.leave_child != "group",
            env={} if options.leave_child == "stranger" else None,
        )
        print("child:", child.pid, flush=True)
    asyncio.run(Stub(options).run())


if __name__ == "__main__":
    main()
