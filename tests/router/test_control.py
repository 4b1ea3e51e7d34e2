"""The control API over HTTP: tables in, state out."""

import asyncio
import shutil
from pathlib import Path

import pytest

from llmgw.table import TableChange
from llmgw.wire import ErrorReply, ModelState, RouterTable, TableReply

from .rig import CHAT, Engine, Rig, both, endpoint, model, patch, started, table, watching

ONE = table(1, (model("m", "chat"),), both(endpoint("m-1")))
TWO = table(2, (model("m", "chat"),), both(endpoint("m-2")))


async def test_without_any_table_nothing_is_called_unknown(rig: Rig) -> None:
    async with rig.client.post(rig.url + CHAT, json={"model": "m"}) as response:
        assert response.status == 503
        assert int(response.headers["Retry-After"]) > 0
    async with rig.client.get(rig.url + "/v1/models") as response:
        assert response.status == 503
    async with rig.client.get(rig.url + "/readyz") as response:
        assert response.status == 503
    async with rig.client.get(rig.url + "/healthz") as response:
        assert response.status == 200


async def test_an_empty_table_is_a_table(rig: Rig) -> None:
    await rig.serve((), ())
    assert (await rig.ask())[0] == 404
    async with rig.client.get(rig.url + "/readyz") as response:
        assert response.status == 200


async def test_put_then_patch(rig: Rig) -> None:
    status, reply = await rig.put(ONE)
    assert (status, TableReply.model_validate(reply)) == (200, TableReply(token=ONE.token, digest=ONE.digest))
    change = TableChange(put_endpoints=TWO.endpoints, drop_endpoints=(ONE.endpoints[0].id,))
    status, reply = await rig.patch(patch(2, ONE, change))
    assert (status, reply["digest"]) == (200, TWO.digest)
    status, reply = await rig.patch(patch(3, ONE, TableChange(drop_endpoints=(ONE.endpoints[0].id,))))
    assert (status, reply["code"], reply["digest"]) == (409, "base_differs", TWO.digest)


async def test_a_stale_table_is_answered_with_the_token_held(rig: Rig) -> None:
    await rig.put(TWO)
    status, reply = await rig.put(ONE)
    assert status == 409
    assert ErrorReply.model_validate(reply).held == TWO.token


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{", 400, "the document is no JSON"),
        (b"{}", 422, "token is missing; digest is missing"),
        (ONE.model_dump_json().replace('"epoch":1', '"epoch":0').encode(), 422, "token.epoch"),
        (ONE.model_dump_json().replace(ONE.digest, "00").encode(), 422, "has digest"),
    ],
)
async def test_a_bad_document_is_told_whole(rig: Rig, body: bytes, status: int, says: str) -> None:
    for method in ("PUT",):
        async with rig.client.request(method, rig.url + "/v1/table", data=body) as response:
            assert response.status == status
            reply = ErrorReply.model_validate(await response.json())
            assert reply.code == "invalid"
            assert says in reply.message
    assert rig.router.tables.held == {}


async def test_fields_of_a_newer_protocol_are_ignored(rig: Rig) -> None:
    body = ONE.model_dump_json().replace('{"protocol":1', '{"protocol":9,"news":[1]', 1)
    async with rig.client.put(rig.url + "/v1/table", data=body) as response:
        assert response.status == 200


async def test_the_control_api_asks_for_one_of_its_tokens(tmp_path: Path) -> None:
    keys = tmp_path / "tokens"
    keys.write_text("# rotated on Monday\nnew-token\n\n old-token \n")
    async with started(tmp_path / "state", token_file=keys) as rig:
        for method, path in (("PUT", "/v1/table"), ("PATCH", "/v1/table"), ("GET", "/v1/state")):
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "new-token"}):
                async with rig.client.request(method, rig.url + path, headers=headers) as response:
                    assert response.status == 401
                    assert (await response.json())["code"] == "unauthorized"
        for good in ("new-token", "old-token"):
            headers = {"Authorization": f"bearer {good}"}
            async with rig.client.put(rig.url + "/v1/table", data=ONE.model_dump_json(), headers=headers) as response:
                assert response.status == 200
        async with rig.client.get(rig.url + "/readyz") as response:
            assert response.status == 200


async def test_keys_can_be_replaced_while_it_runs(tmp_path: Path) -> None:
    keys = tmp_path / "tokens"
    keys.write_text("old\n")
    async with started(tmp_path / "state", token_file=keys) as rig:
        keys.write_text("")
        with pytest.raises(ValueError, match="holds no key"):
            rig.router.reload_keys()
        assert rig.router.control_gate.admit("Bearer old")
        keys.write_text("new\n")
        rig.router.reload_keys()
        assert rig.router.control_gate.admit("Bearer new")
        assert not rig.router.control_gate.admit("Bearer old")


