"""One test over every kind of router, run against the real router wherever one can be had here.

A kind without a client's door in this test is held to everything but requests.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from activities.outward import RefusedError
from activities.sinks.sink import RouterError
from llmgw.calls import CallOutcome
from llmgw.ids import ModelName
from llmgw.router_kinds import KINDS, kind_of, limits
from llmgw.wire import ErrorCode, ModelState, TableModel
from tests.sinks.agent import agent
from tests.sinks.plane import Plane, plane_of
from tests.sinks.rigs import RIGS, NativeRig, running
from tests.sinks.stubs import Stub, engine

pytestmark = pytest.mark.real

M = TableModel(name=ModelName("m"), state=ModelState.READY)
TLS = httpx.create_ssl_context()
"""Never used: made once, since making it is slow."""
MESSAGES = [{"role": "user", "content": "Hello"}]
WITH_DOOR = [kind for kind, rig in RIGS.items() if kind in ("native", "haproxy", "envoy", "smg", "smg-file")]


@asynccontextmanager
async def scene(kind: str, directory: Path) -> AsyncIterator[tuple[Plane, Stub, Stub]]:
    """A router that was told two replicas of `m`."""
    async with (
        engine("m-1") as one,
        engine("m-2") as two,
        agent([one, two]) as agent_url,
        running(kind, directory) as rig,
        plane_of(rig, agent_url) as plane,
    ):
        reply = await plane.put([M], [one.endpoint, two.endpoint])
        assert reply.digest == plane.table.digest
        assert reply.draining == ()
        await plane.sees(plane.holds_table)
        yield plane, one, two


async def ask(plane: Plane, name: str = "m") -> httpx.Response:
    async with httpx.AsyncClient(base_url=plane.rig.door, trust_env=False, timeout=10, verify=TLS) as client:
        return await client.post("/v1/chat/completions", json={"model": name, "messages": MESSAGES})


def who(answer: httpx.Response) -> str:
    """The replica that answered; empty for an error."""
    return str(answer.json()["choices"][0]["message"]["content"]) if answer.status_code == 200 else ""


async def serves(plane: Plane, wanted: set[str], name: str = "m") -> None:
    """Wait until exactly these replicas answer: adding may take a health check, and is nobody's barrier."""
    async with asyncio.timeout(60):
        while {who(await ask(plane, name)) for _ in range(8)} != wanted:  # noqa: ASYNC110 - a real router is asked
            await asyncio.sleep(0.05)


@asynccontextmanager
async def streaming(plane: Plane, stub: Stub) -> AsyncIterator[AsyncIterator[str]]:
    """A stream that runs at `stub`; its remaining lines."""
    async with httpx.AsyncClient(base_url=plane.rig.door, trust_env=False, timeout=30, verify=TLS) as client:
        body = {"model": "m", "messages": MESSAGES, "stream": True}
        while True:
            response = await client.send(client.build_request("POST", "/v1/chat/completions", json=body), stream=True)
            lines = response.aiter_lines()
            if stub.id in await anext(lines):
                yield lines
                await response.aclose()
                return
            await response.aclose()


def test_every_kind_is_tried_here() -> None:
    assert set(RIGS) == set(KINDS)


@pytest.mark.parametrize("kind", WITH_DOOR)
async def test_a_withdrawn_endpoint_is_not_picked_and_its_stream_runs_to_its_end(kind: str, tmp_path: Path) -> None:
    async with scene(kind, tmp_path) as (plane, one, two):
        await serves(plane, {"m-1", "m-2"})
        async with streaming(plane, one) as lines:
            reply = await plane.patch(drop=["m-1"])
            taken = one.taken
            assert reply.draining == ("m-1",)
            assert {who(await ask(plane)) for _ in range(12)} == {"m-2"}
            assert one.taken == taken
            await plane.sees(lambda s: plane.holds_table(s) and s.draining == ("m-1",))
            one.end.set()
            assert [line async for line in lines if line][-1] == "data: [DONE]"
        await plane.sees(lambda s: plane.holds_table(s) and s.draining == ())
        assert two.taken >= 12


