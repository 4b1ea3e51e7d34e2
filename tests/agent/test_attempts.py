"""How often a pull is tried: as often as it takes while it gets on, and a few times when it does not."""

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path

import pytest

from agent.local import Secrets
from agent.weights import pulls
from agent.weights.pulls import ATTEMPTS, WORTH_GOING_ON, Around, Pulls, Running
from agent.weights.sources import Source, parse
from llmgw.wire import Pull
from tests.agent.hub_server import Hub, hub_server, tensors

REPO = "org/model"
SOURCE = f"hf://{REPO}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "weights").mkdir()
    return tmp_path / "weights"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with hub_server() as made:
        yield made


async def ended(root: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, *, whole: bool = True) -> tuple[bool, int, str]:
    """(whether it came whole, attempts, what was said last) of one pull, without pauses. `whole`: what is said of what
    has come."""
    monkeypatch.setattr(pulls, "_PAUSE_S", (0.0, 0.0))
    over, arrived, attempts = asyncio.Event(), asyncio.Event(), 0

    async def is_whole(_: Source) -> bool:
        return whole

    def changed() -> None:
        nonlocal attempts
        (row,) = made.rows() or (None,)
        attempts += row is not None and row.reason == "asks what it consists of"
        if row is not None and not row.pulling:
            over.set()

    def make_task(work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        return asyncio.create_task(work, name=name)

    def arrive(_: str) -> None:
        arrived.set()
        over.set()

    environ = {"HF_ENDPOINT": hub.url, "HF_HOME": str(root)}
    around = Around(
        root=root,
        kept=root / "pulls.json",
        environ=environ,
        secrets=Secrets(None, {}),
        make_task=make_task,
        free_bytes=lambda: (2**40, 2**41),
        is_whole=is_whole,
        changed=changed,
        ended=arrive,
    )
    made = Pulls(around)
    made.order(Pull(source=SOURCE))
    async with asyncio.timeout(300):
        await over.wait()
    said = made.rows()[0].reason if made.rows() else ""
    return arrived.is_set(), attempts, said


async def test_interruptions_do_not_end_a_pull_that_gets_on(
    root: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.put(REPO, {"model.safetensors": tensors(900_000)})
    hub.drop_after = 100_000
    came, attempts, _ = await ended(root, hub, monkeypatch)
    assert came
    assert attempts > ATTEMPTS


async def test_what_never_gets_on_is_given_up_with_the_last_reason(
    root: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.put(REPO, {"model.safetensors": tensors(900_000)})
    hub.drop_after = 0
    came, attempts, said = await ended(root, hub, monkeypatch)
    assert not came
    assert attempts == ATTEMPTS
    assert said.startswith(f"given up after {ATTEMPTS} attempts: ")


async def test_what_comes_whole_and_is_not_what_it_should_be_is_no_progress(
    root: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.put(REPO, {"model.safetensors": tensors(900_000)})
    came, attempts, said = await ended(root, hub, monkeypatch, whole=False)
    assert not came
    assert attempts <= ATTEMPTS + 1, "the first brought it all; none after that brought more"
    assert "what came is not whole" in said


def test_progress_is_what_lies_beyond_all_earlier_attempts() -> None:
    pull = Running(Pull(source=SOURCE), parse(SOURCE))
    assert not pull.got_on(), "not even what it consists of is known"
    pull.farthest, pull.total = 0, 100 * WORTH_GOING_ON
    for count, on in ((WORTH_GOING_ON - 1, False), (2 * WORTH_GOING_ON, True), (0, False), (2 * WORTH_GOING_ON, False)):
        pull.bytes = count
        assert pull.got_on() is on
    pull.farthest, pull.total, pull.bytes = 0, 1000, 10
    assert pull.got_on(), "a hundredth of what is small"
