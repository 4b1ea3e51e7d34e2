"""Whether an engine serves: what to ask it, what its answers mean, and when to ask again.

Ready = the model is *listed* under its served name: a health page that answers 200 has been seen while another
model, or none, was served. Asking never counts as use. It changes no state; `agent.replica` does.
"""

import asyncio
import errno
import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp

from agent.foreign import foreign_json
from llmgw.wire import EnginePost, LaunchSpec, SleepPaths

TICK_S = 0.04
"""How often a starting engine's port and log are looked at (microseconds each)."""

FAILURES = 3
"""So many failed probes in a row, and a ready engine counts as loading again."""

_LOAD_SHARE = 0.05
_LOADING_S = (0.05, 1.0)
_READY_S = (5.0, 30.0)
_QUIET_SHARE = 1.0
_RETRY_S = 1.0
_STALL_PARTS = 4
_LEAST_ASKED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/completions", {"prompt": ".", "max_tokens": 1}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "."}], "max_tokens": 1}),
    ("/v1/embeddings", {"input": "."}),
)
_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{.*\})?\s+(?P<value>\S+)")
_TIMEOUT = aiohttp.ClientTimeout(total=5.0)
_REST_LIMIT_S = 120.0
"""Falling asleep and waking move all of an engine's weights between its devices and main memory."""
_MOST_BYTES = 1024 * 1024
_KEPT_S = 1.0
"""A connection is kept for the next question of the same look, no longer: llama.cpp gives each a thread, and ends only
when it is closed."""
_LAST = {"Connection": "close"}


@dataclass(frozen=True)
class Finding:
    """What one look at an engine found. `reason` is why it is not ready."""

    answers: bool
    ready: bool
    reason: str = ""
    heard: bool = True
    """It said something, however bad; false for silence and for a refused connection."""


def loading_interval_s(age_s: float) -> float:
    """Between two probes of an engine that has been loading for `age_s`: readiness is seen within 5 % of the load
    time (and sooner, because every growth of its log asks for a probe)."""
    low, high = _LOADING_S
    return min(high, max(low, age_s * _LOAD_SHARE))


def ready_interval_s(quiet_s: float, failures: int, stall_limit_s: float | None = None) -> float:
    """Between two probes of a ready engine whose figures stood still for `quiet_s`.

    `stall_limit_s`: it is at work, and counts as hung after so long without progress; None: it is not, or never does.
    """
    low, high = _READY_S
    if failures:
        low = high = _RETRY_S
    if stall_limit_s is not None:
        high = min(high, stall_limit_s / _STALL_PARTS)
    return min(high, max(low, quiet_s * _QUIET_SHARE))