async def test_a_restart_serves_the_table_on_disk_and_keeps_its_fence(tmp_path: Path, engine: Engine) -> None:
    served = table(7, (model("m"),), (engine.endpoint(),))
    async with started(tmp_path) as rig:
        await rig.put(served)
    async with started(tmp_path) as rig:
        assert await rig.ask() == (200, {"replica": "m-1"})
        assert (await rig.put(table(6)))[0] == 409
        async with watching(rig) as state:
            assert (await state.next()).tables["f"].digest == served.digest


async def test_a_state_directory_that_is_removed_under_it_is_written_anew_with_the_tables_of_all_fleets(
    tmp_path: Path, engine: Engine
) -> None:
    folder = tmp_path / "state"
    async with started(folder) as rig:
        await rig.put(table(1, (model("m"),), (engine.endpoint(),), fleet="a"))
        await rig.put(table(1, fleet="b"))
        shutil.rmtree(folder)
        assert await rig.ask() == (200, {"replica": "m-1"})
        assert (await rig.put(table(2, fleet="b")))[0] == 200
    async with started(folder) as rig:
        assert await rig.ask() == (200, {"replica": "m-1"})
        assert (await rig.put(table(1, fleet="b")))[0] == 409


async def test_a_corrupt_file_counts_as_no_table(tmp_path: Path) -> None:
    async with started(tmp_path) as rig:
        await rig.put(ONE)
    (tmp_path / "f.json").write_bytes(b'{"token": {"inst')
    async with started(tmp_path) as rig:
        assert (await rig.ask())[0] == 503
        assert (tmp_path / "f.json.corrupt-1").exists()
        assert (await rig.put(ONE))[0] == 200


async def test_fleets_are_united_and_contradictions_refused(rig: Rig, engine: Engine, other: Engine) -> None:
    await rig.put(table(1, (model("m"),), (engine.endpoint(),), fleet="a"))
    await rig.put(table(1, (model("m"),), (other.endpoint(),), fleet="b", installation="second"))
    assert {str((await rig.ask())[1]["replica"]) for _ in range(4)} == {"m-1", "m-2"}
    status, reply = await rig.put(table(2, (model("x", "m"),), fleet="b", installation="second"))
    assert (status, reply["code"]) == (409, "name_conflict")
    assert "fleet 'a'" in str(reply["message"])
    status, reply = await rig.put(table(2, fleet="a", installation="second"))
    assert (status, reply["code"]) == (403, "foreign_owner")


# --- state ---------------------------------------------------------------------------------------------------------


async def test_the_state_is_told_at_once_then_per_change(rig: Rig) -> None:
    async with watching(rig) as state:
        first = await state.next()
        assert (first.router, first.tables) == ("r1", {})
        await rig.put(ONE)
        second = await state.next()
        assert second.revision > first.revision
        assert second.instance == first.instance
        assert second.tables["f"].token == ONE.token
        assert [(use.id, use.fleet, use.in_flight) for use in second.use] == [("m-1", "f", 0)]


@pytest.mark.parametrize("revision", ["same", "other", "nonsense"])
async def test_a_reader_that_knows_the_state_waits_for_a_change(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, revision: str
) -> None:
    monkeypatch.setattr("router.state.BEAT_S", 0.01)
    async with watching(rig) as state:
        known = await state.next()
    asked = {"same": str(known.revision), "other": str(known.revision + 1), "nonsense": "x"}[revision]
    async with watching(rig, instance=known.instance, revision=asked) as state:
        if revision != "same":
            assert (await state.next()).revision == known.revision
            return
        assert await state.line() == b"\n"
        await rig.put(ONE)
        assert (await state.next()).revision > known.revision


async def test_an_asked_for_model_is_news_by_name_or_alias_but_listing_is_not(rig: Rig) -> None:
    await rig.put(table(1, (model("m", "chat", state=ModelState.ASLEEP, retry_after_s=33),)))
    async with watching(rig) as state:
        assert (await state.next()).asked == ()
        async with rig.client.get(rig.url + "/v1/models") as response:
            assert response.status == 200
        status, reply = await rig.ask("chat")
        assert status == 503
        assert reply["error"]["state"] == "asleep"  # type: ignore[index]  # a JSON object
        (asked,) = (await state.next()).asked
        assert (asked.model, asked.waiting) == ("m", 0)


async def test_a_closing_router_is_not_ready_and_lets_its_readers_go(rig: Rig) -> None:
    await rig.put(ONE)
    async with watching(rig) as state:
        await state.next()
        rig.router.close()
        async with rig.client.get(rig.url + "/readyz") as response:
            assert response.status == 503
        while await asyncio.wait_for(state.line(), 5):
            pass


async def test_many_tables_in_a_row_end_in_the_last_state(rig: Rig) -> None:
    async with watching(rig) as state:
        await state.next()
        documents: list[RouterTable] = [table(seq, (model("m"),), (endpoint(f"m-{seq}"),)) for seq in range(1, 30)]
        for document in documents:
            assert (await rig.put(document))[0] == 200
        seen = [await state.next()]
        while seen[-1].tables["f"].token.seq < 29:
            seen.append(await state.next())
        assert [s.revision for s in seen] == sorted({s.revision for s in seen})
        assert len(seen) < 29
