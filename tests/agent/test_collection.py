"""Collection of weights by last use: only pulled ones, only above the limit, never what is used or young."""

import asyncio
import json
import os
from collections.abc import Coroutine
from pathlib import Path

import pytest

from agent.again import Work, again
from agent.local import Secrets
from agent.weights import shelf as shelves
from agent.weights.filelists import write_list
from agent.weights.finding import list_key
from agent.weights.shelf import Shelf, User
from agent.weights.sources import parse
from agent.weights.uses import LEAST_IDLE_S, Uses, to_collect
from llmgw.wire import LaunchSpec

DAY_S = 86_400.0


def put(root: Path, name: str, pulled_s: float) -> str:
    """A web server's file in the root, pulled so long ago."""
    source = f"https://files/{name}"
    place = root / "http" / "files" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"123")
    key = list_key(parse(source))
    write_list(root, key, source, {name: 3})
    for path in (root / ".llmgw" / "lists").glob("*.json"):
        if json.loads(path.read_bytes())["source"] == source:
            moment = path.stat().st_mtime - pulled_s
            os.utime(path, (moment, moment))
    return source


def make(root: Path, state: Path, limit: int | None, *users: str) -> Shelf:
    def task(work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        return asyncio.create_task(work, name=name)

    def keep_at(work: Work, name: str) -> asyncio.Task[None]:
        return asyncio.create_task(again(work, lambda _: None), name=name)

    launches = [
        User(f"m-{n}", LaunchSpec(engine="x", argv=("x",), served_name="m", weights=w)) for n, w in enumerate(users)
    ]
    return Shelf(
        root, state, Secrets(None, {}), {}, task, keep_at, lambda: launches, lambda _: None, asyncio.Lock(), limit
    )


async def test_the_longest_idle_goes_first_and_no_more_than_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "w"
    old, older, young = put(root, "old.gguf", 2 * DAY_S), put(root, "older.gguf", 3 * DAY_S), put(root, "y.gguf", 60)
    used = put(root, "used.gguf", 9 * DAY_S)
    (root / "own.gguf").write_bytes(b"of the people")
    full = [91.0, 89.0]
    monkeypatch.setattr(shelves, "used_percent", lambda _: full[0] if len(full) == 1 else full.pop(0))
    shelf = make(root, tmp_path, 90, used)
    await shelf.look()
    assert await shelf.collect() == (older,)
    assert {row.source for row in shelf.rows()} == {old, young, used, f"file://{root}/own.gguf"}
    full[:] = [99.0]
    assert await shelf.collect() == (old,)  # what is young, used or not ours stays, however full the disk is
    assert {row.source for row in shelf.rows()} == {young, used, f"file://{root}/own.gguf"}


async def test_without_a_limit_or_below_it_nothing_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "w"
    put(root, "old.gguf", 2 * DAY_S)
    monkeypatch.setattr(shelves, "used_percent", lambda _: 95.0)
    for limit in (None, 95):
        shelf = make(root, tmp_path, limit)
        await shelf.look()
        assert await shelf.collect() == ()


async def test_the_report_tells_how_long_weights_were_idle(tmp_path: Path) -> None:
    root = tmp_path / "w"
    old, used = put(root, "old.gguf", DAY_S), put(root, "used.gguf", DAY_S)
    shelf = make(root, tmp_path, None, used)
    await shelf.look()
    idle = {row.source: row.idle_s for row in shelf.rows()}
    assert idle[used] == 0.0
    assert idle[old] == pytest.approx(DAY_S, abs=60)
    again = make(root, tmp_path, None)  # another agent, after the replica has gone
    await again.look()
    assert {row.source: (row.idle_s or 0.0) < 60 for row in again.rows()} == {old: False, used: True}


def test_uses_outlive_the_agent_and_a_damaged_file_forgets_them(tmp_path: Path) -> None:
    now = [1000.0]
    uses = Uses(tmp_path / "uses.json", lambda: now[0])
    uses.note(["a"])
    now[0] += 10_000
    again = Uses(tmp_path / "uses.json", lambda: now[0])
    assert (again.idle_s("a"), again.idle_s("b"), again.idle_s("b", 10_000.0)) == (10_000.0, None, 1000.0)
    assert [c.source for c in to_collect({"a": 0.0, "b": 0.0, "c": 11_000 - LEAST_IDLE_S + 1}, again, ["b"])] == ["a"]
    (tmp_path / "uses.json").write_text("[1")
    assert Uses(tmp_path / "uses.json").idle_s("a") is None
