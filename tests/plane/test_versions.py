"""Against a real server: kept catalogs survive continue-as-new, plans are taken by hash, ages go on by themselves."""

import asyncio
import uuid

import pytest
from temporalio.client import Client

from llmgw import views
from llmgw.foresight import foresee
from llmgw.plan import Judgement, Plan
from llmgw.snapshot import snapshot
from tests.plane.conftest import working
from workflows.client import Fleet

pytestmark = pytest.mark.real


def raw(*nodes: str) -> dict[str, object]:
    return {"nodes": [{"id": n, "url": f"http://127.0.0.1:1/{n}"} for n in nodes], "models": []}


async def kept(fleet: Fleet) -> list[int]:
    history = views.HistoryPage.model_validate(await fleet.query("history"))
    return [row.generation for row in history.catalogs]


async def until_continued(fleet: Fleet, run_id: str | None) -> None:
    async with asyncio.timeout(60):
        while (await fleet.client.get_workflow_handle(fleet.handle.id).describe()).run_id == run_id:
            await fleet.order("cordon", {"node": "n1"})
            await fleet.order("uncordon", {"node": "n1"})


async def test_earlier_catalogs_are_carried_over_and_can_be_read(client: Client) -> None:
    async with working(client, f"t-{uuid.uuid4().hex[:8]}", max_history=100) as fleet:
        for number in range(1, 4):
            await fleet.apply(raw(*(f"n{i}" for i in range(1, number + 1))))
        first = (await fleet.handle.describe()).run_id
        await until_continued(fleet, first)
        assert await kept(fleet) == [3, 2, 1]
        part = views.CatalogPart.model_validate(await fleet.query("catalog", 2))
        assert part.known
        runs = [run async for run in fleet.past(10)]
        assert len(runs) >= 2
        assert [run.continues for run in runs] == [*(run.run_id for run in runs[1:]), None]
        assert [run.run_id async for run in fleet.past(1)] == [runs[0].run_id]
        judged = [v.name for run in runs for m in run.moments if isinstance(m.answer, Plan) for v in m.answer.verdicts]
        assert judged.count("apply-catalog") == 3
        await fleet.handle.terminate("the test is over")


async def test_a_plan_made_on_a_copy_is_taken_and_a_stale_one_is_not(fleet: Fleet) -> None:
    await fleet.apply(raw("n1"))
    new = raw("n1", "n2")
    carried = await fleet.query("carried")
    pages = [views.ReportsPage.model_validate(p) for p in await fleet.pages("reports")]
    found = foresee(snapshot(carried, (row for p in pages for row in p.reports)).world, new, 0.0)
    refused = await fleet.apply(new, "0123456789abcdef")
    assert refused.judgement is Judgement.REFUSED
    assert f"it would be {found.hash} now" in refused.problems[0]
    assert (await fleet.apply(new, found.hash)).judgement is Judgement.ACCEPTED
    assert (await fleet.apply(raw("n1"), found.hash)).judgement is Judgement.REFUSED
    assert await kept(fleet) == [2, 1]


async def test_ages_go_on_while_the_workflow_rests(fleet: Fleet) -> None:
    await fleet.apply(raw())

    async def age_s() -> float:
        [row] = views.HistoryPage.model_validate(await fleet.query("history")).catalogs
        assert row.age_s is not None
        return row.age_s

    first_s = await age_s()
    async with asyncio.timeout(30):
        while await age_s() <= first_s:
            continue
