"""Pulls under way: one process each, two at a time, one per (repository, revision), none without disk reserved.

A pull is a wish: it is written down, tried again after failures with growing pauses, and waits where the disk has no
room. It ends when its source is whole, when it is cancelled, or when it has failed too often.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agent.local import Secrets, refuse
from agent.weights.sources import Hub, Source, parse
from llmgw.wire import CommandResult, Outcome, Pull, Refusal, RefusalCode, WeightsReport

AT_ONCE = 2
ATTEMPTS = 6
MOST_PULLS = 50
WORTH_GOING_ON = 16 * 1024 * 1024
"""Bytes beyond all that earlier attempts reached, so that one that fails is not counted against the pull; of what is
small, a hundredth."""
_PAUSE_S = (5.0, 300.0)
_SPACE_S = 5.0
_MARGIN = 0.01
"""Share of the disk that pulls leave free."""

_PULLS: TypeAdapter[tuple[Pull, ...]] = TypeAdapter(tuple[Pull, ...])


class Failed(Exception):  # noqa: N818 - an outcome of one attempt
    """One attempt of a pull failed."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


@dataclass
class Running:
    """One pull. `coming`: bytes reserved and not on the disk yet."""

    order: Pull
    source: Source
    reason: str = "waits for its turn"
    bytes: int = 0
    farthest: int | None = None
    """Bytes that earlier attempts had at most, or found there at first."""
    total: int | None = None
    coming: int = 0
    over: bool = False
    """Failed too often, and kept only to be shown."""
    task: asyncio.Task[None] | None = None
    nudged: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def key(self) -> str:
        return f"{self.source.folder}@{self.source.revision}" if isinstance(self.source, Hub) else self.source.place

    def got_on(self) -> bool:
        """Whether the attempt that ends now came farther than any before. What is fetched anew, since it was not what
        it should be, is no progress."""
        if self.farthest is None:
            return False
        step = min(WORTH_GOING_ON, max(1, (self.total or 0) // 100)) if self.total else WORTH_GOING_ON
        on = self.bytes - self.farthest >= step
        self.farthest = max(self.farthest, self.bytes)
        return on

    def row(self) -> WeightsReport:
        return WeightsReport(
            source=self.order.source,
            path="",
            bytes=self.bytes,
            total_bytes=self.total,
            complete=False,
            pulling=not self.over,
            reason=self.reason[:300],
        )


@dataclass(frozen=True)
class Around:
    """What pulls use of their node."""

    root: Path
    kept: Path
    """File in which unfinished pulls are written down."""
    environ: Mapping[str, str]
    secrets: Secrets
    make_task: Callable[[Coroutine[None, None, None], str], asyncio.Task[None]]
    free_bytes: Callable[[], tuple[int, int]]
    """(free, total) of the root's disk."""
    is_whole: Callable[[Source], Awaitable[bool]]
    changed: Callable[[], None]
    """Told whenever a row may have changed."""
    ended: Callable[[str], None]
    """Told a source that has become whole."""


class Pulls:
    def __init__(self, around: Around) -> None:
        self._around = around
        self._running: dict[str, Running] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._turns: dict[str, asyncio.Lock] = {}
        self._judging = asyncio.Lock()

    def resume(self) -> None:
        """Go on with what an earlier agent had not finished."""
        with suppress(OSError, ValidationError):
            for order in _PULLS.validate_json(self._around.kept.read_bytes()):
                self.order(order)

    def order(self, order: Pull) -> CommandResult:
        """Take a pull on; one that is under way is tried again at once if it pauses."""
        known = self._running.get(order.source)
        if known is not None and not known.over and known.order == order:
            known.nudged.set()
            return CommandResult(subject=order.source, outcome=Outcome.ALREADY)
        try:
            source = parse(order.source)
        except ValueError as error:
            return self._refused(order, refuse(RefusalCode.UNSUPPORTED, str(error)))
        if isinstance(found := self._token(order), Refusal):
            return self._refused(order, found)
        if len(self._running) >= MOST_PULLS and known is None and not self._drop_one_over():
            return self._refused(order, refuse(RefusalCode.NOT_READY, f"{MOST_PULLS} pulls are under way: wait"))
        if known is not None and known.task is not None:
            known.task.cancel()
        pull = self._running[order.source] = Running(order, source)
        pull.task = self._around.make_task(self._live(pull), f"pull {order.source}")
        self._write_down()
        self._around.changed()
        return CommandResult(subject=order.source, outcome=Outcome.ACCEPTED)

    def rows(self) -> tuple[WeightsReport, ...]:
        return tuple(pull.row() for pull in self._running.values())

    def sources(self) -> tuple[str, ...]:
        """What is being fetched."""
        return tuple(text for text, pull in self._running.items() if not pull.over)

    async def cancel(self, source: str) -> None:
        """End a pull; its process is gone when this returns."""
        pull = self._running.pop(source, None)
        self._write_down()
        self._around.changed()
        if pull is not None and pull.task is not None:
            pull.task.cancel()
            await asyncio.wait([pull.task])

    def _refused(self, order: Pull, refusal: Refusal) -> CommandResult:
        return CommandResult(subject=order.source, outcome=Outcome.REFUSED, refusal=refusal)

    def _token(self, order: Pull) -> str | Refusal | None:
        """The token's value, by the name of the secret that holds it."""
        if order.secret is None:
            return None
        found = self._around.secrets.resolve({"token": order.secret})
        return found if isinstance(found, Refusal) else found["token"]

    def _drop_one_over(self) -> bool:
        over = next((text for text, pull in self._running.items() if pull.over), None)
        return over is not None and self._running.pop(over) is not None

    def _write_down(self) -> None:
        """A wish that cannot be written is still carried out; the plane tells it again to another agent."""
        orders = tuple(pull.order for pull in self._running.values() if not pull.over)
        with suppress(OSError):
            draft = self._around.kept.with_suffix(".new")
            draft.write_bytes(_PULLS.dump_json(orders))
            draft.replace(self._around.kept)

    # --- one pull's life -------------------------------------------------------------------------------------------

    async def _live(self, pull: Running) -> None:
        turn = self._turns.setdefault(pull.key, asyncio.Lock())
        attempt = 0
        while attempt < ATTEMPTS:
            try:
                async with turn, self._slots:
                    await self._attempt(pull)
                self._running.pop(pull.order.source, None)
                self._write_down()
                self._around.ended(pull.order.source)
                return
            except Failed as failure:
                # A long way may be interrupted as often as it likes, as long as it gets on.
                attempt = 0 if pull.got_on() else attempt + (failure.kind != "no_disk")
                pull.coming = 0
                self._say(pull, failure.text)
                if failure.kind == "no_disk":
                    await self._pause(pull, _SPACE_S)
                elif attempt < ATTEMPTS:
                    shortest, longest = _PAUSE_S
                    await self._pause(pull, min(longest, shortest * 3.0 ** max(0, attempt - 1)))
        pull.over = True
        self._write_down()
        self._say(pull, f"given up after {ATTEMPTS} attempts: {pull.reason}")

    async def _pause(self, pull: Running, seconds: float) -> None:
        pull.nudged.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(pull.nudged.wait(), seconds)

    async def _attempt(self, pull: Running) -> None:
        """Fetch once, in a process of its own. Raises Failed."""
        token = self._token(pull.order)
        if isinstance(token, Refusal):
            raise Failed("denied", token.message)
        self._say(pull, "asks what it consists of")
        environ = {name: value for name, value in self._around.environ.items() if not name.startswith("LLMGW_")}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "agent.weights.fetch"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**environ, "HF_HUB_DISABLE_TELEMETRY": "1"},
        )
        try:
            job = {"source": pull.order.source, "root": str(self._around.root), "token": token}
            await self._follow(pull, process, job)
        finally:
            pull.coming = 0
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if not await self._around.is_whole(pull.source):
            raise Failed("bad", "what came is not whole")

    async def _follow(self, pull: Running, process: asyncio.subprocess.Process, job: Mapping[str, Any]) -> None:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - pipes were asked for
        process.stdin.write(json.dumps(job).encode() + b"\n")
        async for line in process.stdout:
            event = json.loads(line)
            match event["event"]:
                case "plan":
                    pull.total, pull.bytes = event["total"], event["here"]
                    pull.farthest = pull.bytes if pull.farthest is None else pull.farthest
                    await self._reserve(pull, event["todo"])
                    process.stdin.write(b"go\n")
                    self._say(pull, "fetches")
                case "have":
                    pull.coming = max(0, pull.coming - (event["bytes"] - pull.bytes))
                    pull.bytes = event["bytes"]
                    self._say(pull, "fetches")
                case "waiting":
                    self._say(pull, event["text"])
                case "failed":
                    raise Failed(event["kind"], event["text"])
                case "end":
                    return
        raise Failed("bad", "its process ended without a word")

    async def _reserve(self, pull: Running, todo: int) -> None:
        """Set the bytes to come aside, so that pulls at once never promise the same space. Raises Failed."""
        async with self._judging:
            free, total = await asyncio.to_thread(self._around.free_bytes)
            reserved = sum(other.coming for other in self._running.values() if other is not pull)
            margin = int(total * _MARGIN)
            if todo > free - reserved - margin:
                raise Failed("no_disk", _no_room(todo, free, reserved, margin))
            pull.coming = todo

    def _say(self, pull: Running, reason: str) -> None:
        pull.reason = reason
        self._around.changed()


def _no_room(todo: int, free: int, reserved: int, margin: int) -> str:
    """The figures by which a pull is refused."""
    less = [f"{_gib(reserved)} reserved by other pulls"] if reserved else []
    less.append(f"{_gib(margin)} kept free")
    return f"{_gib(todo)} to fetch, {_gib(free)} free on the disk, of which {' and '.join(less)}: waits for space"


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**28 else f"{count / 2**20:.1f} MiB"


def used_percent(root: Path) -> float:
    """How full the disk that holds `root` is, as this user sees it."""
    found = os.statvfs(root)
    used = found.f_blocks - found.f_bfree
    return 100.0 * used / max(1, used + found.f_bavail)


def free_bytes(root: Path) -> tuple[int, int]:
    """(free for this user, total) of the disk that holds `root`, in bytes."""
    found = os.statvfs(root)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
