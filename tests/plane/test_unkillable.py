"""Whatever anybody sends, the fleet's state is intact, the refusal is visible and the loop goes on."""

import asyncio
import json
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RawValue
from temporalio.worker import Replayer

from activities.outward import Callers
from activities.pools import Pools
from activities.settings import Outward
from bench.stage import patiently
from llmgw.plan import Judgement
from tests.plane.conftest import working
from workers.control import keep_running, make_worker, runner
from workers.settings import WorkerSettings
from workflows import names
from workflows.client import Fleet
from workflows.converting import data_converter
from workflows.ensure import FleetEndedError, ensure
from workflows.guard import GuardInterceptor
from workflows.reconcile import ReconcileWorkflow

TEMPORAL = Path(sys.executable).parent / "temporal"

GOOD = {"models": [{"name": "m", "profiles": [{"name": "p", "engine": "stub"}]}]}
POISON: dict[str, list[Any]] = {
    "no argument": [],
    "a string": ["hello"],
    "a number": [7],
    "null": [None],
    "a list": [[1, 2]],
    "two arguments": [GOOD, GOOD],
    "nine arguments": list(range(9)),
    "an unknown field": [{**GOOD, "modles": []}],
    "a wrong type": [{"models": 5}],
    "deep nesting": [json.loads("[" * 90 + "]" * 90)],
    "a lone surrogate": [{"models": "\ud83d"}],
    "an envelope that is none": [{"encoding": "zlib+base64", "catalog": "not base64!"}],
    "an unknown encoding": [RawValue(Payload(metadata={"encoding": b"weird"}, data=b"\x00\xff"))],
    "broken json": [RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b'{"models": ['))],
    "raw bytes": [b"\x00\x01"],
}


async def settled_status(fleet: Fleet) -> dict[str, Any]:
    status: dict[str, Any] = await fleet.query(names.STATUS)
    return status


async def test_every_poisoned_signal_is_refused_visibly_and_the_loop_goes_on(fleet: Fleet) -> None:
    good = await fleet.apply(GOOD)
    assert good.judgement is Judgement.ACCEPTED
    for args in POISON.values():
        try:
            await fleet.handle.signal(names.REPLACE_CATALOG, args=args)
        except (UnicodeEncodeError, ValueError):
            continue  # the client itself refuses to encode it
    await fleet.handle.signal("replace-catalogue", GOOD)
    again = await fleet.apply(GOOD)
    assert (again.judgement, again.generation) == (Judgement.UNCHANGED, good.generation)
    status = await settled_status(fleet)
    assert status["generation"] == good.generation
    said = json.dumps(status["refusals"])
    assert "replace-catalogue" in said
    assert len(status["refusals"]) >= len(POISON) - 3


async def test_a_poisoned_order_is_refused_by_name(fleet: Fleet) -> None:
    for args in ([], [5], [{"node": 5}], ["a", "b", "c", "d"], [{"nope": 1}]):
        await fleet.handle.signal("cordon", args=args)
    verdict = await fleet.order("cordon", {"node": "nowhere"})
    assert verdict.judgement is Judgement.REFUSED
    assert "nowhere" in verdict.problems[0]
    assert len((await settled_status(fleet))["refusals"]) >= 5


