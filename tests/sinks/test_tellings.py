"""Tellings that take longer than a call may: they go on, and the next call finds them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from activities.sinks import kept, tellings
from activities.sinks.book import Book, Place
from activities.sinks.kept import Control, KeptSink, Look, Scope
from activities.sinks.sink import RouterError
from activities.sinks.tellings import Tellings
from llmgw import table as tables
from llmgw.calls import PublishCall
from llmgw.ids import ModelName, ReplicaId, RouterId
from llmgw.wire import Endpoint, ModelState, RouterTable, TableModel, TableReply, Token

ROUTER = Path("/r")


class Slow:
    """A router that takes as long as it is not `done`."""

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self.begun = asyncio.Event()
        self.told: list[str] = []
        self.held = ""
        self.fault = ""

    async def tell(self, book: Book, before: Book | None) -> None:
        self.told.append("whole" if before is None else "difference")
        self.begun.set()
        await self.done.wait()
        if self.fault:
            raise RouterError(self.fault)
        self.held = book.digest

    async def look(self, book: Book, changed: Scope = None) -> Look:
        del changed
        return Look("x", "" if self.held == book.digest else "something else", use=None)

    async def sweep(self, book: Book, idle: frozenset[ReplicaId]) -> frozenset[ReplicaId]:
        del book
        return idle


class Lane:
    """Calls of one router's lane, each under the next token."""

    def __init__(self, router: Slow, folder: Path) -> None:
        @contextlib.asynccontextmanager
        async def control(_: Place) -> AsyncIterator[Control]:
            yield router

        self.sink, self.folder, self.seq = KeptSink(control), folder, 0

    async def put(self, replicas: int, seq: int | None = None) -> TableReply:
        self.seq += 1
        token = Token(installation="i", fleet="f", epoch=1, seq=seq or self.seq)
        url = f"file://{self.folder}/x.json"
        call = PublishCall(router=RouterId("r"), kind="x", url=url, token=token, revision=1)
        models = (TableModel(name=ModelName("m"), state=ModelState.READY),)
        endpoints = tuple(
            Endpoint(id=ReplicaId(f"m-{n}"), url=f"http://10.0.0.{n}:1", models=("m",), served_name="m", engine="stub")
            for n in range(1, replicas + 1)
        )
        digest = tables.table_digest(models, endpoints)
        return await self.sink.put(call, RouterTable(token=token, digest=digest, models=models, endpoints=endpoints))


async def begun(lane: Lane, router: Slow, replicas: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call whose time is over while the router is still being told."""
    router.begun.clear()
    call = asyncio.create_task(lane.put(replicas))
    await router.begun.wait()
    with monkeypatch.context() as patched:
        patched.setattr(kept, "TELL_LIMIT_S", 0.0)
        with pytest.raises(RouterError, match="still being told"):
            await lane.put(replicas)
    call.cancel()


async def test_a_telling_goes_on_after_its_call_and_the_next_call_acknowledges_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = Slow()
    lane = Lane(router, tmp_path)
    await begun(lane, router, 2, monkeypatch)
    router.done.set()
    reply = await lane.put(2)
    assert router.told == ["whole"]
    assert (reply.token.seq, reply.digest) == (3, router.held), "under the token of the call that asks"
    assert Place("r", f"file://{tmp_path}/x.json", {}).read() is not None
    assert (await lane.put(3)).token.seq == 4
    assert router.told == ["whole", "difference"], "what it was seen to hold is a base"


async def test_a_late_call_does_not_take_over_what_a_newer_one_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = Slow()
    lane = Lane(router, tmp_path)
    lane.seq = 10
    await begun(lane, router, 2, monkeypatch)
    router.done.set()
    with pytest.raises(Exception, match="newer token"):
        await lane.put(2, seq=3)


async def test_another_table_waits_for_the_telling_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = Slow()
    lane = Lane(router, tmp_path)
    await begun(lane, router, 2, monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(kept, "TELL_LIMIT_S", 0.0)
        with pytest.raises(RouterError, match="still being told"):
            await lane.put(3)
    router.done.set()
    reply = await lane.put(3)
    assert (router.told, reply.digest) == (["whole", "difference"], router.held)


async def test_why_a_telling_failed_that_no_call_waited_for_is_said_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = Slow()
    router.fault = "it does not come up"
    lane = Lane(router, tmp_path)
    await begun(lane, router, 2, monkeypatch)
    router.done.set()
    with pytest.raises(RouterError, match="does not come up"):
        await lane.put(2)
    router.done.clear()
    call = asyncio.create_task(lane.put(2))
    while len(router.told) < 3:  # noqa: ASYNC110 - until it is told anew
        await asyncio.sleep(0)
    with monkeypatch.context() as patched:
        patched.setattr(kept, "TELL_LIMIT_S", 0.0)
        with pytest.raises(RouterError, match=r"still being told.*before that: it does not come up"):
            await lane.put(2)
    call.cancel()


async def test_a_router_that_was_changed_since_is_told_anew(tmp_path: Path) -> None:
    router = Slow()
    router.done.set()
    lane = Lane(router, tmp_path)
    await lane.put(2)
    router.held = "edited by hand"
    await lane.put(2)
    assert router.told == ["whole", "whole"]


async def test_a_telling_does_not_go_on_for_ever_and_what_ended_long_ago_counts_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tellings, "MOST_S", 0.01)
    with pytest.raises(RouterError, match=r"within 0\.01 s"):
        await Tellings[str]().told(ROUTER, "d", lambda: asyncio.sleep(60, "never"), 30.0)
    monkeypatch.setattr(tellings, "MOST_S", 60.0)
    asked, ends = Tellings[str](), asyncio.Event()

    async def one() -> str:
        await ends.wait()
        return "one"

    with pytest.raises(RouterError, match="still being told"):
        await asked.told(ROUTER, "d", one, 0.0)
    ends.set()
    monkeypatch.setattr(tellings, "FRESH_S", -1.0)
    assert await asked.told(ROUTER, "d", lambda: asyncio.sleep(0, "two"), 30.0) == ("two", False)