@pytest.mark.parametrize("kind", WITH_DOOR)
async def test_what_was_withdrawn_unused_is_idle_at_once(kind: str, tmp_path: Path) -> None:
    async with scene(kind, tmp_path) as (plane, one, _two):
        reply = await plane.patch(drop=["m-1"])
        assert reply.draining == ()
        await serves(plane, {"m-2"})
        assert one.taken == 0


@pytest.mark.parametrize("kind", WITH_DOOR)
async def test_a_withdrawal_that_is_taken_back_serves_again(kind: str, tmp_path: Path) -> None:
    async with scene(kind, tmp_path) as (plane, one, _two):
        await serves(plane, {"m-1", "m-2"})
        async with streaming(plane, one) as lines:
            await plane.patch(drop=["m-1"])
            await plane.patch(put=[one.endpoint])
            await plane.patch(drop=["m-2"])
            await serves(plane, {"m-1"})
            one.end.set()
            assert [line async for line in lines if line][-1] == "data: [DONE]"
        await plane.sees(lambda s: plane.holds_table(s) and s.draining == ())


@pytest.mark.parametrize("kind", WITH_DOOR)
async def test_a_new_model_serves_and_cuts_no_stream_of_another(kind: str, tmp_path: Path) -> None:
    async with scene(kind, tmp_path) as (plane, one, _two), engine("n-1", "org/n:8b é") as other:
        await serves(plane, {"m-1", "m-2"})
        async with streaming(plane, one) as lines:
            await plane.patch(put=[other.endpoint], models=[M.model_copy(update={"name": "org/n:8b é"})])
            await serves(plane, {"n-1"}, "org/n:8b é")
            await plane.patch(drop=["m-1"])
            seen = await plane.sees(lambda s: plane.holds_table(s) and s.draining != ())
            assert seen.draining == ("m-1",)
            one.end.set()
            assert [line async for line in lines if line][-1] == "data: [DONE]"
        await plane.sees(lambda s: plane.holds_table(s) and s.draining == ())


@pytest.mark.parametrize("kind", WITH_DOOR)
async def test_aliases_are_served_under_the_engines_own_name_or_said_to_be_missing(kind: str, tmp_path: Path) -> None:
    async with scene(kind, tmp_path) as (plane, one, two):
        named = M.model_copy(update={"aliases": ("chat",)})
        endpoints = [e.model_copy(update={"models": ("m", "chat")}) for e in (one.endpoint, two.endpoint)]
        await plane.put([named], endpoints)
        said = limits(kind, [named], endpoints)
        if kind_of(kind).aliases and kind_of(kind).renames:
            assert said == ()
            await serves(plane, {"m-1", "m-2"}, "chat")
        else:
            assert "chat" in " ".join(said)
            assert (await ask(plane, "chat")).status_code == 404
        await serves(plane, {"m-1", "m-2"})


@pytest.mark.parametrize("kind", WITH_DOOR)
async def test_weights_and_priorities_hold_or_are_said_to_be_missing(kind: str, tmp_path: Path) -> None:
    async with scene(kind, tmp_path) as (plane, one, two):
        second = two.endpoint.model_copy(update={"priority": 3, "weight": 7})
        await plane.put([M], [one.endpoint, second])
        await plane.sees(plane.holds_table)
        if kind_of(kind).levels > 1:
            assert limits(kind, [M], [one.endpoint, second]) == ()
            await serves(plane, {"m-1"})
            await plane.patch(drop=["m-1"])
            await serves(plane, {"m-2"})
        else:
            assert len(limits(kind, [M], [one.endpoint, second])) == 2
            await serves(plane, {"m-1", "m-2"})


@pytest.mark.parametrize("kind", WITH_DOOR)
async def test_a_model_that_is_not_ready_is_no_unknown_model(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NativeRig, "hold_limit_s", "0")  # what sleeps is answered at once, as the others do
    async with scene(kind, tmp_path) as (plane, _one, _two):
        asleep = TableModel(name=ModelName("asleep"), state=ModelState.ASLEEP, retry_after_s=7)
        await plane.patch(models=[asleep])
        await plane.sees(plane.holds_table)
        answer, unknown = await ask(plane, "asleep"), await ask(plane, "nobody")
        assert unknown.status_code == 404
        if kind_of(kind).states:
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")
        else:
            assert "asleep" in " ".join(limits(kind, [asleep], []))


