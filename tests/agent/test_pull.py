"""Pulls by a real agent and real pull processes, from a server that plays the hub."""

import errno
import fcntl
import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agent.weights.fetch import bring
from agent.weights.pieces import Grown, Piece
from agent.weights.wanted import Wanted
from llmgw.wire import LaunchSpec, NodeReport, Outcome, Pull, RefusalCode, RemoveWeights, WeightsReport
from tests.agent.hub_server import COMMIT, OTHER, Hub, hub_server, model
from tests.agent.running import Agent, agent_in, start, stub

REPO = "org/model"
SOURCE = f"hf://{REPO}"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with hub_server() as made:
        yield made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "weights").mkdir()
    return tmp_path / "weights"


@pytest.fixture
async def agent(tmp_path: Path, hub: Hub, root: Path) -> AsyncIterator[Agent]:
    environ = {"HF_ENDPOINT": hub.url, "LLMGW_SECRET_HUB": "hf_CANARY", "HF_HOME": str(tmp_path / "home")}
    async with agent_in(tmp_path, "--weights-root", str(root), env=environ) as made:
        yield made


def row_of(report: NodeReport, source: str) -> WeightsReport | None:
    return next((row for row in report.weights if row.source == source), None)


async def whole(agent: Agent, source: str = SOURCE) -> WeightsReport:
    report = await agent.report(lambda r: (row := row_of(r, source)) is not None and row.complete)
    row = row_of(report, source)
    assert row is not None
    return row


async def saying(agent: Agent, text: str, source: str = SOURCE) -> WeightsReport:
    report = await agent.report(lambda r: (row := row_of(r, source)) is not None and text in row.reason)
    row = row_of(report, source)
    assert row is not None
    return row


def on(source: str) -> LaunchSpec:
    """A stub that is told the path of its weights by its environment."""
    return stub().model_copy(update={"weights": source, "env": {"MODEL": "${llmgw:weights}"}})


async def test_a_repository_comes_into_the_root_as_the_hub_lays_it_out(agent: Agent, hub: Hub, root: Path) -> None:
    files = model()
    hub.put(REPO, files)
    reply = await agent.send(1, Pull(source=SOURCE))
    assert reply.results[0].outcome is Outcome.ACCEPTED
    row = await whole(agent)
    assert row.bytes == sum(map(len, files.values()))
    snapshot = root / "models--org--model" / "snapshots" / COMMIT
    assert row.path == str(snapshot.relative_to(root))
    assert {path.name: path.read_bytes() for path in snapshot.iterdir()} == files
    assert all(path.is_symlink() for path in snapshot.iterdir())
    assert (root / "models--org--model" / "refs" / "main").read_text() == COMMIT
    again = await agent.send(2, Pull(source=SOURCE))
    assert again.results[0].outcome is Outcome.ALREADY


async def test_an_engine_starts_on_the_path_of_what_was_pulled(agent: Agent, hub: Hub, root: Path) -> None:
    source = f"{SOURCE}/m.gguf@v1"
    hub.put(REPO, {"m.gguf": b"gguf" * 100, "other.gguf": b"no"}, revision="v1")
    launch = on(source)
    refused = (await agent.send(1, start("m-1", launch))).results[0].refusal
    assert refused is not None
    assert (refused.code, "pull" in refused.message) == (RefusalCode.NOT_FOUND, True)
    await agent.send(2, Pull(source=source))
    await whole(agent, source)
    assert [path for path, _ in hub.asked] == [f"/{REPO}/resolve/{COMMIT}/m.gguf"]
    await agent.send(3, start("m-1", launch))
    await agent.row("m-1", "ready")
    environ = agent.ours()[0].environ()
    assert environ["MODEL"] == str(root / f"models--org--model/snapshots/{COMMIT}/m.gguf")
    assert environ["HF_HUB_CACHE"] == str(root)


async def test_a_pull_cut_off_by_the_death_of_its_agent_goes_on_where_it_was(agent: Agent, hub: Hub) -> None:
    hub.put(REPO, {"model.safetensors": model(3_000_000)["model-00001-of-00002.safetensors"]})
    hub.stop_after = 2_000_000
    await agent.send(1, Pull(source=SOURCE))
    await agent.report(lambda r: (row := row_of(r, SOURCE)) is not None and row.bytes >= 1_000_000)
    await agent.kill()
    hub.stop_after = None
    await agent.begin("--weights-root", str(agent.state_dir.parent / "weights"))
    await whole(agent)
    ranges = [wanted for _, wanted in hub.asked]
    assert ranges[0] == ""
    assert int(ranges[-1].removeprefix("bytes=").removesuffix("-")) >= 1_000_000


