"""Waking through other routers: they pass requests for sleeping models to one of ours, which holds them."""

import asyncio
from pathlib import Path

import httpx
import pytest

from activities.sinks.waking import stand_ins
from llmgw import table as tables
from llmgw.ids import ModelName
from llmgw.wire import Endpoint, ModelState, TableModel
from tests.sinks.agent import agent
from tests.sinks.plane import plane_of
from tests.sinks.rigs import NativeRig, SmgRig, running
from tests.sinks.stubs import engine
from tests.sinks.test_conformance import ask, serves, who

ASLEEP = TableModel(name=ModelName("m"), state=ModelState.ASLEEP)
READY = TableModel(name=ModelName("m"), state=ModelState.READY, idle_after_s=1.0)


@pytest.mark.real
@pytest.mark.parametrize("kind", ["haproxy", "envoy", "smg", "smg-file"])
async def test_a_request_through_another_router_wakes_its_model_and_is_answered(kind: str, tmp_path: Path) -> None:
    (tmp_path / "edge").mkdir()
    (tmp_path / "activator").mkdir()
    async with (
        engine("m-1") as one,
        agent([one]) as agent_url,
        running("native", tmp_path / "activator") as ours,
        running(kind, tmp_path / "edge") as edge,
    ):
        edge.settings = {**edge.settings, "activator": ours.door}
        async with plane_of(ours, agent_url) as activator, plane_of(edge, agent_url) as plane:
            await activator.put([ASLEEP], [])
            assert (await plane.put([ASLEEP], [])).digest == plane.table.digest
            await plane.sees(plane.holds_table)
            waiting = asyncio.create_task(ask(plane))
            await activator.sees(lambda seen: seen.asked == ("m",))
            await activator.put([READY], [one.endpoint])
            assert (await plane.put([READY], [one.endpoint])).digest == plane.table.digest
            assert who(await waiting) == "m-1"
            await plane.sees(plane.holds_table)
            await serves(plane, {"m-1"})
            await plane.sees(lambda seen: seen.idle == ("m-1",))
            await activator.sees(lambda seen: seen.idle == ("m-1",) and seen.asked == ())


MANY = 40


@pytest.mark.real
@pytest.mark.parametrize("kind", ["haproxy", "envoy", "smg"])
async def test_many_wait_behind_another_router_leave_their_places_and_are_told_when_to_come_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SmgRig, "more", ("--disable-retries", "--disable-circuit-breaker"))  # as docs/routers.md says
    for name in ("edge", "activator", "other"):
        (tmp_path / name).mkdir()
    asleep = ASLEEP.model_copy(update={"retry_after_s": 7})
    async with (
        engine("m-1") as one,
        agent([one]) as agent_url,
        running("native", tmp_path / "activator") as ours,
        running(kind, tmp_path / "edge") as edge,
    ):
        edge.settings = {**edge.settings, "activator": ours.door}
        async with plane_of(ours, agent_url) as activator, plane_of(edge, agent_url) as plane:
            await activator.put([asleep], [])
            await plane.put([asleep], [])
            await plane.sees(plane.holds_table)
            waiting = [asyncio.create_task(ask(plane)) for _ in range(MANY)]
            await until_waiting(ours.door, MANY)
            for one_of_them in waiting[1:]:
                one_of_them.cancel()
            await until_waiting(ours.door, 1)
            await activator.sees(lambda seen: seen.asked == ("m",))
            await activator.put([READY], [one.endpoint])
            assert who(await waiting[0]) == "m-1"
            assert one.taken == 1, "nobody works for those who went"

        monkeypatch.setattr(NativeRig, "hold_limit_s", "0.2")
        async with running("native", tmp_path / "other") as short:
            edge.settings = {**edge.settings, "activator": short.door}
            async with plane_of(short, agent_url) as activator, plane_of(edge, agent_url) as plane:
                plane.seq = 50
                await activator.put([asleep], [])
                await plane.put([asleep], [])
                await plane.sees(plane.holds_table)
                async with asyncio.timeout(60):
                    while (answer := await ask(plane)).headers.get("retry-after") != "7":  # noqa: ASYNC110 - likewise
                        await asyncio.sleep(0.05)
                assert answer.status_code == 503


async def until_waiting(door: str, number: int) -> None:
    """Until so many requests wait at a router of ours for their model."""
    async with asyncio.timeout(60), httpx.AsyncClient(base_url=door, trust_env=False) as client:
        while f'llmgw_router_waiting{{model="m"}} {number}' not in (await client.get("/metrics")).text:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def test_only_models_that_a_request_can_wake_get_a_stand_in() -> None:
    models = [
        TableModel(name=ModelName("asleep"), aliases=("a",), state=ModelState.ASLEEP),
        TableModel(name=ModelName("starting"), state=ModelState.STARTING),
        TableModel(name=ModelName("ready"), state=ModelState.READY),
        TableModel(name=ModelName("broken"), state=ModelState.UNAVAILABLE),
    ]
    served = Endpoint.model_validate(
        {"id": "ready-1", "url": "http://h:1", "models": ("ready",), "served_name": "ready", "engine": "stub"}
    )
    found = stand_ins(tables.build(models, [served]), "http://wakes:8080/")
    assert sorted((e.models, e.served_name, e.url) for e in found.values()) == [
        (("asleep", "a"), "asleep", "http://wakes:8080"),
        (("starting",), "starting", "http://wakes:8080"),
    ]
    assert len(found) == 2, "each has an id of its own"


def test_a_stand_in_has_an_address_of_its_own_where_a_router_tells_models_apart_by_it() -> None:
    models = [TableModel(name=ModelName(name), state=ModelState.ASLEEP) for name in ("a", "b")]
    found = stand_ins(tables.build(models, []), "http://wakes:8080/", apart=True)
    assert {e.url for e in found.values()} == {f"http://wakes:8080/for/{id_}" for id_ in found}
    assert len(found) == 2