@pytest.mark.parametrize("kind", [kind for kind, row in KINDS.items() if row.carries_traffic])
async def test_an_endpoint_is_idle_after_its_models_time_without_a_request(kind: str, tmp_path: Path) -> None:
    async with scene(kind, tmp_path) as (plane, one, two):
        await plane.put([M.model_copy(update={"idle_after_s": 0.5})], [one.endpoint, two.endpoint])
        await plane.sees(lambda s: s.idle == ("m-1", "m-2"))
        if plane.rig.door:
            async with streaming(plane, one):
                await plane.sees(lambda s: "m-1" not in s.idle)
                one.end.set()
            await plane.sees(lambda s: s.idle == ("m-1", "m-2"))


@pytest.mark.parametrize("kind", ["haproxy", "envoy"])
async def test_the_activator_stands_in_for_a_model_without_replicas(kind: str, tmp_path: Path) -> None:
    async with scene(kind, tmp_path) as (plane, one, _two), engine("activator") as activator:
        plane.rig.settings = {**plane.rig.settings, "activator": activator.url}
        plane.look_anew()
        await plane.sees(lambda s: not plane.holds_table(s))  # its settings were changed: it is told anew
        await plane.put_again()
        await plane.patch(drop=["m-1", "m-2"], models=[M.model_copy(update={"state": ModelState.ASLEEP})])
        await serves(plane, {"activator"})
        async with streaming(plane, activator) as lines:
            await plane.patch(put=[one.endpoint], models=[M])
            await serves(plane, {"m-1"})
            activator.end.set()
            assert [line async for line in lines if line][-1] == "data: [DONE]"
        plane.look_anew()
        await plane.sees(lambda s: plane.holds_table(s) and s.draining == ())


@pytest.mark.parametrize("kind", [kind for kind in RIGS if kind != "native"])
async def test_what_was_changed_by_hand_is_seen_and_told_anew(kind: str, tmp_path: Path) -> None:
    async with scene(kind, tmp_path) as (plane, _one, _two):
        plane.rig.spoil()
        await plane.sees(lambda s: not plane.holds_table(s))
        await plane.put_again()
        await plane.sees(plane.holds_table)
        if plane.rig.door:
            await serves(plane, {"m-1", "m-2"})


@pytest.mark.parametrize("kind", list(RIGS))
async def test_a_restarted_router_holds_its_table_or_is_seen_not_to(kind: str, tmp_path: Path) -> None:
    async with scene(kind, tmp_path) as (plane, _one, _two):
        await plane.patch(drop=["m-1"])
        await plane.rig.stop()
        await plane.rig.start()
        plane.look_anew()
        seen = await plane.sees(lambda _: True)
        if not plane.holds_table(seen):
            await plane.put_again()
        await plane.sees(plane.holds_table)
        if plane.rig.door:
            await serves(plane, {"m-2"})


@pytest.mark.parametrize("kind", list(RIGS))
async def test_late_and_foreign_tables_are_refused_and_change_nothing(kind: str, tmp_path: Path) -> None:
    async with scene(kind, tmp_path) as (plane, _one, _two):
        await plane.patch(drop=["m-1"])
        late = plane.call(1)
        with pytest.raises(RefusedError) as refused:
            await plane.sink.put(late, plane.whole(late))
        assert refused.value.outcome is CallOutcome.STALE
        foreign = plane.call(99, installation="other")
        with pytest.raises(RefusedError) as refused:
            await plane.sink.put(foreign, plane.whole(foreign))
        assert refused.value.outcome is CallOutcome.FOREIGN
        await plane.sees(plane.holds_table)