async def test_two_pulls_of_one_revision_fetch_it_once(agent: Agent, hub: Hub) -> None:
    hub.put(REPO, model())
    await agent.send(1, Pull(source=SOURCE), Pull(source=SOURCE), Pull(source=f"{SOURCE}@main"))
    await whole(agent)
    await whole(agent, f"{SOURCE}@main")
    assert len(hub.asked) == len(set(hub.asked)) == 4


async def test_what_does_not_fit_is_not_begun_and_both_figures_are_told(agent: Agent, hub: Hub, root: Path) -> None:
    hub.put(REPO, model())
    hub.told_size["model-00001-of-00002.safetensors"] = 2**60
    await agent.send(1, Pull(source=SOURCE))
    row = await saying(agent, "free on the disk")
    assert row.pulling
    assert f"{2**30:.1f} GiB to fetch" in row.reason
    assert hub.asked == []
    assert not (root / "models--org--model").exists()


async def test_a_token_goes_by_name_and_its_value_nowhere(agent: Agent, hub: Hub, tmp_path: Path) -> None:
    hub.put(REPO, model())
    hub.token = "hf_CANARY"
    await agent.send(1, Pull(source=SOURCE))
    assert (await saying(agent, "token")).pulling
    missing = await agent.send(2, Pull(source=SOURCE, secret="nowhere"))
    assert missing.results[0].refusal is not None
    assert missing.results[0].refusal.code is RefusalCode.NO_SECRET
    await agent.send(3, Pull(source=SOURCE, secret="hub"))
    await whole(agent)
    kept = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    said = b"".join(path.read_bytes() for path in (*kept, tmp_path / "agent.log"))
    assert b"CANARY" not in said
    assert "CANARY" not in (await agent.report()).model_dump_json()


async def test_a_damaged_file_is_thrown_away_and_tried_again(agent: Agent, hub: Hub) -> None:
    hub.put(REPO, model())
    hub.told_size["model-00002-of-00002.safetensors"] = 12
    await agent.send(1, Pull(source=SOURCE))
    assert "of 12 bytes came" in (await saying(agent, "bytes came")).reason
    hub.told_size.clear()
    await agent.send(2, Pull(source=SOURCE))  # an order ends the pause
    await whole(agent)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("hf://org/none", "knows no org/none"),
        (f"{SOURCE}@v9", "no revision v9"),
        (f"{SOURCE}/no.gguf", "no file no.gguf"),
    ],
)
async def test_what_is_not_there_is_said(agent: Agent, hub: Hub, source: str, told: str) -> None:
    hub.put(REPO, model())
    await agent.send(1, Pull(source=source))
    assert told in (await saying(agent, told, source)).reason


async def test_a_hub_that_is_not_reached_is_said_and_asked_again(tmp_path: Path, root: Path) -> None:
    env = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    async with agent_in(tmp_path, "--weights-root", str(root), env=env) as agent:
        await agent.send(1, Pull(source=SOURCE))
        row = await saying(agent, "ConnectError")
        assert (row.pulling, row.complete) == (True, False)


@pytest.mark.parametrize(
    "source", ["", "nothing", "hf://one", "hf://a/../b", "file://x/y", "https://u:p@h/x", "https://h/a?b", "s3://b/k"]
)
async def test_what_is_no_source_is_refused_at_once(agent: Agent, source: str) -> None:
    result = (await agent.send(1, Pull(source=source))).results[0]
    assert result.refusal is not None
    assert result.refusal.code is RefusalCode.UNSUPPORTED


async def test_a_file_of_a_web_server_goes_on_by_range_only_while_it_is_the_same(agent: Agent, hub: Hub) -> None:
    source = f"{hub.url}/files/m.gguf"
    for seq, tag, goes_on in ((1, '"one"', True), (3, '"two"', False)):
        hub.asked.clear()
        hub.web["/files/m.gguf"] = tag.encode() * 400_000
        hub.tag, hub.stop_after = '"one"', 1_500_000
        await agent.send(seq, Pull(source=source))
        await agent.report(lambda r: (row := row_of(r, source)) is not None and row.bytes >= 1_000_000)
        await agent.kill()
        hub.tag, hub.stop_after = tag, None
        await agent.begin("--weights-root", str(agent.state_dir.parent / "weights"))
        row = await whole(agent, source)
        place = agent.state_dir.parent / "weights" / row.path
        assert place.read_bytes() == hub.web["/files/m.gguf"]
        asked = hub.asked[-1][1]
        assert asked.startswith("bytes=")  # it tries; the server says whether the file is still the same
        assert goes_on == (hub.sent[-1] < len(hub.web["/files/m.gguf"]))
        await agent.send(seq + 1, RemoveWeights(paths=(source,)))
        assert not place.exists()
        await agent.report(lambda r: row_of(r, source) is None)