async def test_the_real_command_line_reaches_the_signal(fleet: Fleet, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.json"
    catalog.write_text(json.dumps(GOOD))
    process = await asyncio.create_subprocess_exec(
        str(TEMPORAL),
        *("workflow", "signal", "--workflow-id", names.workflow_id(fleet.name)),
        *("--name", names.REPLACE_CATALOG, "--input-file", str(catalog)),
        *("--address", fleet.client.service_client.config.target_host),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said
    assert (await fleet.apply(GOOD)).judgement is Judgement.UNCHANGED


async def test_a_flood_of_signals_across_continue_as_new_loses_nothing(client: Client) -> None:
    async with working(client, f"flood-{uuid.uuid4().hex[:8]}", max_history=100) as fleet:
        first = await fleet.handle.describe()
        accepted = await fleet.apply(GOOD)
        sent = 240
        for start in range(0, sent, 40):
            await asyncio.gather(*(fleet.handle.signal(f"nonsense-{start + n}") for n in range(40)))
            assert (await fleet.apply(GOOD)).judgement is Judgement.UNCHANGED
        changed = {"models": [{**GOOD["models"][0], "aliases": ["x"]}]}
        verdict = await fleet.apply(changed)
        assert verdict.generation == accepted.generation + 1
        status = await settled_status(fleet)
        assert status["refusals"][-1]["name"].startswith("nonsense-")
        assert status["generation"] == verdict.generation
        async with asyncio.timeout(60):  # it continues as new a moment after the last verdict
            while (await fleet.handle.describe()).run_id == first.run_id:  # noqa: ASYNC110 - asked from outside
                await asyncio.sleep(0.05)
        await fleet.handle.terminate("the test is over")


async def test_updates_that_never_cease_do_not_keep_a_run_from_going_on_in_a_new_one(client: Client) -> None:
    replayer = Replayer(
        workflows=[ReconcileWorkflow],
        data_converter=data_converter,
        workflow_runner=runner(),
        interceptors=[GuardInterceptor()],
    )
    async with working(client, f"ceaseless-{uuid.uuid4().hex[:8]}", max_history=100) as fleet:
        first = await fleet.handle.describe()
        continued = asyncio.Event()

        async def ask() -> None:
            while not continued.is_set():
                # A verdict each time: never an error, though it may have to be asked for again.
                assert (await fleet.apply(GOOD)).judgement in (Judgement.ACCEPTED, Judgement.UNCHANGED)

        async with asyncio.timeout(120), asyncio.TaskGroup() as asking:
            for _ in range(8):
                asking.create_task(ask())
            while (await fleet.handle.describe()).run_id == first.run_id:  # noqa: ASYNC110 - asked from outside
                await asyncio.sleep(0.05)
            continued.set()
        history = await client.get_workflow_handle(fleet.handle.id, run_id=first.run_id).fetch_history()
        assert (await replayer.replay_workflow(history)).replay_failure is None
        await fleet.handle.terminate("the test is over")


async def test_a_terminated_fleet_comes_back_with_its_catalog(client: Client) -> None:
    name = f"phoenix-{uuid.uuid4().hex[:8]}"
    async with working(client, name) as fleet:
        before = await fleet.apply(GOOD)
        await fleet.handle.terminate("by mistake")
        await ensure(client, name, "test", now_s=1_800_000_000)
        status = await settled_status(fleet)
        assert (status["generation"], status["digest"]) == (before.generation, before.digest)
        assert (await fleet.apply(GOOD)).judgement is Judgement.UNCHANGED
        await fleet.handle.terminate("the test is over")


async def test_a_terminated_fleet_comes_back_as_soon_as_its_observer_learns_of_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.control.ENSURE_EVERY_S", 3600.0)
    settings = WorkerSettings(fleet=f"phoenix-{uuid.uuid4().hex[:8]}", installation="test", metrics_listen=None)
    callers, pools = Callers(Outward()), Pools(Outward())
    fleet = Fleet(client, settings.fleet)
    async with make_worker(client, settings, callers, pools), asyncio.timeout(60):
        keeping = asyncio.create_task(keep_running(client, settings, "test", pools.unwatched))
        before = await patiently(lambda: fleet.apply(GOOD))
        run = (await fleet.handle.describe()).run_id
        await fleet.handle.terminate("by mistake")
        while (await fleet.handle.describe()).run_id == run:  # noqa: ASYNC110 - asked from outside
            await asyncio.sleep(0.05)
        assert (await patiently(lambda: fleet.apply(GOOD))).generation == before.generation
        keeping.cancel()
        await fleet.handle.terminate("the test is over")
    await pools.close()
    await callers.close()


async def test_a_cancelled_fleet_ends_and_is_left_alone(client: Client) -> None:
    name = f"ended-{uuid.uuid4().hex[:8]}"
    async with working(client, name) as fleet:
        await fleet.apply(GOOD)
        await fleet.handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await fleet.handle.result()
        with pytest.raises(FleetEndedError):
            await ensure(client, name, "test", now_s=1_800_000_000)