@pytest.mark.parametrize("kind", list(RIGS))
async def test_a_difference_to_something_else_is_refused(kind: str, tmp_path: Path) -> None:
    async with scene(kind, tmp_path) as (plane, _one, _two):
        held = plane.table
        await plane.patch(drop=["m-1"])
        plane.table = held
        with pytest.raises(RefusedError) as refused:
            await plane.patch(drop=["m-2"])
        assert refused.value.reply is not None
        assert refused.value.reply.code is ErrorCode.BASE_DIFFERS


@pytest.mark.parametrize("kind", list(RIGS))
async def test_the_last_model_leaves_an_empty_table_and_not_no_update(kind: str, tmp_path: Path) -> None:
    async with scene(kind, tmp_path) as (plane, _one, _two):
        await plane.put([], [])
        await plane.sees(plane.holds_table)
        if plane.rig.door:
            assert (await ask(plane)).status_code in (404, 503)


async def test_a_haproxy_that_refuses_its_configuration_is_named_and_goes_on_serving(tmp_path: Path) -> None:
    async with scene("haproxy", tmp_path) as (plane, _one, _two), engine("n-1", "n") as other:
        await serves(plane, {"m-1", "m-2"})
        own = tmp_path / "haproxy.cfg"
        text = own.read_text()
        own.write_text(text + "  nonsense\n")
        with pytest.raises(RouterError, match="did not come up"):
            await plane.patch(put=[other.endpoint], models=[M.model_copy(update={"name": "n"})])
        await serves(plane, {"m-1", "m-2"})
        own.write_text(text)
        await plane.patch(put=[other.endpoint], models=[M.model_copy(update={"name": "n"})])
        await serves(plane, {"n-1"}, "n")
        await serves(plane, {"m-1", "m-2"})


async def test_prometheus_scrapes_engines_under_the_planes_labels(tmp_path: Path) -> None:
    async with scene("prometheus", tmp_path) as (plane, _one, _two):
        query = {"query": "vllm:num_requests_running"}
        async with asyncio.timeout(60), httpx.AsyncClient(base_url=plane.rig.api, trust_env=False) as client:  # type: ignore[attr-defined]
            rows: list[dict[str, dict[str, str]]] = []
            while len(rows) < 2:
                rows = (await client.get("/api/v1/query", params=query)).json()["data"]["result"]
                await asyncio.sleep(0.1)
        labels = {row["metric"]["replica"]: row["metric"] for row in rows}
        assert labels["m-1"]["model"] == "m"
        assert labels["m-1"]["node"] == "127.0.0.1"
        assert json.dumps(labels["m-2"]["engine"]) == '"stub"'


# --- large tables --------------------------------------------------------------------------------------------------

LARGE = 1000


@asynccontextmanager
async def doors() -> AsyncIterator[int]:
    """A port that takes connections at every address of this host."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "0.0.0.0", 0, backlog=1024)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


@pytest.mark.parametrize("kind", ["haproxy", "envoy"])
async def test_a_difference_to_a_large_table_is_told_and_seen_in_full(kind: str, tmp_path: Path) -> None:
    names = [f"model-{n}" for n in range(20)]
    models = [TableModel(name=ModelName(name), state=ModelState.READY) for name in names]
    async with engine("m-1") as one, doors() as port, running(kind, tmp_path) as rig, plane_of(rig, "") as plane:
        rig.settings = {**rig.settings, "check_every_s": "60"}
        many = [
            one.endpoint.model_copy(
                update={
                    "id": f"{names[n % 20]}-{n}",
                    "url": f"http://127.1.{n // 250}.{n % 250 + 1}:{port}",
                    "models": (names[n % 20],),
                    "served_name": names[n % 20],
                }
            )
            for n in range(LARGE)
        ]
        await plane.put([*models, M], many)
        reply = await plane.patch(put=[one.endpoint], drop=[many[0].id])
        assert reply.digest == plane.table.digest
        plane.look_anew()
        await plane.sees(plane.holds_table)
        async with asyncio.timeout(60):
            while who(await ask(plane)) != "m-1":  # noqa: ASYNC110 - Envoy checks a new host once before it picks it
                await asyncio.sleep(0.05)