async def test_a_folder_elsewhere_on_the_node_is_copied_and_used_from_the_copy(
    agent: Agent, tmp_path: Path, root: Path
) -> None:
    share = tmp_path / "share" / "m"
    share.mkdir(parents=True)
    for name, content in model().items():
        (share / name).write_bytes(content)
    source = f"file://{share}"
    await agent.send(1, Pull(source=source))
    await whole(agent, source)
    launch = on(source)
    await agent.send(2, start("m-1", launch))
    await agent.row("m-1", "ready")
    assert agent.ours()[0].environ()["MODEL"] == str(root / "file" / str(share)[1:])


async def test_weights_that_lost_a_shard_are_not_started_on_and_are_fetched_again(
    agent: Agent, hub: Hub, root: Path
) -> None:
    hub.put(REPO, model())
    await agent.send(1, Pull(source=SOURCE))
    await whole(agent)
    shard = root / f"models--org--model/snapshots/{COMMIT}/model-00002-of-00002.safetensors"
    shard.resolve().unlink()
    reply = await agent.send(2, Pull(source=SOURCE))
    assert reply.results[0].outcome is Outcome.ACCEPTED
    await whole(agent)
    assert shard.exists()


async def test_removal_cancels_a_pull_and_leaves_nothing_of_it(agent: Agent, hub: Hub, root: Path) -> None:
    hub.put(REPO, model(2_000_000))
    hub.stop_after = 1_000_000
    await agent.send(1, Pull(source=SOURCE))
    await agent.report(lambda r: (row := row_of(r, SOURCE)) is not None and row.bytes >= 900_000)
    done = await agent.send(2, RemoveWeights(paths=("models--org--model",)))
    assert [path.outcome for path in done.results[0].paths] == ["removed"]
    await agent.report(lambda r: r.weights == ())
    assert not (root / "models--org--model").exists()


async def test_removal_leaves_alone_what_is_pulled_for_somebody(agent: Agent, hub: Hub) -> None:
    hub.put(REPO, model(2_000_000))
    hub.stop_after = 1_000_000
    await agent.send(1, Pull(source=SOURCE))
    await agent.report(lambda r: (row := row_of(r, SOURCE)) is not None and row.bytes >= 900_000)
    kept = await agent.send(2, RemoveWeights(paths=("models--org--model",), keep={SOURCE: "model m"}))
    assert "model m" in kept.results[0].paths[0].message
    hub.more.set()
    await whole(agent)


async def test_removing_one_revision_leaves_the_other_whole(agent: Agent, hub: Hub, root: Path) -> None:
    first, second = model(), model()
    second["model-00002-of-00002.safetensors"] = model(salt=b"other")["model-00002-of-00002.safetensors"]
    hub.put(REPO, first)
    hub.put(REPO, second, OTHER, "v2")
    await agent.send(1, Pull(source=SOURCE), Pull(source=f"{SOURCE}@v2"))
    await whole(agent)
    await whole(agent, f"{SOURCE}@v2")
    done = await agent.send(2, RemoveWeights(paths=(f"models--org--model/snapshots/{OTHER}",)))
    own = len(second["model-00002-of-00002.safetensors"])
    assert [(path.outcome, path.freed_bytes) for path in done.results[0].paths] == [("removed", own)]
    snapshot = root / "models--org--model" / "snapshots" / COMMIT
    assert {path.name: path.read_bytes() for path in snapshot.iterdir()} == first
    assert (await whole(agent)).complete
    await agent.send(3, RemoveWeights(paths=(SOURCE,)))
    assert not (root / "models--org--model").exists()


def lock_of(root: Path) -> Path:
    name = hashlib.blake2b(b"models--org--model@main", digest_size=16).hexdigest()
    place = root / ".llmgw" / "locks" / name
    place.parent.mkdir(parents=True)
    return place


async def test_a_lock_left_behind_holds_nobody_up_and_one_that_is_held_does(agent: Agent, hub: Hub, root: Path) -> None:
    """Two agents on one shared folder: the second waits for the first one's download, and finds it there."""
    hub.put(REPO, model())
    with lock_of(root).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        await agent.send(1, Pull(source=SOURCE))
        assert (await saying(agent, "another process fetches")).pulling
        assert hub.asked == []
    await whole(agent)  # the file of the lock is still there


def test_a_disk_that_fills_up_takes_the_unfinished_files_with_it(tmp_path: Path) -> None:
    def fill(piece: Piece, grown: Grown) -> None:
        piece.part.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device", str(piece.part))

    def done(piece: Piece, grown: Grown) -> None:
        piece.part.write_bytes(b"whole")

    pieces = (Piece("a", 5, tmp_path / "a", done), Piece("b", 8, tmp_path / "b", fill))
    with pytest.raises(OSError, match="No space left"):
        bring(Wanted(pieces, lambda: None), lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