def port_answers(host: str, port: int) -> bool:
    """Whether something listens, without waiting: on the node itself a connection is made or refused at once."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            if probe.connect_ex((host, port)) == 0:
                return True
            return probe.connect_ex((host, port)) in (0, errno.EISCONN)
        except OSError:  # a host name that does not resolve
            return False


class Prober:
    """Asks engines over HTTP. One per agent; close it."""

    def __init__(self) -> None:
        self._session = _session(aiohttp.TCPConnector(limit=0, force_close=True))
        self._kept = _session(aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_S))
        """Its connections serve two questions; for such only as may be asked again when the engine has closed it."""

    async def close(self) -> None:
        await asyncio.gather(self._session.close(), self._kept.close())

    async def look(self, base: str, launch: LaunchSpec, *, was_ready: bool) -> Finding:
        """One probe of the engine at `base` (no trailing slash). Never raises for what the engine does."""
        rules = launch.readiness
        try:
            # A ready engine's figures are asked next, on the same connection: opening one costs more than a question.
            session = self._kept if was_ready and launch.metrics.running is not None else self._session
            health, _ = await _get(session, base + rules.health_path)
            if health != 200:
                return Finding(answers=True, ready=False, reason=f"{rules.health_path} answers {health}")
            if was_ready:
                return Finding(answers=True, ready=True)
            if rules.lists_model and (reason := await self._why_unlisted(base, launch)):
                return Finding(answers=True, ready=False, reason=reason)
            if rules.probe_completion and (reason := await self._why_no_completion(base, launch)):
                return Finding(answers=True, ready=False, reason=reason)
            return Finding(answers=True, ready=True)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            silent = isinstance(error, aiohttp.ClientConnectorError)
            return Finding(answers=not silent, ready=False, reason=_told(error), heard=False)

    async def figures(self, base: str, launch: LaunchSpec) -> Mapping[str, float] | None:
        """The engine's own metrics, summed over labels; None when it has none or does not tell them."""
        if launch.metrics.running is None:
            return None
        try:
            status, body = await _get(self._kept, base + launch.metrics.path, _LAST)
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None
        return parse_figures(body.decode(errors="replace")) if status == 200 else None

    async def is_asleep(self, base: str, paths: SleepPaths) -> bool | None:
        """What the engine says of its sleep, None when it says nothing; one that knows no such question is awake."""
        try:
            status, body = await _get(self._session, base + paths.told)
            said: Any = foreign_json(body) if status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None
        if status in (404, 405):
            return False
        found = said.get("is_sleeping") if isinstance(said, dict) else None
        return found if isinstance(found, bool) else None

    async def bring(self, base: str, step: EnginePost, limit_s: float = _REST_LIMIT_S) -> str:
        """Ask the engine to sleep, or to wake, and wait until it does; why it does not, or nothing."""
        path, body, headers = step.path, step.body.encode() or None, {"content-type": "application/json"}
        try:
            async with self._session.post(
                base + path,
                data=body,
                headers=headers if body else None,
                timeout=aiohttp.ClientTimeout(total=limit_s),
                allow_redirects=False,
            ) as answer:
                await answer.content.read(_MOST_BYTES)
                return "" if answer.status == 200 else f"{path} answers {answer.status}"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            silent = isinstance(error, TimeoutError)
            return f"{path} does not answer within {limit_s:g} s" if silent else _told(error)

    async def _why_unlisted(self, base: str, launch: LaunchSpec) -> str:
        path = launch.readiness.models_path
        status, body = await _get(self._session, base + path)
        if status != 200:
            return f"{path} answers {status}"
        names = listed_models(body)
        if launch.served_name in names:
            return ""
        shown = ", ".join(repr(name) for name in names[:5]) or "nothing"
        return f"{path} lists {shown}, not {launch.served_name!r}"[:300]

    async def _why_no_completion(self, base: str, launch: LaunchSpec) -> str:
        """Asks the least that the engine serves: a completion, else a chat, else an embedding."""
        status = 404
        for path, ask in _LEAST_ASKED:
            async with self._session.post(base + path, json={"model": launch.served_name, **ask}) as answer:
                await answer.content.read(_MOST_BYTES)
                status = answer.status
            if status not in (404, 405):
                break
        return "" if status == 200 else f"a one-token completion answers {status}"


def _session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT, trust_env=False)


async def _get(session: aiohttp.ClientSession, url: str, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    async with session.get(url, allow_redirects=False, headers=headers) as answer:
        body = bytearray()
        async for chunk in answer.content.iter_chunked(64 * 1024):
            body += chunk
            if len(body) > _MOST_BYTES:
                break
        return answer.status, bytes(body)


def listed_models(body: bytes) -> list[str]:
    """The names in an OpenAI model list (`data[].id`), or in llama.cpp's (`models[].name`). Empty if it is neither."""
    try:
        document: Any = foreign_json(body)
    except ValueError:
        return []
    if not isinstance(document, dict):
        return []
    rows = [(row, "id") for row in _rows(document, "data")] + [(row, "name") for row in _rows(document, "models")]
    names = [row[key] for row, key in rows if isinstance(row, dict) and isinstance(row.get(key), str)]
    return list(dict.fromkeys(names))


def parse_figures(text: str) -> dict[str, float]:
    """Prometheus text -> metric name -> sum over its labels; lines that are none are skipped."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if (sample := _SAMPLE.match(line)) is None:
            continue
        with suppress(ValueError):
            sums[sample["name"]] = sums.get(sample["name"], 0.0) + float(sample["value"])
    return sums


async def grown_or_due(size: "LogSize", due_s: float) -> None:
    """Return after `due_s`, or one tick after the log grew."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + due_s
    while (left := deadline - clock()) > 0:
        await asyncio.sleep(min(TICK_S, left))
        if size.grew():
            return


class LogSize:
    """Whether a file changed its size since last asked: engines say something just when they become ready."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._size = self._now()

    def grew(self) -> bool:
        before, self._size = self._size, self._now()
        return self._size != before

    def _now(self) -> int:
        try:
            return os.stat(self._path).st_size  # noqa: PTH116 - twenty times a second per loading engine
        except OSError:
            return 0


def _rows(document: dict[str, Any], key: str) -> list[Any]:
    rows = document.get(key)
    return rows if isinstance(rows, list) else []


def _told(error: BaseException) -> str:
    """Without figures that change from probe to probe: a new reason is a new revision."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return "the port refuses connections"
    if isinstance(error, TimeoutError):
        return f"no answer within {_TIMEOUT.total:g} s"
    return f"the connection broke ({type(error).__name__})"
