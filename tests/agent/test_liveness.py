"""Starting, ready, alive: three different questions, and none is answered by a health page alone."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from agent.liveness import Activity, next_activity, work_done
from agent.progress import LEAST_BYTES, Progress, moved_bytes, window_s
from agent.readiness import ready_interval_s
from agent.vitals import Vitals
from llmgw.engines import ROWS
from llmgw.wire import LaunchSpec, MetricNames, Readiness
from tests.agent.running import Agent, alive, start, stub

# --- starting ------------------------------------------------------------------------------------------------------


async def test_the_start_limit_is_extended_while_the_engine_says_something_new(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub("--load-s", "3", "--load-lines", "15", start_limit_s=1.5)))
    report = await agent.report(lambda r: any("extended while it makes progress" in row.reason for row in r.replicas))
    assert report.replicas[0].state == "loading"
    assert (await agent.row("m-1", "ready", "failed")).state == "ready"


@pytest.mark.parametrize(
    "args",
    [("--load-s", "60"), ("--load-s", "60", "--load-lines", "300", "--repeat-lines")],
    ids=["silent", "repeating itself"],
)
async def test_an_engine_that_makes_no_progress_is_ended_at_its_limit(agent: Agent, args: tuple[str, ...]) -> None:
    await agent.send(1, start("m-1", stub(*args, start_limit_s=1.0)))
    row = await agent.row("m-1", "failed")
    assert row.reason == "start limit 1 s reached while loading"
    assert not alive(row.pid)


async def test_no_start_goes_on_for_ever_whatever_it_says(agent: Agent) -> None:
    await agent.send(1, start("m-1", stub("--load-s", "600", "--load-lines", "6000", start_limit_s=0.5)))
    assert "start limit 0.5 s reached" in (await agent.row("m-1", "ready", "failed")).reason


async def test_a_profile_may_ask_that_a_completion_answers_before_it_counts_as_ready(agent: Agent) -> None:
    plain = stub("--refuse-s", "1.5", "--load-s", "0.1")
    asking = plain.model_copy(update={"readiness": Readiness(probe_completion=True)})
    await agent.send(1, start("m-1", plain), start("m-2", asking))
    assert (await agent.row("m-1", "ready")).reason == ""
    report = await agent.report(lambda r: any("completion answers 503" in row.reason for row in r.replicas))
    assert {row.replica: row.state for row in report.replicas} == {"m-1": "ready", "m-2": "loading"}
    await agent.row("m-2", "ready")


def progress(path: Path, text: str = "") -> Progress:
    path.write_text(text)
    made = Progress(path, Readiness(), now_s=0.0)
    made.read_log(0.0)
    return made


@pytest.mark.parametrize(
    ("line", "moves"),
    [
        ("Loading shard 3/4", True),
        ("12:00:01 INFO Loading shard 2/4", False),
        ('INFO: 127.0.0.1:5 - "GET /health HTTP/1.1" 503', False),
        ("srv  log_server_r: request: GET /v1/models 127.0.0.1 503", False),
        ("\rDownloading:  43%", True),
    ],
    ids=["new", "said before, at another time", "our probe", "our probe, llama.cpp", "a bar"],
)
def test_only_what_is_new_in_the_log_is_progress(tmp_path: Path, line: str, moves: bool) -> None:
    log = tmp_path / "log"
    watched = progress(log, "11:59:58 INFO Loading shard 2/4\n")
    with log.open("a") as file:
        file.write(line + "\n")
    watched.read_log(5.0)
    assert watched.last_s == (5.0 if moves else 0.0)


def test_a_log_that_was_halved_is_read_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    watched = progress(log, "a long line of an early hour\n")
    log.write_text("later\n")
    watched.read_log(5.0)
    watched.read_log(6.0)
    assert watched.last_s == 6.0


def test_a_load_without_words_is_known_by_the_bytes_it_moves(tmp_path: Path) -> None:
    watched = progress(tmp_path / "log")
    watched.take_io([os.getpid()], 1.0)
    watched.take_io([os.getpid()], 2.0)
    assert watched.last_s == 0.0
    with Path(os.devnull).open("wb") as nowhere:
        nowhere.write(bytes(LEAST_BYTES))
    watched.take_io([os.getpid()], 3.0)
    assert watched.last_s == 3.0
    assert moved_bytes(2**22 + 1) == 0


def test_windows_are_a_minute_or_half_the_limit() -> None:
    assert [window_s(limit) for limit in (10, 600)] == [5, 60]


# --- alive ---------------------------------------------------------------------------------------------------------

METRICS = ROWS["stub"].metrics


def lively(*args: str, stall_limit_s: float | None = 1.0) -> LaunchSpec:
    return stub(*args).model_copy(update={"metrics": METRICS, "stall_limit_s": stall_limit_s})


@asynccontextmanager
async def asked(url: str | None, tokens: int) -> AsyncIterator[None]:
    """A streamed request in flight, whatever becomes of it."""

    async def ask() -> None:
        body = {"model": "m", "prompt": "x", "stream": True, "max_tokens": tokens}
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
                await http.post(f"{url}/v1/completions", json=body)
        except httpx.HTTPError:
            return

    task = asyncio.create_task(ask())
    try:
        yield
    finally:
        task.cancel()


async def test_requests_in_flight_without_progress_are_a_hung_engine_though_it_calls_itself_well(agent: Agent) -> None:
    await agent.send(1, start("m-1", lively()))
    row = await agent.row("m-1", "ready")
    await agent.tell("m-1", "stall")
    async with asked(row.url, 5):
        row = await agent.row("m-1", "failed")
    assert row.reason == "hung: no token progress with 1 running requests for 1 s"
    assert row.was_ready, "so the plane starts it anew at once"
    assert not alive(row.pid)


async def test_an_engine_at_work_is_never_ended_however_sick_it_calls_itself(agent: Agent) -> None:
    await agent.send(1, start("m-1", lively("--token-delay-s", "0.2")))
    before = await agent.row("m-1", "ready")
    async with asked(before.url, 100000):
        await agent.tell("m-1", "sicken")
        await agent.row("m-1", "loading")
        await agent.tell("m-1", "heal")
        after = await agent.row("m-1", "ready")
    assert after.pid == before.pid


LAUNCH = LaunchSpec(
    engine="e", argv=("x",), served_name="m", metrics=MetricNames(running="e:run", tokens_total="e:tok_total")
)


def seen(*figures: dict[str, float]) -> Activity:
    """After one look a minute, the last of them now."""
    activity: Activity | None = None
    for minute, found in enumerate(figures):
        activity = next_activity(activity, found, LAUNCH, 60.0 * minute)
    assert activity is not None
    return activity


@pytest.mark.parametrize(
    ("figures", "hung"),
    [
        ([{"e:run": 2, "e:tok_total": 5}] * 4, True),
        ([{"e:run": 0, "e:tok_total": 5}] * 9, False),
        ([{"e:run": 2, "e:tok_total": n} for n in range(4)], False),
        ([{"e:run": 2, "e:tok_total": 5, "e:prefill_steps_total": n} for n in range(4)], False),
        ([{"e:run": 2, "e:tok_total": 5, "e:http_requests_total": n} for n in range(4)], True),
        ([{"e:run": n + 1, "e:tok_total": 5} for n in range(4)], True),
        ([{"e:run": 0, "e:tok_total": 5}] * 9 + [{"e:run": 1, "e:tok_total": 5}], False),
        ([{"e:run": 2}] * 9, False),
    ],
    ids=[
        "stands still",
        "idle",
        "tokens",
        "a long prompt",
        "only asked",
        "ever more waiting",
        "just asked after a rest",
        "no counter to judge by",
    ],
)
def test_hung_is_work_that_stands_still_while_there_is_some(figures: list[dict[str, float]], hung: bool) -> None:
    activity = seen(*figures)
    assert bool(activity.why_hung(120.0)) is hung
    assert activity.why_hung(None) == "", "never, where the profile says so"


def test_figures_that_nobody_could_read_for_a_while_are_no_proof_that_it_hangs() -> None:
    """An engine under a burst may answer nothing in time, and work all the same."""
    busy = seen({"e:run": 2, "e:tok_total": 5}, {"e:run": 2, "e:tok_total": 9})
    assert next_activity(busy, {}, LAUNCH, 3600.0) == busy
    assert busy.why_hung(1.0) == ""
    again = next_activity(busy, {"e:run": 2, "e:tok_total": 9000}, LAUNCH, 3600.0)
    assert again is not None
    assert again.why_hung(1.0) == ""


def test_counters_of_work_are_those_of_the_engines_own_family() -> None:
    figures = {"tgi_request_count": 1.0, "process_cpu_seconds_total": 2.0, "tgi_queue_size": 3.0, "tgi_tokens_sum": 4.0}
    names = MetricNames(running="tgi_batch_current_size")
    assert work_done(figures, names) == {"tgi_request_count": 1.0, "tgi_tokens_sum": 4.0}


def test_an_idle_engine_is_asked_every_half_minute_and_one_at_work_often_enough_to_be_found_hung() -> None:
    assert ready_interval_s(3600, 0) == 30
    assert ready_interval_s(0, 0) == 5
    assert ready_interval_s(0, 0, 120) == 5
    assert ready_interval_s(0, 0, 1) == 0.25
    assert ready_interval_s(0, 2) == 1


@pytest.mark.parametrize("limit_s", [2.0, 20.0, 60.0, 600.0])
def test_a_ready_engine_is_asked_long_before_its_silence_would_be_a_hang(tmp_path: Path, limit_s: float) -> None:
    now_s = 0.0
    vitals = Vitals(stub(start_limit_s=limit_s), tmp_path / "log", lambda: now_s)
    for _ in range(50):
        now_s += vitals.pause_s(0.0)
        assert vitals.why_hung() == ""
        vitals.hear()
    assert vitals.pause_s(0.0) == min(30.0, limit_s / 4)
